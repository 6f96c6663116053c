#pragma once
// The graders of LongBench (v1; Bai et al. 2023: metrics.py and eval.py) and of InfiniteBench
// (Zhang et al. 2024: compute_scores.py), rule by rule. Their regular expressions' \d is a digit of
// ASCII here. Pure functions, any thread.
#include <string_view>

#include "worker/tasks/graders.h"

namespace allot {

// ---- LongBench; of several references the best counts.

double gradeF1(const Expected& expected, std::string_view completion);
double gradeRougeL(const Expected& expected, std::string_view completion);
// Of the first line that is not empty, as of TriviaQA and SAMSum.
double gradeF1OfLine(const Expected& expected, std::string_view completion);
double gradeRougeLOfLine(const Expected& expected, std::string_view completion);
// editSimilarity() of the first line that is no comment and no mark of code (no `, #, //).
double gradeLongbenchCode(const Expected& expected, std::string_view completion);
// 1 over the number of classes that the first line names, if the right one is among them; those
// that are part of the right one's name are left out.
double gradeLongbenchClass(const Expected& expected, std::string_view completion);
// The share of the answer's numbers that are right.
double gradeLongbenchCount(const Expected& expected, std::string_view completion);
// The same, of references as "Paragraph 3".
double gradeLongbenchParagraph(const Expected& expected, std::string_view completion);

// ---- InfiniteBench; but for rouge-lsum and f1 the first reference counts, or where there is a
// choice the first two: what is right, and its letter.

double gradeRougeLsum(const Expected& expected, std::string_view completion);
double gradeInfinitebenchNumber(const Expected& expected, std::string_view completion);
double gradeInfinitebenchWord(const Expected& expected, std::string_view completion);
double gradeInfinitebenchName(const Expected& expected, std::string_view completion);
double gradeInfinitebenchChoice(const Expected& expected, std::string_view completion);
double gradeInfinitebenchDebug(const Expected& expected, std::string_view completion);
double gradeInfinitebenchRun(const Expected& expected, std::string_view completion);
double gradeInfinitebenchFind(const Expected& expected, std::string_view completion);

}  // namespace allot
