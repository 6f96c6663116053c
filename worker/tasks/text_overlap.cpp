#include "worker/tasks/text_overlap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/utf8.h"
#include "worker/model/nfc.h"
#include "worker/tasks/answer_text.h"

namespace allot {
namespace {

// Numbers words, so that comparing two of them is cheap.
class WordNumbers {
 public:
  int of(std::string_view word) {
    return numbers_.try_emplace(std::string(word), static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, int> numbers_;
};

using WordSequence = std::vector<int>;

// The sequence along which the way back from two ends steps if both are equally good.
enum class Tie { kAlongFirst, kAlongSecond };

// Returns the places in `a` of a longest common subsequence, the last one first, as found by the
// way back through the table of lengths.
std::vector<size_t> commonPlaces(const WordSequence& a, const WordSequence& b, Tie tie) {
  const size_t width = b.size() + 1;
  std::vector<uint16_t> lengths((a.size() + 1) * width);
  for (size_t i = 1; i <= a.size(); ++i) {
    uint16_t* const row = lengths.data() + i * width;
    const uint16_t* const above = row - width;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = a[i - 1] == b[j - 1] ? static_cast<uint16_t>(above[j - 1] + 1)
                                    : std::max(above[j], row[j - 1]);
    }
  }
  std::vector<size_t> places;
  for (size_t i = a.size(), j = b.size(); i > 0 && j > 0;) {
    const uint16_t without_a = lengths[(i - 1) * width + j], without_b = lengths[i * width + j - 1];
    if (a[i - 1] == b[j - 1]) {
      places.push_back(i - 1);
      --i, --j;
    } else if (tie == Tie::kAlongFirst ? without_a >= without_b : without_a > without_b) {
      --i;
    } else {
      --j;
    }
  }
  return places;
}

// Splits a text into sentences of words, at most kMostUnits in all.
class Sentences {
 public:
  explicit Sentences(WordNumbers* numbers) : numbers_(*numbers) {}

  void begin() { all_.emplace_back(); }
  void add(std::string_view word) {
    if (words_ == kMostUnits) return;
    ++words_;
    all_.back().push_back(numbers_.of(word));
  }
  const std::vector<WordSequence>& all() const { return all_; }
  size_t words() const { return words_; }
  std::map<int, size_t> counts() const {
    std::map<int, size_t> counts;
    for (const WordSequence& sentence : all_) {
      for (const int word : sentence) ++counts[word];
    }
    return counts;
  }

 private:
  WordNumbers& numbers_;
  std::vector<WordSequence> all_;
  size_t words_ = 0;
};

// Splits a text as the package `rouge` does: a sentence of blanks has one word, the empty one.
Sentences sentencesOf(std::string_view text, WordNumbers* numbers) {
  Sentences sentences(numbers);
  for (const std::string_view part : splitAt(text, '.')) {
    if (part.empty()) continue;
    sentences.begin();
    const auto words = pythonWords(part);
    if (words.empty()) sentences.add("");
    for (const std::string_view word : words) sentences.add(word);
  }
  return sentences;
}

Sentences linesOf(std::string_view text, WordNumbers* numbers) {
  const std::string low = lowerCase(text);
  Sentences sentences(numbers);
  const auto isWord = [](char c) { return isAsciiDigit(c) || (c >= 'a' && c <= 'z'); };
  for (const std::string_view line : splitAt(low, '\n')) {
    if (line.empty()) continue;
    sentences.begin();
    for (size_t at = 0; at < line.size();) {
      const auto end =
          std::find_if_not(line.begin() + static_cast<std::ptrdiff_t>(at), line.end(), isWord);
      const auto length = static_cast<size_t>(end - line.begin()) - at;
      if (length > 0) sentences.add(line.substr(at, length));
      at += std::max<size_t>(length, 1);
    }
  }
  return sentences;
}

// Requires: run is a whole word.
bool isArticle(std::string_view run) { return run == "a" || run == "an" || run == "the"; }

// Returns the words that SQuAD's script compares.
std::vector<std::string> squadWords(std::string_view text) {
  std::string plain = lowerCase(text);
  std::erase_if(plain, [](char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  });
  std::string kept, run;
  const auto endRun = [&] {
    kept += isArticle(run) ? " " : run;
    run.clear();
  };
  for (const std::string_view character : charactersOf(plain)) {
    const bool word = character.size() == 1 ? isAsciiDigit(character[0]) ||
                                                  (character[0] >= 'a' && character[0] <= 'z')
                                            : isLetterOrNumber(utf8Code(character));
    if (word) {
      run += character;
    } else {
      endRun();
      kept += character;
    }
  }
  endRun();
  std::vector<std::string> words;
  for (const std::string_view word : pythonWords(kept)) words.emplace_back(word);
  return words;
}

}  // namespace

double tokenF1(std::string_view prediction, std::string_view reference) {
  const auto given = squadWords(prediction), expected = squadWords(reference);
  std::map<std::string_view, size_t> left;
  for (const std::string& word : expected) ++left[word];
  size_t same = 0;
  for (const std::string& word : given) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++same;
  }
  if (same == 0) return 0;
  const double precision = static_cast<double>(same) / static_cast<double>(given.size());
  const double recall = static_cast<double>(same) / static_cast<double>(expected.size());
  return 2 * precision * recall / (precision + recall);
}

double rougeL(std::string_view prediction, std::string_view reference) {
  WordNumbers numbers;
  const Sentences given = sentencesOf(prediction, &numbers);
  const Sentences expected = sentencesOf(reference, &numbers);
  if (given.all().empty() || expected.all().empty()) return 0;
  std::set<int> shared;
  for (const WordSequence& sentence : expected.all()) {
    for (const WordSequence& candidate : given.all()) {
      for (const size_t place : commonPlaces(sentence, candidate, Tie::kAlongSecond)) {
        shared.insert(sentence[place]);
      }
    }
  }
  const auto count = static_cast<double>(shared.size());
  const double recall = count / static_cast<double>(expected.counts().size());
  const double precision = count / static_cast<double>(given.counts().size());
  return 2 * (precision * recall / (precision + recall + 1e-8));
}

double rougeLsum(std::string_view prediction, std::string_view reference) {
  WordNumbers numbers;
  const Sentences given = linesOf(prediction, &numbers);
  const Sentences expected = linesOf(reference, &numbers);
  if (given.words() == 0 || expected.words() == 0) return 0;
  auto given_left = given.counts(), expected_left = expected.counts();
  size_t hits = 0;
  for (const WordSequence& sentence : expected.all()) {
    std::set<size_t> places;  // union over the sentences
    for (const WordSequence& candidate : given.all()) {
      for (const size_t place : commonPlaces(sentence, candidate, Tie::kAlongFirst)) {
        places.insert(place);
      }
    }
    for (const size_t place : places) {
      size_t& in_given = given_left[sentence[place]];
      size_t& in_expected = expected_left[sentence[place]];
      if (in_given == 0 || in_expected == 0) continue;
      --in_given, --in_expected, ++hits;
    }
  }
  if (hits == 0) return 0;
  const double recall = static_cast<double>(hits) / static_cast<double>(expected.words());
  const double precision = static_cast<double>(hits) / static_cast<double>(given.words());
  return 2 * precision * recall / (precision + recall);
}

double editSimilarity(std::string_view a, std::string_view b) {
  if (a == b) return 1;
  auto first = charactersOf(a), second = charactersOf(b);
  if (first.empty() || second.empty()) return 0;
  first.resize(std::min(first.size(), kMostUnits));
  second.resize(std::min(second.size(), kMostUnits));
  std::vector<size_t> row(second.size() + 1);
  for (const std::string_view character : first) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= second.size(); ++j) {
      const size_t above = row[j];
      row[j] = character == second[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  const double share =
      2 * static_cast<double>(row.back()) / static_cast<double>(first.size() + second.size());
  return std::nearbyint(100 * share) / 100;
}

}  // namespace allot
