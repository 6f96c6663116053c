#pragma once
// One of the arrays that pages of a KvPool lie in, for who copies whole pages.
#include <cstddef>
#include <cstdint>

namespace allot {

struct PagePart {
  uint8_t* first = nullptr;  // of page 0; the others follow without gaps
  size_t bytes = 0;          // of one page; a multiple of 4
  size_t offset = 0;         // where a page's copy has this part
};

}  // namespace allot
