#include "core/learning/history_summary.h"

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "core/learning/update.h"

namespace allot {
namespace {

bool isPoint(uint64_t version, uint64_t stride) {
  return version % stride == 0 || version <= HistorySample::kFirst;
}

}  // namespace

void HistorySample::add(v1::IterationRecord record) {
  assert(recent_.empty() || recent_.back().version() < record.version());
  dropResults(&record);
  while (record.version() / stride_ > kPoints) {
    stride_ *= 2;
    std::erase_if(points_, [&](const auto& item) { return !isPoint(item.first, stride_); });
  }
  if (isPoint(record.version(), stride_)) points_[record.version()] = record;
  recent_.push_back(std::move(record));
  if (recent_.size() > kRecent) recent_.pop_front();
}

void HistorySample::clear() { *this = {}; }

std::vector<v1::IterationRecord> HistorySample::records() const {
  std::map<uint64_t, const v1::IterationRecord*> all;
  for (const auto& [version, record] : points_) all[version] = &record;
  for (const auto& record : recent_) all[record.version()] = &record;
  std::vector<v1::IterationRecord> records;
  records.reserve(all.size());
  for (const auto& [version, record] : all) records.push_back(*record);
  return records;
}

std::vector<uint64_t> HistorySample::versionsToLoad(uint64_t last) {
  uint64_t stride = 1;
  while (last / stride > kPoints) stride *= 2;
  std::vector<uint64_t> versions;
  for (uint64_t version = 1; version <= last;) {
    versions.push_back(version);
    const uint64_t next = (version / stride + 1) * stride;
    const uint64_t recent = last > kRecent ? last - kRecent + 1 : 1;
    version = version >= recent || version < kFirst ? version + 1
                                                    : std::min(next, std::max(recent, version + 1));
  }
  return versions;
}

double UnansweredTickets::share() const {
  return tickets == 0 ? 0 : static_cast<double>(unanswered) / static_cast<double>(tickets);
}

std::string UnansweredTickets::warning() const {
  const double lost = static_cast<double>(unanswered) - static_cast<double>(in_hand);
  if (tickets < kLeastTickets || lost <= kMostUnanswered * static_cast<double>(tickets)) return "";
  return "workers that answer only some of their tickets can decide what is learned: see which "
         "workers die or have results refused, or make the run --synchronous";
}

UnansweredTickets unansweredTickets(uint64_t reached, uint64_t counted, uint64_t in_hand) {
  return {reached, reached - std::min(reached, counted), in_hand};
}

uint64_t ticketsReached(uint64_t reached, const v1::IterationRecord& record) {
  for (const v1::EpisodeResult& result : record.results()) {
    reached = std::max(reached, result.ticket() + 1);
  }
  return reached;
}

std::string unansweredText(const UnansweredTickets& tickets) {
  char share[32];
  std::snprintf(share, sizeof share, " (%.0f %%)", 100 * tickets.share());
  return std::to_string(tickets.unanswered) + " of " + std::to_string(tickets.tickets) +
         " have no result that counts" + share;
}

UpdateMeans meansOf(std::span<const v1::IterationRecord> records) {
  UpdateMeans means;
  means.updates = records.size();
  if (records.empty()) return means;
  for (const v1::IterationRecord& record : records) {
    means.reward += record.mean_reward();
    means.lag += record.mean_lag_updates();
    means.effective_sample_size_ratio += record.effective_sample_size_ratio();
    means.step_kl_nats += record.step_kl_nats();
  }
  const auto count = static_cast<double>(records.size());
  for (double* sum :
       {&means.reward, &means.lag, &means.effective_sample_size_ratio, &means.step_kl_nats}) {
    *sum /= count;
  }
  return means;
}

UpdateMeans firstMeans(std::span<const v1::IterationRecord> records) {
  return meansOf(records.first(std::min(records.size(), kMeanUpdates)));
}

UpdateMeans lastMeans(std::span<const v1::IterationRecord> records) {
  return meansOf(records.last(std::min(records.size(), kMeanUpdates)));
}

}  // namespace allot
