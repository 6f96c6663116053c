#pragma once
// The statistics of one KV head of one row while its query heads are decoded. Private to
// kernels/cpu. One thread owns a GroupCounts.
#include <cstdint>

#include "allot/kernels/decode.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

// Fills the statistics that the caller asked for, for one row and KV head. Its query heads report
// one by one. Then finish() adds to the row's sums, which are integers, so that KV heads may finish
// in any order, on any threads.
class GroupCounts {
 public:
  // For keys first..n-1. `bits` is scratch of 2 * (n / 64 + 1) words.
  GroupCounts(const PagedKv& kv, int first, int n, uint64_t* bits);

  // Reports a head that reads no value.
  void silent(const DecodeOutputs& out, const DecodeInputs& in, int row, int head);
  // Reports a head that reads every value from position `first` on. `key_bytes`: the score stage's,
  // if the head were alone. `known`: the head's scores are exact.
  void exact(const DecodeOutputs& out, const DecodeInputs& in, int row, int head, int first,
             uint64_t key_bytes, bool known);
  // Reports a head that reads its selection. `key_bytes` as above.
  void chosen(const DecodeOutputs& out, const DecodeInputs& in, int row, int head, const Head& at,
              const Selection& selection, uint64_t key_bytes, bool error_known,
              const float* output);
  // Report reads of the score stage that the heads share: every exact key from position `first` on,
  // or `bytes` bytes of a shadow or of features. Later bytes replace earlier ones.
  void readKeys(const DecodeOutputs& out, int first);
  void readStage(uint64_t bytes) { stage_bytes_ = bytes; }
  // Writes the group's statistics and adds them to the row's.
  void finish(const DecodeOutputs& out, const DecodeInputs& in, int row, int kv_head);

 private:
  void mark(const Selection& selection);
  // Clears the bits before their first use.
  void beginMarks();
  // Sets the bits from `first` on: of value rows (half 0) or of keys (half 1).
  void markFrom(int first, int half);
  // Returns the head's words of out.value_rows, or null.
  uint64_t* readRows(const DecodeOutputs& out, int head) const;
  uint64_t marked(int half) const;

  const PagedKv& kv_;
  int n_;  // positions of bits_; the keys are those from first_ on
  int first_;
  uint64_t keys_;  // of the row
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
