#pragma once
// The words of the recall suite, in the order of recall_suite.py: a seed's text depends on the
// order. Constants; any thread.
#include <array>
#include <string_view>

namespace allot::recall_words {

inline constexpr auto kAdjectives = std::to_array<std::string_view>(
    {"amber", "brisk",  "coral",  "dusty", "eager", "faint", "gentle", "hollow",
     "icy",   "jolly",  "keen",   "lunar", "misty", "noble", "opal",   "pale",
     "quiet", "rustic", "silver", "tidal", "umber", "vivid", "warm",   "young",
     "zesty", "bold",   "calm",   "dark",  "early", "fresh", "grand",  "humble"});

inline constexpr auto kNouns = std::to_array<std::string_view>(
    {"falcon", "harbor",  "lantern", "meadow", "orchid", "pebble", "quarry", "raven",
     "summit", "thistle", "valley",  "walnut", "beacon", "cedar",  "dagger", "ember",
     "fjord",  "glacier", "hatchet", "island", "jackal", "kettle", "ladder", "magnet",
     "needle", "otter",   "parrot",  "quiver", "rocket", "saddle", "temple", "urchin"});

inline constexpr auto kNames = std::to_array<std::string_view>(
    {"Mara", "Otis", "Lena", "Hugo", "Iris", "Joel", "Kira", "Liam", "Nora", "Owen", "Pia",
     "Quin", "Rosa", "Seth", "Tara", "Umar", "Vera", "Wade", "Xena", "Yuri", "Zoe",  "Abel",
     "Bina", "Carl", "Dora", "Egon", "Faye", "Glen", "Hana", "Ivan", "Jana", "Kurt"});

inline constexpr auto kCities = std::to_array<std::string_view>(
    {"Lisbon", "Oslo",  "Cairo", "Lima",  "Quito", "Tokyo", "Delhi", "Paris",
     "Rome",   "Kyiv",  "Sofia", "Tunis", "Accra", "Hanoi", "Seoul", "Doha",
     "Dakar",  "Riga",  "Turin", "Porto", "Basel", "Ghent", "Malmo", "Split",
     "Davos",  "Izmir", "Osaka", "Perth", "Leeds", "Cork",  "Nice",  "Bern"});

inline constexpr auto kJobs = std::to_array<std::string_view>(
    {"baker", "pilot", "tailor", "miner", "nurse", "judge", "farmer", "sailor", "writer", "painter",
     "driver", "barber", "doctor", "lawyer", "singer", "dancer"});

inline constexpr auto kFillSubjects = std::to_array<std::string_view>(
    {"the wind", "a boat", "the road", "some rain", "the old clock", "a distant bell", "the river",
     "an empty cart", "the market", "a small bird", "the tall grass", "the night sky",
     "the wooden door", "a grey cat", "the long train", "the first snow"});

inline constexpr auto kFillVerbs = std::to_array<std::string_view>(
    {"moved past", "rested near", "turned toward", "stood beside", "faded behind", "waited for",
     "drifted over", "went around", "looked across", "stayed under"});

inline constexpr auto kFillObjects = std::to_array<std::string_view>(
    {"the hill", "the mill", "the field", "the gate", "the bridge", "the tower", "the shore",
     "the wall", "the garden", "the square", "the forest", "the station"});

inline constexpr std::string_view kConsonants = "bdfgklmnprstvz";
inline constexpr std::string_view kVowels = "aeiou";
inline constexpr std::string_view kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

}  // namespace allot::recall_words
