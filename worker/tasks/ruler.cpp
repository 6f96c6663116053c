// Suite ruler, generated: NVIDIA's RULER (Hsieh et al. 2024) without its downloads.
//
// The texts are those of RULER's task specification (scripts/data/synthetic/constants.py and the
// configurations of scripts/synthetic.yaml; Apache-2.0); words and draws are our own.
// niah_multivalue and niah_multiquery hide their needles in noise instead of essays. Unlike in
// RULER, variables and the keys asked for are unique, so that each question has one answer.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "core/words.h"
#include "worker/tasks/python_random.h"
#include "worker/tasks/record_reader.h"
#include "worker/tasks/ruler_words.h"
#include "worker/tasks/suite.h"

namespace allot {
namespace {

// Returns where the question at the end of a RULER prompt begins, its last such line; 0: none.
size_t questionStart(const std::string& prompt) {
  for (const char* const mark :
       {"\nQuestion: ", "\nWhat are all the special magic ", "\nWhat is the special magic "}) {
    if (const size_t at = prompt.rfind(mark); at != std::string::npos) return at + 1;
  }
  return 0;
}

// Reads PATH/TASK/validation.jsonl for every task of the spec: `input`, `outputs` and, optional,
// `answer_prefix`. The prompts are complete: RULER's scripts apply the model's template.
Result<std::vector<Record>> readRuler(const std::string& path, const v1::Task& spec) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return badInput(path +
                    ": is no folder; suite ruler reads the one that RULER's scripts made, with "
                    "TASK/validation.jsonl in it");
  }
  return readTasks(path, spec, "/validation.jsonl",
                   [](const std::string& task, const JsonRecord& json) -> Result<Record> {
                     Record record{.task = task, .draft = {}, .identity = {}};
                     Draft& draft = record.draft;
                     ALLOT_ASSIGN(draft.prompt, json.text("input"));
                     ALLOT_ASSIGN(draft.answers, json.texts("outputs"));
                     if (json.has("answer_prefix")) {
                       ALLOT_ASSIGN(const nlohmann::json* prefix, json.value("answer_prefix"));
                       if (!prefix->is_string()) {
                         return json.place().refuse("field \"answer_prefix\" is not a string");
                       }
                       draft.answer_prefix = prefix->get<std::string>();
                     }
                     draft.bare = true;
                     draft.question_start = questionStart(draft.prompt);
                     // A question of SQuAD is the same among other paragraphs; elsewhere the whole
                     // prompt is the identity.
                     record.identity = task.starts_with("qa_")
                                           ? draft.prompt.substr(draft.question_start)
                                           : draft.prompt;
                     return record;
                   });
}

constexpr const char* kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

// Returns `count` different positions of 0..n-1 (all, if there are no more), in order.
std::vector<size_t> positions(PythonRandom& random, size_t n, size_t count) {
  std::vector<size_t> all(n);
  for (size_t i = 0; i < n; ++i) all[i] = i;
  random.shuffle(all);
  all.resize(std::min(n, count));
  std::sort(all.begin(), all.end());
  return all;
}

// Returns the lines with parts[i] in front of line before[i]. `before` ascends.
std::string withInserted(const std::vector<std::string>& lines, const std::vector<size_t>& before,
                         const std::vector<std::string>& parts) {
  std::vector<std::string> all;
  size_t next = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    while (next < parts.size() && before[next] == i) all.push_back(parts[next++]);
    all.push_back(lines[i]);
  }
  return joined(all, "\n");
}

std::string pairedWord(PythonRandom& random) {
  std::string word(random.choice(ruler_words::kAdjectives));
  return word.append("-").append(random.choice(ruler_words::kNouns));
}

std::string randomLetters(PythonRandom& random, size_t count, char first) {
  std::string word;
  for (size_t i = 0; i < count; ++i) word += static_cast<char>(first + random.randbelow(26));
  return word;
}

// Returns a draw of `make` that differs from all earlier ones.
template <typename Make>
std::string fresh(std::set<std::string>* used, Make make) {
  std::string made = make();
  while (!used->insert(made).second) made = make();
  return made;
}

// ---- needles in a haystack ----

std::string number(PythonRandom& random) {
  return std::to_string(random.randint(1'000'000, 9'999'999));
}

// Returns a UUID of version 4, as Python's uuid.UUID prints it.
std::string uuid(PythonRandom& random) {
  uint64_t high = random.getrandbits(64), low = random.getrandbits(64);
  high = (high & ~uint64_t{0xf000}) | 0x4000;
  low = (low & ~(uint64_t{3} << 62)) | uint64_t{2} << 62;
  std::string text;
  for (int nibble = 0; nibble < 32; ++nibble) {
    if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20) text += '-';
    const uint64_t word = nibble < 16 ? high : low;
    text += "0123456789abcdef"[word >> (60 - 4 * (nibble % 16)) & 15];
  }
  return text;
}

struct Niah {
  size_t keys = 1;            // that are asked for
  size_t values = 1;          // of each key
  bool needle_lines = false;  // all lines around are needles with other keys
  bool uuids = false;         // keys and values are UUIDs
};

std::string needle(const Niah& kind, const std::string& key, const std::string& value) {
  return std::string("One of the special magic ") + (kind.uuids ? "uuids" : "numbers") + " for " +
         key + " is: " + value + ".";
}

Draft niahDraft(const Niah& kind, const DraftRequest& request) {
  PythonRandom random(request.seed);
  std::set<std::string> used;
  const auto key = [&] {
    return fresh(&used, [&] { return kind.uuids ? uuid(random) : pairedWord(random); });
  };
  const auto value = [&] {
    return fresh(&used, [&] { return kind.uuids ? uuid(random) : number(random); });
  };
  Draft draft;
  std::vector<std::string> keys, needles;
  for (size_t k = 0; k < kind.keys; ++k) {
    keys.push_back(key());
    for (size_t v = 0; v < kind.values; ++v) {
      draft.answers.push_back(value());
      needles.push_back(needle(kind, keys.back(), draft.answers.back()));
    }
  }
  random.shuffle(needles);
  const auto count = static_cast<size_t>(std::max<int64_t>(request.size, 4));
  std::vector<std::string> lines(count, kNoise);
  if (kind.needle_lines) {
    // Keys of lines may be equal to each other, as in RULER, but not to one that is asked for.
    for (std::string& line : lines) {
      std::string other = kind.uuids ? uuid(random) : pairedWord(random);
      while (used.contains(other)) other = kind.uuids ? uuid(random) : pairedWord(random);
      line = needle(kind, other, kind.uuids ? uuid(random) : number(random));
    }
  }
  const auto before = positions(random, lines.size(), needles.size());
  const std::string context = withInserted(lines, before, needles);

  const bool one = needles.size() == 1;
  const std::string type = std::string(kind.uuids ? "uuid" : "number") + (one ? "" : "s");
  std::string query = keys[0];
  for (size_t k = 1; k < keys.size(); ++k) {
    query += (k + 1 == keys.size() ? ", and " : ", ") + keys[k];
  }
  draft.prompt = (one ? "A special magic " + type + " is" : "Some special magic " + type + " are") +
                 " hidden within the following text. Make sure to memorize it. I will quiz you "
                 "about the " +
                 type + " afterwards.\n" + context + "\n";
  draft.question_start = draft.prompt.size();
  const std::string asked =
      "the special magic " + type + " for " + query + " mentioned in the provided text";
  draft.prompt += (one ? "What is " : "What are all ") + asked + "?";
  draft.answer_prefix = " T" + asked.substr(1) + (one ? " is" : " are");
  return draft;
}

// ---- variable tracking ----

struct Chain {
  std::vector<std::string> names;
  std::string prompt;
  size_t question_start = 0;
  std::string answer_prefix;
};

Chain variableChain(PythonRandom& random, size_t noise_lines, size_t letters,
                    const std::string& value, std::set<std::string>* used) {
  constexpr size_t kNames = 5;
  Chain chain;
  for (size_t i = 0; i < kNames; ++i) {
    chain.names.push_back(fresh(used, [&] { return randomLetters(random, letters, 'A'); }));
  }
  std::vector<std::string> assignments = {"VAR " + chain.names[0] + " = " + value};
  for (size_t i = 1; i < kNames; ++i) {
    assignments.push_back("VAR " + chain.names[i] + " = VAR " + chain.names[i - 1] + " ");
  }
  const std::vector<std::string> lines(std::max(noise_lines, kNames), kNoise);
  const auto before = positions(random, lines.size(), kNames);
  chain.prompt =
      "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n" +
      withInserted(lines, before, assignments) + "\n";
  chain.question_start = chain.prompt.size();
  chain.prompt +=
      "Question: Find all variables that are assigned the value " + value + " in the text above.";
  chain.answer_prefix =
      " Answer: According to the chain(s) of variable assignment in the text above, " +
      std::to_string(kNames) + " variables are assigned the value " + value + ", they are: ";
  return chain;
}

// A solved example precedes the question; RULER makes it about 500 tokens long.
Draft variableDraft(const DraftRequest& request) {
  constexpr int64_t kExampleLines = 14;
  PythonRandom random(request.seed);
  std::set<std::string> used;
  const auto value = [&] {
    return fresh(&used, [&] { return std::to_string(random.randrange(10000, 99999)); });
  };
  const std::string example_value = value();
  const auto example_lines = std::min<int64_t>(kExampleLines, request.prompt_tokens / 150);
  const Chain example = variableChain(
      random, static_cast<size_t>(std::max<int64_t>(0, example_lines)), 3, example_value, &used);
  const Chain asked = variableChain(random, static_cast<size_t>(std::max<int64_t>(0, request.size)),
                                    5, value(), &used);
  Draft draft;
  draft.prompt = example.prompt + example.answer_prefix + " " + joined(example.names, " ") + "\n";
  draft.question_start = draft.prompt.size() + asked.question_start;
  draft.prompt += asked.prompt;
  draft.answer_prefix = asked.answer_prefix;
  draft.answers = asked.names;
  return draft;
}

// ---- common words ----

// A numbered list in which ten words are more frequent than the others. All are single words or all
// are pairs, so that the form of a word tells nothing.
struct WordList {
  size_t words;
  size_t common_times, other_times;
  bool pairs;
};

std::pair<std::string, std::vector<std::string>> wordList(PythonRandom& random,
                                                          const WordList& kind) {
  constexpr size_t kCommon = 10;
  const ruler_words::Words& single = ruler_words::kSingleWords;
  const size_t most = kind.pairs ? 50'000 : single.size() * 9 / 10;
  const size_t words = std::clamp(kind.words, kCommon + 1, most);
  std::vector<std::string> chosen;
  std::set<std::string> used;
  while (chosen.size() < words) {
    chosen.push_back(fresh(&used, [&] {
      return kind.pairs ? pairedWord(random) : std::string(random.choice(single));
    }));
  }
  std::vector<std::string> list;
  for (size_t i = 0; i < words; ++i) {
    list.insert(list.end(), i < kCommon ? kind.common_times : kind.other_times, chosen[i]);
  }
  random.shuffle(list);
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    text += (i > 0 ? " " : "") + std::to_string(i + 1) + ". " + list[i];
  }
  chosen.resize(kCommon);
  return {std::move(text), std::move(chosen)};
}

Draft commonWordsDraft(const DraftRequest& request) {
  const std::string before =
      "Below is a numbered list of words. In these words, some appear more often than others. "
      "Memorize the ones that appear most often.\n";
  const std::string question = "Question: What are the 10 most common words in the above list?";
  const std::string prefix = " Answer: The top 10 words that appear most often in the list are:";
  PythonRandom random(request.seed);
  const bool small = request.prompt_tokens < 3900;  // RULER's lists for 4096 tokens with the answer
  const bool pairs = request.prompt_tokens > 12'000;  // the single words cannot fill such a prompt
  const auto [example, example_answers] =
      wordList(random, small ? WordList{20, 3, 1, pairs} : WordList{40, 10, 3, pairs});
  const auto size = static_cast<size_t>(std::max<int64_t>(request.size, 0));
  const auto [list, answers] =
      wordList(random, small ? WordList{size, 6, 1, pairs} : WordList{size, 30, 3, pairs});
  Draft draft;
  draft.prompt = before + example + "\n" + question + prefix;
  for (size_t i = 0; i < example_answers.size(); ++i) {
    draft.prompt += " " + std::to_string(i + 1) + ". " + example_answers[i];
  }
  draft.prompt += "\n" + before + list + "\n";
  draft.question_start = draft.prompt.size();
  draft.prompt += question;
  draft.answer_prefix = prefix;
  draft.answers = answers;
  return draft;
}

// ---- coded words ----

// Draws words by Zipf's law with exponent 2: rank k occurs size k^-2 / zeta(2) times, rounded down.
// The first rank is dots, the next three are the answer. None if ranks 4 and 5 are equally
// frequent.
std::optional<Draft> codedWordsDraft(const DraftRequest& request) {
  constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6;
  constexpr size_t kAsked = 3;
  const auto ranks = static_cast<size_t>(std::max<int64_t>(request.prompt_tokens / 50, 0));
  if (ranks < kAsked + 2) return std::nullopt;
  PythonRandom random(request.seed);
  std::set<std::string> used;
  std::vector<std::string> words = {"..."};
  while (words.size() < ranks) {
    words.push_back(fresh(&used, [&] { return randomLetters(random, 6, 'a'); }));
  }
  const auto times = [&](size_t rank) {
    const double share = 1 / (kZeta2 * static_cast<double>(rank) * static_cast<double>(rank));
    return static_cast<size_t>(static_cast<double>(std::max<int64_t>(request.size, 0)) * share);
  };
  if (times(kAsked + 1) == times(kAsked + 2)) return std::nullopt;
  std::vector<std::string> text;
  for (size_t rank = 1; rank <= ranks; ++rank)
    text.insert(text.end(), times(rank), words[rank - 1]);
  random.shuffle(text);
  Draft draft;
  draft.prompt =
      "Read the following coded text and track the frequency of each coded word. Find the three "
      "most frequently appeared coded words. " +
      joined(text, " ") + "\n";
  draft.question_start = draft.prompt.size();
  draft.prompt +=
      "Question: Do not provide any explanation. Please ignore the dots '....'. What are the three "
      "most frequently appeared words in the above coded text?";
  draft.answer_prefix =
      " Answer: According to the coded text above, the three most frequently appeared words are:";
  draft.answers = {words.begin() + 1, words.begin() + 1 + kAsked};
  return draft;
}

std::optional<Draft> rulerDraft(const DraftRequest& request) {
  static const std::map<std::string_view, Niah> needles = {
      {"niah_single_1", {}},
      {"niah_multikey_2", {.needle_lines = true}},
      {"niah_multikey_3", {.needle_lines = true, .uuids = true}},
      {"niah_multivalue", {.values = 4}},
      {"niah_multiquery", {.keys = 4}}};
  if (const auto found = needles.find(request.task); found != needles.end()) {
    return niahDraft(found->second, request);
  }
  if (request.task == "vt") return variableDraft(request);
  if (request.task == "cwe") return commonWordsDraft(request);
  return codedWordsDraft(request);
}

}  // namespace

Suite rulerSuite() {
  return {.name = "ruler",
          .generated = {"niah_single_1", "niah_multikey_2", "niah_multikey_3", "niah_multivalue",
                        "niah_multiquery", "vt", "cwe", "fwe"},
          .draft = rulerDraft,
          .read = readRuler,
          .context_holds_answer = true};
}

}  // namespace allot
