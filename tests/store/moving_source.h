#pragma once
// A run that goes on while it is read.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "store/archive/run_source.h"

namespace allot::test {

// A store's source that calls `head_read` after its head is read, and `records_next` before each
// reading of records.
class MovingSource final : public RunSource {
 public:
  MovingSource(
      RunReader* store, std::string run_id, std::function<void()> head_read,
      std::function<void()> records_next = [] {})
      : source_(store, std::move(run_id)),
        head_read_(std::move(head_read)),
        records_next_(std::move(records_next)) {}

  Result<RunHead> readHead() override {
    auto head = source_.readHead();
    head_read_();
    return head;
  }
  Result<std::vector<v1::IterationRecord>> nextRecords() override {
    records_next_();
    return source_.nextRecords();
  }
  Result<std::vector<v1::EvaluationResult>> nextEvaluations() override {
    return source_.nextEvaluations();
  }
  Status checkEnd() override { return source_.checkEnd(); }
  std::string name() const override { return source_.name(); }

 private:
  StoreSource source_;
  std::function<void()> head_read_, records_next_;
};

}  // namespace allot::test
