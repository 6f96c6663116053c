#pragma once
// TicketSet: the tickets whose results have counted, one bit each. A value; one thread. Tickets are
// handed out one after the other, so that chunks are dense: ten million take about 3 MB. A made-up
// ticket costs one chunk.
#include <cstdint>
#include <map>
#include <string>

namespace allot {

class TicketSet {
 public:
  // Tickets in one chunk. Ticket t is bit t % 8 of byte t % 512 / 8 of chunk t / 512.
  static constexpr uint64_t kChunkTickets = 512;
  static constexpr size_t kChunkBytes = kChunkTickets / 8;

  // Returns false if the ticket was in the set before.
  bool insert(uint64_t ticket);
  bool contains(uint64_t ticket) const;
  // Adds the tickets of one chunk. Bytes beyond kChunkBytes are ignored.
  void insertChunk(uint64_t number, const std::string& bits);
  // Returns the chunks by number, each of kChunkBytes bytes.
  const std::map<uint64_t, std::string>& chunks() const { return chunks_; }

 private:
  std::map<uint64_t, std::string> chunks_;
};

}  // namespace allot
