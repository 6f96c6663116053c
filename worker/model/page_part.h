#pragma once
// PagePart: one array of one layer of a KvPool, for copies of whole pages. A value; any thread.
#include <cstddef>
#include <cstdint>

namespace allot {

struct PagePart {
  uint8_t* first = nullptr;  // page 0; the others follow without gaps
  size_t bytes = 0;          // of one page; a multiple of 4
  size_t offset = 0;         // of this part in the copy of a page
};

}  // namespace allot
