#pragma once
// The graders of LongBench (v1; Bai et al. 2023: metrics.py and eval.py) and of InfiniteBench
// (Zhang et al. 2024: compute_scores.py), rule by rule. \d in their regular expressions is an ASCII
// digit here. Pure functions, any thread.
#include <string_view>

#include "worker/tasks/graders.h"

namespace allot {

// ---- LongBench: the best of several references counts.

double gradeF1(const Expected& expected, std::string_view completion);
double gradeRougeL(const Expected& expected, std::string_view completion);
// Grade the first line that is not empty, as for TriviaQA and SAMSum.
double gradeF1OfLine(const Expected& expected, std::string_view completion);
double gradeRougeLOfLine(const Expected& expected, std::string_view completion);
// Returns editSimilarity() of the first line without marks of comments or code (no `, #, //).
double gradeLongbenchCode(const Expected& expected, std::string_view completion);
// Returns 1 over the number of classes that the first line names, or 0 if the right one is not
// among them. Classes whose name is part of the right one's name do not count, except those that
// metrics.py skips by mistake.
double gradeLongbenchClass(const Expected& expected, std::string_view completion);
// Returns the share of the answer's numbers that are right.
double gradeLongbenchCount(const Expected& expected, std::string_view completion);
// Returns the share of right numbers for references like "Paragraph 3".
double gradeLongbenchParagraph(const Expected& expected, std::string_view completion);

// ---- InfiniteBench: rouge-lsum takes the best of several references, the other graders the first.
// Choice and debug have two references: the right text and its letter.

double gradeRougeLsum(const Expected& expected, std::string_view completion);
double gradeInfinitebenchNumber(const Expected& expected, std::string_view completion);
double gradeInfinitebenchWord(const Expected& expected, std::string_view completion);
double gradeInfinitebenchName(const Expected& expected, std::string_view completion);
double gradeInfinitebenchChoice(const Expected& expected, std::string_view completion);
double gradeInfinitebenchDebug(const Expected& expected, std::string_view completion);
double gradeInfinitebenchRun(const Expected& expected, std::string_view completion);
double gradeInfinitebenchFind(const Expected& expected, std::string_view completion);

}  // namespace allot
