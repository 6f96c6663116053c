#pragma once
// Writes the tables of an export, for people and spreadsheets. Part of store/archive; pure
// functions, any thread.
#include <string>
#include <string_view>

#include "allot/v1/policy.pb.h"
#include "allot/v1/result.pb.h"

namespace allot::archive {

// Returns a text from outside as one cell (RFC 4180). Control characters become spaces. A text that
// a spreadsheet would read as a formula gets an apostrophe in front.
std::string csvCell(std::string_view text);

// Return header lines and rows, each with its newline. Reading the numbers back gives the same
// bits.
std::string updatesHeader(int layers);
std::string updatesRow(const v1::IterationRecord& record);
std::string episodesHeader();
std::string episodesRows(const v1::IterationRecord& record);
std::string evaluationsHeader();
std::string evaluationsRow(const v1::EvaluationResult& result);

}  // namespace allot::archive
