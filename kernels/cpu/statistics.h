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
  // A head that reads every value; `known`: its scores are exact, and so is its output.
  void exact(const DecodeOutputs& out, const DecodeInputs& in, int row, int head,
             uint64_t key_bytes, bool known);
  // A head that reads what it chose. `key_bytes`: the score stage's.
  void chosen(const DecodeOutputs& out, const DecodeInputs& in, int row, int head, const Head& at,
              const Selection& selection, uint64_t key_bytes, bool error_known,
              const float* output);
  // Key bytes of the score stage, read once for the group.
  void addStage(uint64_t key_bytes) { group_.key_bytes += key_bytes; }
  void finish(const DecodeOutputs& out, const DecodeInputs& in, int row, int kv_head);

 private:
  void mark(const Selection& selection);
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
  bool all_keys_ = false;  // some head reads every exact key beyond the score stage
  bool marked_ = false;    // bits_ are cleared and in use
  uint64_t extra_key_bytes_ = 0;
  uint64_t draws_ = 0, unique_ = 0;
  GroupStatistics group_;
};

}  // namespace allot::kernels
