// libFuzzer's way in: see model_files.h. FUZZ_KINDS=sg: these kinds of file alone, so that a quick
// reader does not take a slow one's time.
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/model_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const kinds = std::getenv("FUZZ_KINDS");
  if (kinds && size > 0 &&
      std::string_view(kinds).find(static_cast<char>(data[0])) == std::string_view::npos) {
    return 0;
  }
  allot::fuzz::feedModelFile(data, size);
  return 0;
}
