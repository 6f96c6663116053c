// libFuzzer's way in: see model_files.h. FUZZ_KINDS=sg: these kinds of file alone.
#include "tests/fuzz/kinds.h"
#include "tests/fuzz/model_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (allot::fuzz::isWanted(data, size)) allot::fuzz::feedModelFile(data, size);
  return 0;
}
