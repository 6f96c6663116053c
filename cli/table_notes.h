#pragma once
// The sentences under tables of accuracies and differences: how the intervals were computed, and
// what the mark of Holm's rule says. One thread.
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

namespace allot {

// Follows a difference that also stands by Holm's rule.
inline constexpr char kHolmMark[] = " *";

class TableNotes {
 public:
  // Adds the name of an accuracy's interval; "": none.
  void addAccuracy(std::string_view interval) { accuracies_.emplace(interval); }
  // Adds a difference as differenceView() writes it, or null. family: what it is one of, as "with
  // dense".
  void addDifference(const nlohmann::json& difference, const std::string& family);
  // Returns a line for each note; "" if nothing is to be said.
  std::string text() const;

 private:
  std::set<std::string> accuracies_, differences_;
  std::map<std::string, uint64_t> families_;  // sizes
};

// Returns the mark, or "" if the difference has none.
std::string holmMark(const nlohmann::json& difference);

}  // namespace allot
