// The part of RedisStore that restores a run from an export.
#include <functional>
#include <random>

#include "core/digest.h"
#include "store/checks.h"
#include "store/redis/lua_scripts.h"
#include "store/redis/redis_store.h"

namespace allot {
namespace {

// A call with this many bytes or words is sent: calls should not block the server for long.
constexpr size_t kBytesPerCall = 1024 * 1024;
constexpr size_t kWordsPerCall = 20'000;

// Returns a random name of an import, by which imports of one run are told apart.
std::string nameOfImport() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; ++i) name += std::to_string(device()) + "-";
  return name;
}

// Collects words for calls. Each call begins with the word `first`.
class Slices {
 public:
  using Send = std::function<Status(const std::vector<std::string>&)>;

  Slices(std::string first, Send send) : first_(std::move(first)), send_(std::move(send)) {}

  Status add(std::vector<std::string> item) {
    for (std::string& word : item) {
      bytes_ += word.size();
      words_.push_back(std::move(word));
    }
    return bytes_ >= kBytesPerCall || words_.size() >= kWordsPerCall ? flush() : Status();
  }

  Status flush() {
    words_.insert(words_.begin(), first_);
    const Status sent = send_(words_);
    words_.clear();
    bytes_ = 0;
    return sent;
  }

 private:
  const std::string first_;
  const Send send_;
  std::vector<std::string> words_;
  size_t bytes_ = 0;
};

}  // namespace

Status RedisStore::importStatus(const RedisReply& reply) const {
  const std::string_view word = reply.view()[0].text();
  const std::string_view detail = reply.view()[1].text();
  if (word == "OK") return {};
  if (word == "EXISTS") return tl::unexpected(store::importOverRun(run_id_));
  if (word == "OTHER") return tl::unexpected(store::otherImport(run_id_));
  if (word == "ORDER") return tl::unexpected(store::importOutOfOrder(run_id_, detail));
  return unexpectedReply("a part of an import");
}

Status RedisStore::beginImport() {
  const std::string name = nameOfImport();
  ALLOT_ASSIGN(const RedisReply reply, run(lua::begin_import, {name}));
  ALLOT_TRY(importStatus(reply));
  import_ = name;
  return {};
}

Status RedisStore::importHistory(const std::vector<v1::IterationRecord>& records) {
  ALLOT_TRY(store::checkImported(records));
  Slices slices(import_, [this](const std::vector<std::string>& words) -> Status {
    ALLOT_ASSIGN(const RedisReply reply, run(lua::import_history, {words.begin(), words.end()}));
    return importStatus(reply);
  });
  for (const auto& record : records) {
    std::vector<std::string> words = {std::to_string(record.version()) + "-0",
                                      record.SerializeAsString(),
                                      std::to_string(record.results_size())};
    TicketSet tickets;
    for (const auto& result : record.results()) {
      words.push_back(result.result_id());
      tickets.insert(result.ticket());
    }
    words.push_back(std::to_string(tickets.chunks().size()));
    store::append(tickets, &words);
    ALLOT_TRY(slices.add(std::move(words)));
  }
  return slices.flush();
}

Status RedisStore::importEvaluations(const std::vector<v1::EvaluationResult>& results) {
  ALLOT_TRY(store::checkImported(results));
  Slices slices(import_, [this](const std::vector<std::string>& words) -> Status {
    ALLOT_ASSIGN(const RedisReply reply,
                 run(lua::import_evaluations, {words.begin(), words.end()}));
    return importStatus(reply);
  });
  for (const auto& result : results) {
    ALLOT_ASSIGN(auto stored, store::toStored(result));
    ALLOT_TRY(
        slices.add({result.unit().unit_id(), std::move(stored.result), std::move(stored.answers)}));
  }
  return slices.flush();
}

Status RedisStore::endImport(const RunImage& image) {
  ALLOT_TRY(store::checkImage(image));
  const RunSpec& spec = image.spec;
  const uint64_t version = image.state ? image.state->policy().version() : 0;
  const std::string policy = image.state ? image.state->policy().SerializeAsString() : "";
  std::vector<std::string> words = {import_,
                                    spec.experiment.SerializeAsString(),
                                    spec.sha256,
                                    spec.synchronous ? "1" : "0",
                                    std::to_string(spec.started_unix_ms),
                                    spec.origin ? spec.origin->SerializeAsString() : "",
                                    std::string(wordOf(image.control.desired)),
                                    image.control.experiment.SerializeAsString(),
                                    image.control.file.SerializeAsString(),
                                    std::to_string(image.control.revision),
                                    image.model ? image.model->SerializeAsString() : "",
                                    image.state ? std::to_string(version) : "",
                                    policy,
                                    sha256Hex(policy),
                                    image.state ? image.state->SerializeAsString() : "",
                                    std::to_string(image.next_ticket),
                                    spec.arithmetic,
                                    std::to_string(spec.schema),
                                    spec.build};
  for (const auto& unit : image.open_units) {
    words.push_back(unit.unit_id());
    words.push_back(store::groupOf(unit));
    words.push_back(unit.SerializeAsString());
  }
  ALLOT_ASSIGN(const RedisReply reply, run(lua::end_import, {words.begin(), words.end()}));
  if (reply.view()[0].text() == "HISTORY")
    return tl::unexpected(store::importIncomplete(run_id_, reply.view()[1].text(), version));
  ALLOT_TRY(importStatus(reply));
  return updateIndex(spec.experiment.name());
}

}  // namespace allot
