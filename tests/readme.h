#pragma once
// What a document of the repository says, for tests that hold it to the code. Any thread.
#include <string>

#include "tests/temp_folder.h"

namespace allot {

// A file of the repository.
inline std::string readSource(const std::string& name) {
  return readFile(std::string(ALLOT_SOURCE_DIR) + "/" + name);
}

// What stands between two markers.
inline std::string between(const std::string& text, const std::string& begin,
                           const std::string& end) {
  const size_t from = text.find(begin);
  const size_t to = from == std::string::npos ? from : text.find(end, from + begin.size());
  if (to == std::string::npos) return "(not found)";
  return text.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace allot
