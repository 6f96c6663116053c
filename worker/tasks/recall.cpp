#include "worker/tasks/recall.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>

#include "core/words.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// The words, in the order of recall_suite.py: a seed's text depends on the order.
constexpr auto kAdjectives = std::to_array<std::string_view>(
    {"amber", "brisk",  "coral",  "dusty", "eager", "faint", "gentle", "hollow",
     "icy",   "jolly",  "keen",   "lunar", "misty", "noble", "opal",   "pale",
     "quiet", "rustic", "silver", "tidal", "umber", "vivid", "warm",   "young",
     "zesty", "bold",   "calm",   "dark",  "early", "fresh", "grand",  "humble"});

constexpr auto kNouns = std::to_array<std::string_view>(
    {"falcon", "harbor",  "lantern", "meadow", "orchid", "pebble", "quarry", "raven",
     "summit", "thistle", "valley",  "walnut", "beacon", "cedar",  "dagger", "ember",
     "fjord",  "glacier", "hatchet", "island", "jackal", "kettle", "ladder", "magnet",
     "needle", "otter",   "parrot",  "quiver", "rocket", "saddle", "temple", "urchin"});

constexpr auto kNames = std::to_array<std::string_view>(
    {"Mara", "Otis", "Lena", "Hugo", "Iris", "Joel", "Kira", "Liam", "Nora", "Owen", "Pia",
     "Quin", "Rosa", "Seth", "Tara", "Umar", "Vera", "Wade", "Xena", "Yuri", "Zoe",  "Abel",
     "Bina", "Carl", "Dora", "Egon", "Faye", "Glen", "Hana", "Ivan", "Jana", "Kurt"});

constexpr auto kCities = std::to_array<std::string_view>(
    {"Lisbon", "Oslo",  "Cairo", "Lima",  "Quito", "Tokyo", "Delhi", "Paris",
     "Rome",   "Kyiv",  "Sofia", "Tunis", "Accra", "Hanoi", "Seoul", "Doha",
     "Dakar",  "Riga",  "Turin", "Porto", "Basel", "Ghent", "Malmo", "Split",
     "Davos",  "Izmir", "Osaka", "Perth", "Leeds", "Cork",  "Nice",  "Bern"});

constexpr auto kJobs = std::to_array<std::string_view>(
    {"baker", "pilot", "tailor", "miner", "nurse", "judge", "farmer", "sailor", "writer", "painter",
     "driver", "barber", "doctor", "lawyer", "singer", "dancer"});

constexpr auto kFillSubjects = std::to_array<std::string_view>(
    {"the wind", "a boat", "the road", "some rain", "the old clock", "a distant bell", "the river",
     "an empty cart", "the market", "a small bird", "the tall grass", "the night sky",
     "the wooden door", "a grey cat", "the long train", "the first snow"});

constexpr auto kFillVerbs = std::to_array<std::string_view>(
    {"moved past", "rested near", "turned toward", "stood beside", "faded behind", "waited for",
     "drifted over", "went around", "looked across", "stayed under"});

constexpr auto kFillObjects = std::to_array<std::string_view>(
    {"the hill", "the mill", "the field", "the gate", "the bridge", "the tower", "the shore",
     "the wall", "the garden", "the square", "the forest", "the station"});

constexpr std::string_view kConsonants = "bdfgklmnprstvz";
constexpr std::string_view kVowels = "aeiou";
constexpr std::string_view kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Draws are in the order of recall_suite.py. Each statement has one draw, since C++ leaves the
// order within an expression open.

using Sequence = std::vector<std::string>;  // sentences that keep their order in the context

struct Placed {
  double position;
  std::string sentence;
};

std::string fiveDigits(PythonRandom& random) {
  return std::to_string(random.randrange(10000, 100000));
}

std::string inventedWord(PythonRandom& random) {
  std::string word;
  for (int syllable = 0; syllable < 3; ++syllable) {
    word += random.choice(kConsonants);
    word += random.choice(kVowels);
  }
  return word;
}

std::string fillerSentence(PythonRandom& random) {
  std::string sentence(random.choice(kFillSubjects));
  sentence.append(" ").append(random.choice(kFillVerbs));
  sentence.append(" ").append(random.choice(kFillObjects)).append(".");
  if (sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] += 'A' - 'a';
  return sentence;
}

int64_t wordCount(const std::string& sentence) {
  return 1 + std::count(sentence.begin(), sentence.end(), ' ');
}

// Collects the facts and questions of one context, family by family.
class RecallBuilder {
 public:
  RecallBuilder(PythonRandom& random, int64_t budget_words)
      : random_(random), budget_words_(std::max<int64_t>(0, budget_words)) {}

  RecallSample make() {
    std::vector<size_t> keys(kAdjectives.size() * kNouns.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    random_.shuffle(keys);
    const int64_t most = std::max<int64_t>(3, std::min<int64_t>(40, budget_words_ / 40));
    const auto singles = static_cast<size_t>(random_.randint(2, most));
    const std::span<const size_t> all(keys);
    for (size_t key : all.first(singles)) addSingleCode(keyName(key));
    const size_t multiples = std::max<size_t>(1, singles / 6);
    for (size_t key : all.subspan(singles, multiples)) addSeveralCodes(keyName(key));
    addPeople(std::min(kNames.size() / 2, std::max<size_t>(1, singles / 3)));
    for (size_t i = 0; i < std::max<size_t>(1, singles / 8); ++i) addVariableChain();

    RecallSample sample;
    sample.context = mixedWithFiller();
    random_.shuffle(questions_);
    sample.questions = std::move(questions_);
    return sample;
  }

 private:
  static std::string keyName(size_t key) {
    std::string name(kAdjectives[key / kNouns.size()]);
    return name.append(" ").append(kNouns[key % kNouns.size()]);
  }

  void ask(std::string text, std::string answer, const char* task) {
    questions_.push_back({std::move(text), std::move(answer), task});
  }

  void addSingleCode(const std::string& key) {
    const std::string code = fiveDigits(random_);
    facts_.push_back({"The code for " + key + " is " + code + "."});
    ask("What is the code for " + key + "?", code, "niah");
  }

  void addSeveralCodes(const std::string& key) {
    std::vector<std::string> codes(static_cast<size_t>(random_.randint(2, 3)));
    for (std::string& code : codes) code = fiveDigits(random_);
    ask("List all codes for " + key + " in order.", joined(codes, " "), "multi");
    Sequence fact;
    for (const std::string& code : codes)
      fact.push_back("The code for " + key + " is " + code + ".");
    facts_.push_back(std::move(fact));
  }

  void addPeople(size_t pairs) {
    std::vector<std::string> names(kNames.begin(), kNames.end());
    random_.shuffle(names);
    for (size_t i = 0; i < pairs; ++i) {
      const std::string& worker = names[2 * i];
      const std::string& boss = names[2 * i + 1];
      const std::string city(random_.choice(kCities));
      const std::string job(random_.choice(kJobs));
      facts_.push_back({worker + " works for " + boss + "."});
      facts_.push_back({boss + " lives in " + city + "."});
      facts_.push_back({boss + " is a " + job + "."});
      ask("In which city does the boss of " + worker + " live?", city, "hop");
      ask("Where does " + boss + " live?", city, "qa");
      ask("What is the job of " + boss + "?", job, "qa");
      ask("What is the job of the boss of " + worker + "?", job, "hop");
    }
  }

  void addVariableChain() {
    std::vector<std::string> names(static_cast<size_t>(random_.randint(2, 4)));
    for (std::string& name : names) {
      for (int letter = 0; letter < 3; ++letter) name += random_.choice(kCapitals);
    }
    const std::string value = fiveDigits(random_);
    Sequence chain = {"Set " + names[0] + " to " + value + "."};
    for (size_t i = 1; i < names.size(); ++i) {
      chain.push_back("Copy " + names[i - 1] + " to " + names[i] + ".");
    }
    facts_.push_back(std::move(chain));
    ask("What is the value of " + names.back() + "?", value, "track");
    if (names.size() > 2) ask("What is the value of " + names[1] + "?", value, "track");
  }

  std::string mixedWithFiller() {
    std::vector<Placed> placed;
    int64_t used = 0;
    for (Sequence& fact : facts_) {
      std::vector<double> positions(fact.size());
      for (double& position : positions) position = random_.random();
      std::sort(positions.begin(), positions.end());
      for (size_t i = 0; i < fact.size(); ++i) {
        used += wordCount(fact[i]);
        placed.push_back({positions[i], std::move(fact[i])});
      }
    }
    for (int64_t left = (budget_words_ - used) / 8; left > 0; --left) {
      const double position = random_.random();
      placed.push_back({position, fillerSentence(random_)});
    }
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.position < b.position; });
    std::string context;
    for (const Placed& item : placed) {
      if (!context.empty()) context += ' ';
      context += item.sentence;
    }
    return context;
  }

  PythonRandom& random_;
  int64_t budget_words_;
  std::vector<Sequence> facts_;
  std::vector<RecallQuestion> questions_;
};

// Asks for the three most common words, the most common first. A tie among the first four counts
// changes the answer or its order, and makes the question ambiguous.
RecallQuestion mostCommonWords(const std::vector<std::string>& text) {
  std::map<std::string, int64_t> counts;
  for (const std::string& word : text) ++counts[word];
  std::vector<std::pair<std::string, int64_t>> ranked(counts.begin(), counts.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  RecallQuestion question{"Which three words are most common?", "", "freq"};
  std::vector<std::string> top;
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i) {
    top.push_back(ranked[i].first);
    if (i + 1 < ranked.size() && ranked[i].second == ranked[i + 1].second) {
      question.ambiguous = true;
    }
  }
  question.answer = joined(top, " ");
  return question;
}

int64_t recallWordsPer10000Tokens(std::string_view task) { return task == "freq" ? 5700 : 7300; }

std::optional<Draft> recallDraft(const DraftRequest& request) {
  PythonRandom random(request.seed);
  const RecallSample sample = request.task == "freq" ? makeRecallFreq(random, request.size)
                                                     : makeRecall(random, request.size);
  for (const RecallQuestion& question : sample.questions) {
    if (question.task != request.task) continue;
    if (question.ambiguous) return std::nullopt;
    // The form that the model was trained on, without a chat template.
    Draft draft;
    draft.prompt = sample.context + "\n";
    draft.question_start = draft.prompt.size();
    draft.prompt += "Question: " + question.text + " Answer:";
    draft.answers = {question.answer};
    draft.bare = true;
    return draft;
  }
  return std::nullopt;
}

// An answer is one line.
bool recallComplete(const std::string& completion) {
  return completion.find('\n') != std::string::npos;
}

}  // namespace

RecallSample makeRecall(PythonRandom& random, int64_t budget_words) {
  return RecallBuilder(random, budget_words).make();
}

RecallSample makeRecallFreq(PythonRandom& random, int64_t budget_words) {
  const auto length = static_cast<size_t>(std::max<int64_t>(8, budget_words / 2));
  std::vector<std::string> vocabulary(static_cast<size_t>(random.randint(20, 60)));
  for (std::string& word : vocabulary) word = inventedWord(random);
  std::vector<double> weights(vocabulary.size(), 1.0);
  weights[0] = 9;
  weights[1] = 6;
  weights[2] = 4;
  std::vector<std::string> text;
  text.reserve(length);
  for (size_t index : random.choices(weights, length)) text.push_back(vocabulary[index]);
  return {"Words: " + joined(text, " ") + ".", {mostCommonWords(text)}};
}

Suite recallSuite() {
  return {.name = "recall",
          .generated = {"niah", "multi", "track", "freq", "qa", "hop"},
          .draft = recallDraft,
          .size_per_10000_tokens = recallWordsPer10000Tokens,
          .bare = true,
          .complete = recallComplete};
}

}  // namespace allot
