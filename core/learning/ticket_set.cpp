#include "core/learning/ticket_set.h"

#include <algorithm>

namespace allot {
namespace {

size_t byteOf(uint64_t ticket) { return ticket % TicketSet::kChunkTickets / 8; }
char maskOf(uint64_t ticket) { return static_cast<char>(1 << ticket % 8); }

}  // namespace

bool TicketSet::insert(uint64_t ticket) {
  if (contains(ticket)) return false;
  std::string& bits = chunks_[ticket / kChunkTickets];
  bits.resize(kChunkBytes, '\0');
  bits[byteOf(ticket)] = static_cast<char>(bits[byteOf(ticket)] | maskOf(ticket));
  return true;
}

bool TicketSet::contains(uint64_t ticket) const {
  const auto chunk = chunks_.find(ticket / kChunkTickets);
  return chunk != chunks_.end() && (chunk->second[byteOf(ticket)] & maskOf(ticket)) != 0;
}

void TicketSet::insertChunk(uint64_t number, const std::string& bits) {
  std::string& mine = chunks_[number];
  mine.resize(kChunkBytes, '\0');
  for (size_t i = 0; i < std::min(bits.size(), kChunkBytes); ++i) {
    mine[i] = static_cast<char>(mine[i] | bits[i]);
  }
}

}  // namespace allot
