// libFuzzer's way in: see model_files.h.
#include "tests/fuzz/model_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  allot::fuzz::feedModelFile(data, size);
  return 0;
}
