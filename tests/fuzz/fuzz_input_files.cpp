// libFuzzer's way in: see input_files.h. FUZZ_KINDS=eq: these kinds of file alone.
#include "tests/fuzz/input_files.h"
#include "tests/fuzz/kinds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (allot::fuzz::isWanted(data, size)) allot::fuzz::feedInputFile(data, size);
  return 0;
}
