// The part of MemoryStore that restores a run from an export.
#include "store/checks.h"
#include "store/memory/memory_store.h"

namespace allot {

Status MemoryStore::checkImport() const {
  if (import_ != 0 && server_->import_ == import_) return {};
  return tl::unexpected(store::otherImport("in memory"));
}

Status MemoryStore::beginImport() {
  if (server_->spec_) return tl::unexpected(store::importOverRun("in memory"));
  MemoryServer fresh = server_->withoutGathered();
  ++fresh.last_import_;
  fresh.import_ = fresh.last_import_;
  *server_ = std::move(fresh);
  import_ = server_->import_;
  return {};
}

Status MemoryStore::importHistory(const std::vector<v1::IterationRecord>& records) {
  ALLOT_TRY(store::checkImported(records));
  ALLOT_TRY(checkImport());
  for (const auto& record : records) {
    auto& history = server_->history_;
    const auto found = history.find(record.version());
    const bool repeated =
        found != history.end() && found->second.SerializeAsString() == record.SerializeAsString();
    if (!repeated && !history.empty() && history.rbegin()->first >= record.version())
      return tl::unexpected(
          store::importOutOfOrder("in memory", std::to_string(record.version()) + "-0"));
    history.emplace(record.version(), record);
    for (const auto& result : record.results()) {
      server_->seen_.insert(result.result_id());
      server_->counted_tickets_.insert(result.ticket());
    }
  }
  return {};
}

Status MemoryStore::importEvaluations(const std::vector<v1::EvaluationResult>& results) {
  ALLOT_TRY(store::checkImported(results));
  ALLOT_TRY(checkImport());
  for (const auto& result : results)
    if (!server_->units_done_.contains(result.unit().unit_id())) {
      server_->injectEvaluation(result, "");
      server_->accepted_[result.unit().unit_id()] = server_->last_evaluation_;
    }
  return {};
}

Status MemoryStore::endImport(const RunImage& image) {
  ALLOT_TRY(store::checkImage(image));
  if (server_->spec_) {
    // A repeated call.
    if (import_ != 0 && server_->made_by_import_ == import_) return {};
    return tl::unexpected(store::importOverRun("in memory"));
  }
  ALLOT_TRY(checkImport());
  const uint64_t version = image.state ? image.state->policy().version() : 0;
  const auto& history = server_->history_;
  const uint64_t last = history.empty() ? 0 : history.rbegin()->first;
  if (history.size() != version || last != version)
    return tl::unexpected(
        store::importIncomplete("in memory", std::to_string(last) + "-0", version));
  if (image.model) server_->model_ = image.model;
  if (image.state) publish(image.state->policy(), *image.state);
  server_->next_ticket_ = image.next_ticket;
  for (const auto& unit : image.open_units)
    if (!server_->units_done_.contains(unit.unit_id()))
      server_->units_.try_emplace(unit.unit_id(), MemoryServer::Unit{unit});
  server_->control_ = image.control;
  server_->spec_ = image.spec;
  server_->made_by_import_ = import_;
  server_->import_ = 0;
  return {};
}

}  // namespace allot
