#pragma once
// How much of a text another one has: the measures that benchmarks of long contexts are graded by.
//
// Each is 0..1 and gives what its well-known implementation in Python gives, to the rounding of
// doubles (tests/golden/make_grader_cases.py compares them). Bytes that are not UTF-8 are
// characters of their own. Time: by the product of the lengths at worst; of a text longer than
// kMostUnits words (editSimilarity: characters) the rest is not looked at, which no answer of 4096
// tokens and no published reference reaches. Pure functions, any thread.
#include <cstddef>
#include <string_view>

namespace allot {

inline constexpr size_t kMostUnits = 4096;

// SQuAD's F1: the harmonic mean of precision and recall of words, in lower case, without ASCII's
// punctuation and the articles a, an, the.
double tokenF1(std::string_view prediction, std::string_view reference);

// ROUGE-L's F of the package `rouge` (1.0.1; LongBench): sentences end at full stops, words are
// told apart as they stand, and what counts is the set of words in the union of the longest common
// subsequences over all pairs of sentences. That package gives up (0) where a pair of sentences has
// more words than Python's stack has room for; here there is no such end.
double rougeL(std::string_view prediction, std::string_view reference);

// ROUGE-Lsum's F of the package `rouge_score` (0.1.2, without stemming; InfiniteBench): sentences
// are lines, words are runs of a-z and 0-9 in lower case.
double rougeLsum(std::string_view prediction, std::string_view reference);

// fuzz.ratio of the packages fuzzywuzzy (with its C part) and thefuzz: twice the longest common
// subsequence of characters over both lengths, in whole percent, of which the one is 0.01. Without
// its C part fuzzywuzzy takes difflib's ratio, which may be less.
double editSimilarity(std::string_view a, std::string_view b);

}  // namespace allot
