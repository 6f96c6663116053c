// libFuzzer's way in: see harness.h.
#include "tests/fuzz/harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  allot::fuzz::feed(data, size);
  return 0;
}
