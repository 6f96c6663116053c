#pragma once
// The statistics of one KV head of one row while its query heads are decoded. Private to
// kernels/cpu. One thread owns a GroupCounts.
#include <cstdint>

#include "allot/kernels/decode.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

// Fills the statistics that the caller asked for, for one row and KV head. The KV head's query
// heads report one by one. Then finish() adds to the row's sums, which are integers, so that KV
// heads may finish in any order, on any threads.
class GroupCounts {
 public:
  // `bits` is scratch of 2 * (n / 64 + 1) words for a row of n keys.
  GroupCounts(const PagedKv& kv, const DecodeInputs& in, const DecodeOutputs& out, int row,
              int kv_head, uint64_t* bits);

  // Reports a head that reads no value.
  void silent(int head);
  // Reports a head that reads every value from position `first` on. `key_bytes`: what the score
  // stage reads for this head alone. `known`: the head's scores are exact.
  void exact(int head, int first, uint64_t key_bytes, bool known);
  // Reports a head that reads its selection. `key_bytes` as above; `mean` [head_dim] is the row's
  // mean value, null unless the selection uses it.
  void chosen(int head, const Head& at, const Selection& selection, uint64_t key_bytes,
              bool error_known, const float* output, const float* mean);
  // Report reads of the score stage that the heads share: every exact key from position `first` on,
  // or `bytes` bytes of a shadow or of features. A later readStage() replaces an earlier one.
  void readKeys(int first);
  void readStage(uint64_t bytes) { stage_bytes_ = bytes; }
  // Writes the group's statistics and adds them to the row's.
  void finish();

 private:
  void mark(const Selection& selection);
  // Clears the bits before their first use.
  void beginMarks();
  // Sets the bits from `first` on: of value rows (half 0) or of keys (half 1).
  void markFrom(int first, int half);
  // Returns true if the caller asked for statistics of rows or groups.
  bool wanted() const { return out_.statistics || out_.group_statistics; }
  // Return the head's statistics, and its words of DecodeOutputs::value_rows; null if not asked
  // for.
  HeadStatistics* entryOf(int head) const;
  uint64_t* readRows(int head) const;
  // Returns how many bits are set: of value rows (half 0) or of keys (half 1).
  uint64_t marked(int half) const;

  const PagedKv& kv_;
  const DecodeInputs& in_;
  const DecodeOutputs& out_;
  int row_, kv_head_;
  int n_;          // positions of bits_
  int first_;      // the keys are first_..n_-1
  uint64_t keys_;  // their number
  uint64_t row_bytes_;
  uint64_t* bits_;         // value rows read, then exact keys
  bool all_ = false;       // some head reads every value
  bool all_keys_ = false;  // some head reads every exact key
  bool marked_ = false;    // bits_ are cleared and in use
  uint64_t stage_bytes_ = 0, extra_key_bytes_ = 0;
  uint64_t draws_ = 0, unique_ = 0;
  GroupStatistics group_;
};

}  // namespace allot::kernels
