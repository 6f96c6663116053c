// The part of MemoryStore with evaluation units. Claims follow claim_units.lua.
#include <algorithm>
#include <tuple>

#include "store/checks.h"
#include "store/memory/memory_store.h"

namespace allot {

// Deleted entries are no longer recorded.
bool MemoryStore::isRecorded(const std::string& unit_id) const {
  const auto done = server_->units_done_.find(unit_id);
  return done != server_->units_done_.end() && server_->recorded_.contains(done->second);
}

void MemoryServer::loseOpenUnits() {
  units_.clear();
  free_units_.clear();
  free_groups_.clear();
}

void MemoryStore::plan(const v1::EvaluationUnit& unit, uint64_t hold_ms) {
  const auto [planned, fresh] = server_->units_.try_emplace(unit.unit_id());
  if (!fresh) return;
  planned->second.unit = unit;
  if (hold_ms > 0)
    planned->second.claimed_until_ms =
        server_->now_ms_() + std::min(hold_ms, store::kLongestClaimMs);
  else
    free(&planned->second);
}

void MemoryStore::free(MemoryServer::Unit* unit) {
  unit->claimed_until_ms = 0;
  unit->holder.clear();
  const std::string group = store::groupOf(unit->unit);
  server_->free_units_.insert(group + "/" + unit->unit.unit_id());
  server_->free_groups_.try_emplace(group, 0);
}

void MemoryStore::freeEnded() {
  const uint64_t now = server_->now_ms_();
  std::vector<MemoryServer::Unit*> ended;
  for (auto& [id, unit] : server_->units_)
    if (unit.claimed_until_ms <= now || unit.claimed_until_ms > now + store::kLongestClaimMs)
      ended.push_back(&unit);
  for (MemoryServer::Unit* unit : ended) free(unit);
}

std::optional<std::string> MemoryStore::bestGroup(const std::vector<uint32_t>& warm) const {
  std::optional<std::string> best;
  // Smallest first: warm before cold, then older, then longest not claimed from, then lower chunk.
  const auto rank = [&](const std::string& group) {
    const size_t colon = group.find(':');
    const std::string chunk = group.substr(colon + 1);
    const bool cold = std::none_of(warm.begin(), warm.end(),
                                   [&](uint32_t w) { return store::paddedChunk(w) == chunk; });
    return std::tuple(cold, group.substr(0, colon), server_->free_groups_.at(group), chunk);
  };
  for (const auto& [group, place] : server_->free_groups_)
    if (!best || rank(group) < rank(*best)) best = group;
  return best;
}

std::vector<MemoryServer::Unit*> MemoryStore::take(const std::string& group, uint64_t count) {
  std::vector<MemoryServer::Unit*> taken;
  const std::string prefix = group + "/";
  auto& listed = server_->free_units_;
  while (taken.size() < count) {
    const auto first = listed.lower_bound(prefix);
    if (first == listed.end() || !first->starts_with(prefix)) {
      server_->free_groups_.erase(group);
      break;
    }
    taken.push_back(&server_->units_.at(first->substr(prefix.size())));
    listed.erase(first);
  }
  return taken;
}

Result<std::vector<v1::EvaluationUnit>> MemoryStore::claimUnits(const ClaimRequest& request) {
  ALLOT_TRY(store::checkClaim(request));
  std::vector<MemoryServer::Unit*> taken;
  std::string group;
  uint64_t place = 0;
  while (taken.empty()) {
    if (server_->free_groups_.empty()) freeEnded();
    const auto best = bestGroup(request.warm);
    if (!best) return std::vector<v1::EvaluationUnit>();
    group = *best;
    for (const auto& [other, its_place] : server_->free_groups_) place = std::max(place, its_place);
    const size_t pieces = 2 * std::max<size_t>(1, server_->workers_.size());
    const size_t share = (server_->free_units_.size() + pieces - 1) / pieces;
    taken = take(group, std::clamp<uint64_t>(request.count, 1, std::max<size_t>(1, share)));
  }
  std::vector<v1::EvaluationUnit> units;
  for (MemoryServer::Unit* unit : taken) {
    unit->claimed_until_ms =
        server_->now_ms_() + std::min(request.lease_ms, store::kLongestClaimMs);
    unit->holder = request.holder;
    units.push_back(unit->unit);
  }
  if (const auto of = server_->free_groups_.find(group); of != server_->free_groups_.end())
    of->second = place + 1;
  std::sort(units.begin(), units.end(),
            [](const auto& a, const auto& b) { return a.unit_id() < b.unit_id(); });
  return units;
}

Status MemoryStore::releaseUnits(const std::string& holder,
                                 const std::vector<v1::EvaluationUnit>& units) {
  ALLOT_TRY(store::checkName(holder, "the holder of a claim"));
  if (units.empty()) return {};
  for (const v1::EvaluationUnit& unit : units) {
    const auto found = server_->units_.find(unit.unit_id());
    if (found != server_->units_.end() && found->second.holder == holder) free(&found->second);
  }
  ++server_->news_;
  return {};
}

Status MemoryStore::planUnits(uint64_t epoch, const std::vector<v1::EvaluationUnit>& units) {
  for (const auto& unit : units) ALLOT_TRY(store::checkUnit(unit));
  ALLOT_TRY(checkEpoch(epoch));
  for (const auto& unit : units) {
    if (server_->accepted_.contains(unit.unit_id())) continue;
    server_->planned_[unit.unit_id()] = unit;
    if (!isRecorded(unit.unit_id())) plan(unit, 0);
  }
  ++server_->news_;
  return {};
}

Status MemoryStore::withdrawUnits(uint64_t epoch) {
  ALLOT_TRY(checkEpoch(epoch));
  server_->planned_.clear();
  server_->loseOpenUnits();
  return {};
}

Result<std::vector<std::string>> MemoryStore::repair(uint64_t epoch, const KeyBounds& bounds) {
  ALLOT_TRY(checkEpoch(epoch));
  std::vector<std::string> mended;
  if (server_->reissued_.size() > bounds.reissued_tickets) {
    server_->reissued_.clear();
    mended.emplace_back("reissue");
  }
  // As lua/repair.lua does it.
  uint64_t behind = 0, handed_out = bounds.tickets_handed_out;
  const auto& chunks = server_->counted_tickets_.chunks();
  if (auto end = chunks.lower_bound((uint64_t{1} << 52) / TicketSet::kChunkTickets);
      end != chunks.begin()) {
    const auto& [newest, bits] = *--end;
    behind = (newest + 1) * TicketSet::kChunkTickets;
    handed_out = std::max(handed_out,
                          newest * TicketSet::kChunkTickets + 8 * bits.find_last_not_of('\0') + 1);
  }
  if (server_->next_ticket_ < handed_out) {
    server_->next_ticket_ = std::max(behind, handed_out);
    mended.emplace_back("tickets");
  }
  if (bounds.end_claims) {
    for (auto& [id, unit] : server_->units_)
      if (unit.claimed_until_ms > 0) free(&unit);
  }
  if (bounds.forget_model) {
    server_->model_.reset();
    mended.emplace_back("model");
  }
  bool lost = false;
  for (const auto& [id, unit] : server_->planned_) {
    if (server_->units_.contains(id) || isRecorded(id)) continue;
    plan(unit, 0);
    lost = true;
  }
  if (lost) {
    mended.emplace_back("units");
    ++server_->news_;
  }
  return mended;
}

Result<uint64_t> MemoryStore::openUnits() { return server_->planned_.size(); }

Result<std::vector<v1::EvaluationUnit>> MemoryStore::listUnits() {
  std::vector<v1::EvaluationUnit> units;
  for (const auto& [id, unit] : server_->planned_) units.push_back(unit);
  return units;
}

Result<PushOutcome> MemoryStore::pushEvaluation(const v1::EvaluationResult& result) {
  ALLOT_ASSIGN(const auto stored, store::toStored(result));
  const std::string& id = result.unit().unit_id();
  ALLOT_TRY(checkSpec());
  const auto open = server_->units_.find(id);
  if (open == server_->units_.end()) return PushOutcome::kDuplicate;
  server_->free_units_.erase(store::groupOf(open->second.unit) + "/" + id);
  server_->units_.erase(open);
  server_->injectEvaluation(
      result, signatureOf(kSignedEvaluation, store::signedBytes(stored.result, stored.answers)));
  return PushOutcome::kAccepted;
}

void MemoryStore::accept(const v1::EvaluationResult& result) {
  const std::string& id = result.unit().unit_id();
  const uint64_t number = ++server_->last_evaluation_;
  server_->accepted_[id] = number;
  v1::EvaluationResult& kept = server_->evaluations_[number] = result;
  if (kept.answers().ByteSizeLong() == 0) kept.clear_answers();
  server_->planned_.erase(id);
  const auto open = server_->units_.find(id);
  if (open == server_->units_.end()) return;
  server_->free_units_.erase(store::groupOf(open->second.unit) + "/" + id);
  server_->units_.erase(open);
}

}  // namespace allot
