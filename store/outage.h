#pragma once
// Outage: the reasons for which a store does not answer, so that each is logged once. A reason may
// change: a server that refuses connections comes up and shows a certificate for another name. One
// thread.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace allot {

class Outage {
 public:
  // Returns true if the reason was not given before in this outage, and few others were.
  bool isNew(const std::string& reason) {
    const bool known = std::find(reasons_.begin(), reasons_.end(), reason) != reasons_.end();
    if (known || reasons_.size() == kMostReasons) return false;
    reasons_.push_back(reason);
    return true;
  }
  // Ends the outage. Returns true if there was one.
  bool end() {
    const bool was = !reasons_.empty();
    reasons_.clear();
    return was;
  }

 private:
  static constexpr size_t kMostReasons = 8;
  std::vector<std::string> reasons_;
};

}  // namespace allot
