#pragma once
// Counts of one KV head of one row while its heads are decoded. Private to kernels/cpu.
#include <cstdint>

#include "allot/kernels/decode.h"
#include "kernels/cpu/methods.h"

namespace allot::kernels {

// Fills the statistics that the caller asked for. Made for one (row, KV head); heads report to it
// one by one, then finish() adds to the row's sums, exact in any order of threads.
class GroupCounts {
 public:
  // Of keys first..n-1. `bits`: 2 * (n / 64 + 1) words of any content.
  GroupCounts(const PagedKv& kv, int first, int n, uint64_t* bits);

  // A head that reads nothing.
  void silent(const DecodeOutputs& out, const DecodeInputs& in, int row, int head);
  // A head that reads every value from position `first` on; `known`: its scores are exact, and so
  // is its output.
  void exact(const DecodeOutputs& out, const DecodeInputs& in, int row, int head, int first,
             uint64_t key_bytes, bool known);
  // A head that reads what it chose. `key_bytes`: the score stage's.
  void chosen(const DecodeOutputs& out, const DecodeInputs& in, int row, int head, const Head& at,
              const Selection& selection, uint64_t key_bytes, bool error_known,
              const float* output);
  // What score stages read, once for all heads of the group that have one: every exact key from
  // position `first` on, or so many bytes of something else, the same for all such heads.
  void readKeys(const DecodeOutputs& out, int first);
  void readStage(uint64_t bytes) { stage_bytes_ = bytes; }
  void finish(const DecodeOutputs& out, const DecodeInputs& in, int row, int kv_head);

 private:
  void mark(const Selection& selection);
  // Clears the bits before their first use.
  void beginMarks();
  // half 0: value rows; 1: keys.
  void markFrom(int first, int half);
  // The head's words of out.value_rows; null where nobody asked.
  uint64_t* readRows(const DecodeOutputs& out, int head) const;
  uint64_t marked(int half) const;

  const PagedKv& kv_;
  int n_;  // positions that bits_ has; the keys are those from first_ on
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
