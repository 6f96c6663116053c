#pragma once
// TicketSet: which tickets have counted, a bit each. A value; one thread.
//
// Tickets are handed out one after the other, so that chunks of them are dense: ten million take
// about 3 MB. Whoever makes tickets up spends one chunk on each, no more.
#include <cstdint>
#include <map>
#include <string>

namespace allot {

class TicketSet {
 public:
  // Tickets in one chunk, which is a text of as many bits: ticket t is bit t % 8 of byte
  // t % 512 / 8 of chunk t / 512.
  static constexpr uint64_t kChunkTickets = 512;
  static constexpr size_t kChunkBytes = kChunkTickets / 8;

  // False: it was there before.
  bool insert(uint64_t ticket);
  bool contains(uint64_t ticket) const;
  // Adds what another set has in one chunk; bytes beyond a chunk's are left out.
  void insertChunk(uint64_t number, const std::string& bits);
  // By number; none of them is empty.
  const std::map<uint64_t, std::string>& chunks() const { return chunks_; }

 private:
  std::map<uint64_t, std::string> chunks_;
};

}  // namespace allot
