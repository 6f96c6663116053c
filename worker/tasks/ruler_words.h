#pragma once
// The words of the ruler suite, chosen for this project: common English, no word twice. A seed's
// text depends on their order. Constants; any thread.
#include <string_view>
#include <vector>

#include "worker/tasks/answer_text.h"

namespace allot::ruler_words {

using Words = std::vector<std::string_view>;

inline const Words kAdjectives = splitAt(
    "able acid aged agile alert alive alpine amber ample ancient angry apt arctic arid atomic "
    "autumn avid awake aware azure bald bare basic bitter black blank bleak blind blond blue "
    "blunt bold brave brief bright brisk broad broken bronze brown busy calm careful casual "
    "central cheap cheerful chief chilly civil clean clear clever close cloudy clumsy coarse "
    "coastal cold common compact complex cool copper coral cosy crisp crooked cruel curious curly "
    "curved daily damp daring dark dear deep dense digital dim direct distant dizzy double dry "
    "dull dusty eager early earnest eastern easy elder electric empty endless equal exact extra "
    "fair faint famous fancy fast feeble festive fierce final fine firm fixed flat floral fluid "
    "foggy formal fragile frail frank free fresh frosty frozen full funny fuzzy gentle giant glad "
    "glossy golden good grand grateful gray great green grim handy happy hardy harsh hasty hazy "
    "heavy hidden high hollow honest huge humble humid hungry icy ideal idle inner intense jolly "
    "joyful keen kind large late lazy lean light likely little lively local lofty lonely long "
    "loose loud lovely low loyal lucky lunar mellow mental merry mighty mild modern modest moist "
    "mossy muddy mute narrow native neat new nimble noble noisy normal northern novel oaken odd "
    "old olive orange organic ornate outer oval pale past patient perfect plain pleasant plump "
    "polar polite poor prime private proud public pure purple quick quiet rapid rare raw ready "
    "real recent red regal remote rich rigid ripe robust rocky rosy rough round royal rural rusty "
    "sacred safe salty sandy scarlet serene shady shallow sharp shiny short shy silent silky "
    "silver simple sleepy slender slim slow small smart smooth snowy social soft solar solid "
    "sonic sour southern spare sparse spicy stable stark steady steep stiff stormy stout strange "
    "strict strong sturdy subtle sudden sunny super sweet swift tall tame tart tender tense thick "
    "thin thirsty tidal tidy tiny tough tranquil tropical true upper urban useful vague valid "
    "vast velvet violet vital vivid vocal warm wary weary western wet white whole wide wild windy "
    "wintry wise witty wooden worthy young zealous",
    ' ');

inline const Words kNouns = splitAt(
    "acorn airport almond anchor animal anvil apple apron arch arena armor arrow artist atlas "
    "attic avenue axe badge bakery balcony ball bamboo banana banjo bank banner barber barn "
    "barrel basin basket bathtub battery beach beacon bead bean bear beaver bedroom beehive "
    "beetle bell belt bench berry bicycle bird biscuit blanket blossom boat bolt bonnet book boot "
    "border bottle boulder bowl bracelet branch bread brick bridge broom brush bucket buckle "
    "bugle bundle burrow bus butter button cabbage cabin cable cactus camel camera canal candle "
    "cannon canoe canvas canyon captain caravan cargo carpet carrot cart castle cat cave cedar "
    "cellar chain chair chalk chapel cheese cherry chess chest chimney church circle circus city "
    "clarinet clay cliff clock cloth cloud clover coach coal coat cobbler coconut coffee coin "
    "collar comet compass cookie cord corn corner cottage cotton cousin cradle crane crater "
    "crayon cricket crown crystal cup curtain cushion cymbal daisy dancer deer desert desk "
    "diamond diary doctor dolphin donkey door dragon drawer dress drill drum duck eagle easel "
    "echo elbow elephant engine envelope fabric factory falcon farm farmer feather fence fern "
    "ferry fiddle field finch finger fish flag flame flask flower flute forest fork fossil "
    "fountain fox frog furnace galaxy garage garden garlic gate giraffe glacier glass globe glove "
    "goat goose grain grape grass guitar hammer hamster harbor harp hat hawk hazel heart hedge "
    "helmet heron hill hinge honey hook horn horse hotel house igloo inkwell insect iron island "
    "ivory ivy jacket jaguar jar jewel jigsaw journal judge jug jungle juniper kayak kennel "
    "kettle key kitchen kite kitten knife knot label ladder lagoon lake lamp lantern lawn leaf "
    "leather lemon letter lever library lily lime linen lion lizard lobster locket lodge lumber "
    "magnet mango mantle maple marble market mask meadow medal melon mermaid meteor mill mirror "
    "mitten monkey moon moth motor mountain mouse museum mushroom napkin necklace needle nest "
    "nettle notebook nutmeg oasis ocean onion opera orchard organ otter oven owl oyster paddle "
    "painter palace palm panda paper parade parcel park parrot pasta path peach peacock pear "
    "pearl pebble pelican pencil penguin pepper piano picnic pigeon pillow pilot pine pirate "
    "planet plate plaza plum pocket poem poet pond pony poppy porch potato prairie prince puddle "
    "pulley pumpkin puppet puzzle pyramid quarry quilt rabbit raccoon radio raft railway rainbow "
    "raisin ranch raven ribbon rice river road robin rocket roof rooster rope rose rudder sailor "
    "salad salmon sandal saddle satchel saucer school scooter sculptor seagull shadow shark sheep "
    "shell shelter ship shirt shoe shovel signal singer sketch sled slipper snail sofa soldier "
    "spade sparrow spider spiral spoon squirrel stamp statue stream street studio sugar suitcase "
    "summit swan sweater table tailor tambourine tavern teacher teapot temple theater thimble "
    "thistle thunder ticket tiger timber toast tomato torch tower tractor train trumpet tulip "
    "tunnel turkey turtle umbrella uncle valley vase vessel village vine violin volcano wagon "
    "walnut walrus warden weaver whale wheat wheel whistle willow window wizard wolf yacht zebra",
    ' ');

inline const Words kVerbs = splitAt(
    "admire agree allow announce answer appear argue arrange arrive attend bake balance bathe "
    "begin believe belong blink boil borrow bounce breathe bring build carry carve celebrate "
    "chase choose climb collect compare complain connect consider consist cook copy count crawl "
    "create decide defend deliver depend describe discover divide dream drive earn enjoy enter "
    "escape examine expect explain explore fasten fetch float follow forget forgive gather glow "
    "greet grow guess hang happen harvest hesitate hurry imagine improve include inform invent "
    "invite juggle jump kneel knock laugh learn lend listen marry melt mend mention notice obey "
    "observe occur offer pause perform permit persuade polish pour practise praise prepare "
    "pretend prevent protect provide publish question receive recite recommend refuse relax "
    "remain remember remind repair repeat replace reply rescue return reveal scatter scold scream "
    "search separate shiver sigh smile sneeze soak solve speak spill sprinkle squeeze stumble "
    "succeed suggest support suppose surprise surround swallow tease thank trace travel tremble "
    "trust understand unite vanish visit wander warn whisper wonder write yawn yield",
    ' ');

// The words of all three lists.
inline const Words kSingleWords = [] {
  Words all = kAdjectives;
  all.insert(all.end(), kNouns.begin(), kNouns.end());
  all.insert(all.end(), kVerbs.begin(), kVerbs.end());
  return all;
}();

}  // namespace allot::ruler_words
