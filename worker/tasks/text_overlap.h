#pragma once
// The overlap of two texts, by the measures of long-context benchmarks. Pure functions, any thread.
//
// Each measure is 0..1. It equals the result of its well-known Python implementation (a hundredth
// of fuzz.ratio) up to the rounding of doubles, on the cases of tests/golden/make_grader_cases.py.
// Bytes that are not UTF-8 count as characters. The time is at worst the product of the lengths.
// rougeL and rougeLsum ignore the rest of a text behind kMostUnits words. editSimilarity ignores it
// behind kMostUnits characters unless the texts are equal.
#include <cstddef>
#include <string_view>

namespace allot {

inline constexpr size_t kMostUnits = 4096;

// Returns SQuAD's F1: the harmonic mean of precision and recall of words, in lower case, without
// ASCII's punctuation and the articles a, an, the.
double tokenF1(std::string_view prediction, std::string_view reference);

// Returns ROUGE-L's F as the package `rouge` (1.0.1; LongBench) computes it. Sentences end at full
// stops, and words are compared verbatim. The score is computed from the set of words in the union
// of the longest common subsequences of all pairs of sentences. The package raises RecursionError
// if a pair of sentences has more words than Python's stack allows. LongBench then gives 0; this
// function has no such limit.
double rougeL(std::string_view prediction, std::string_view reference);

// Returns ROUGE-Lsum's F as the package `rouge_score` (0.1.2, without stemming; InfiniteBench)
// computes it: sentences are lines, words are runs of a-z and 0-9 in lower case.
double rougeLsum(std::string_view prediction, std::string_view reference);

// Returns a hundredth of fuzz.ratio of the packages fuzzywuzzy (with its C part) and thefuzz. It is
// twice the longest common subsequence of characters over both lengths, rounded to a multiple of
// 0.01. Without its C part fuzzywuzzy uses difflib's ratio, which may be less.
double editSimilarity(std::string_view a, std::string_view b);

}  // namespace allot
