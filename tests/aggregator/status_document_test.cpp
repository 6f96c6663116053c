// The status of a run as programs read it: the fields, their bounds, and that page, endpoint and
// command line tell the same.
#include "aggregator/page/status_document.h"

#include <fstream>
#include <set>

#include "aggregator/page/run_view.h"
#include "aggregator/page/shared_view.h"
#include "cli/run_status.h"
#include "tests/aggregator/aggregator_fixture.h"
#include "tests/store/moving_source.h"

namespace allot {
namespace {

using nlohmann::json;

constexpr char kRunId[] = "01J00000000000000000000000";

void collect(const json& node, const std::string& path, std::set<std::string>* paths) {
  if (node.is_array()) {
    for (const json& child : node) collect(child, path + "[]", paths);
  } else if (node.is_object()) {
    for (const auto& [key, child] : node.items()) {
      collect(child, path.empty() ? key : path + "." + key, paths);
    }
  }
  if (!path.empty() && !path.ends_with("[]")) paths->insert(path);
}

class StatusDocument : public AggregatorTest {
 protected:
  void SetUp() override {
    announceModel();
    aggregator_ = start("aggregator-1");
    tick(aggregator_.get());
  }
  void updates(uint64_t count) {
    evaluateAll();
    for (const uint64_t end = ticket_ + 3 * count; ticket_ < end; ++ticket_) {
      push(ticket_);
      tick(aggregator_.get());
    }
    evaluateAll();
    tick(aggregator_.get());
  }
  RunSnapshot snapshot() {
    RunSnapshot snapshot = aggregator_->snapshot();
    snapshot.run_id = kRunId;
    return snapshot;
  }
  json served() {
    SharedView view([this] { return now_; }, [this] { return now_; });
    view.set(snapshot(), kRunId);
    const HttpReply reply = view.reply("/api/status");
    EXPECT_EQ(reply.status, 200u);
    EXPECT_EQ(reply.content_type, "application/json");
    return json::parse(reply.body);
  }
  // As `allot status` of a store tells it.
  json told() {
    StoreSource source(worker_.get(), kRunId);
    auto status = valueOf(readRunStatus(&source, worker_.get()));
    status.kind = RunAccess::Kind::kRemote;
    status.now_unix_ms = now_;
    return statusJson(status);
  }

  std::unique_ptr<Aggregator> aggregator_;
  uint64_t ticket_ = 0;
};

TEST_F(StatusDocument, PageEndpointAndCommandLineAgreeAllThroughARun) {
  EXPECT_EQ(served(), told());
  EXPECT_EQ(served()["state"], "evaluating");
  beat("w-1", "rollout");
  beat("w-2", "failed", "spec.model.path: there is no folder /x");
  updates(2);
  auto bad = episode(90);
  bad.set_reward(2);
  ASSERT_TRUE(worker_->pushResult(bad, 100));
  now_ += 2000;
  tick(aggregator_.get());
  const json now = served();
  EXPECT_EQ(now, told());
  EXPECT_EQ(now["version"], 2);
  EXPECT_EQ(now["refused"]["invalid"], 1);
  EXPECT_EQ(now["best"]["schedule"], "learned");
  EXPECT_EQ(now["best"]["version"], 2);
  EXPECT_EQ(now["finished_unix_ms"], nullptr);
  const json view = viewJson(runView(snapshot(), now_, kRunId));
  EXPECT_EQ(view["updates"], now["version"]);
  EXPECT_EQ(view["max_updates"], now["max_updates"]);
  EXPECT_EQ(view["episodes"], now["episodes"]);
  EXPECT_EQ(view["state"], now["state"]);
  EXPECT_EQ(view["lag_histogram"], now["lag_histogram"]);
  const json& headline = view["evaluations"][view["headline"]["learned"].get<size_t>()];
  EXPECT_EQ(headline["version"], now["best"]["version"]);
  EXPECT_NEAR(headline["accuracy"].get<double>(),
              std::stod(now["best"]["accuracy"].get<std::string>()), 5e-5);
  set({}, Desired::kPaused);
  now_ += 2000;
  tick(aggregator_.get());
  EXPECT_EQ(served(), told());
  EXPECT_EQ(served()["state"], "paused");
  EXPECT_EQ(served()["not_progressing"], "it is paused: allot resume");
  EXPECT_EQ(viewJson(runView(snapshot(), now_, kRunId))["state"], "paused");
}

TEST_F(StatusDocument, SaysHowManyTicketsHaveNoResult) {
  EXPECT_EQ(served()["tickets"], nullptr);
  evaluateAll();
  for (const uint64_t ticket : {2, 5, 9, 0, 4, 7}) {  // the highest one is in an older update
    push(ticket);
    tick(aggregator_.get());
  }
  const json told_now = json::parse(R"({"reached": 10, "unanswered": 4, "share": "0.4000",
                                         "warning": ""})");
  EXPECT_EQ(served()["tickets"], told_now);
  EXPECT_EQ(told()["tickets"], told_now);
  now_ += 20'000;
  aggregator_ = start("aggregator-2");
  for (int i = 0; i < 3; ++i) tick(aggregator_.get());
  EXPECT_EQ(served()["tickets"], told_now);
  ASSERT_TRUE(worker_->takeTickets({100, UINT64_MAX}));
  push(150, 151, 152);
  tick(aggregator_.get());
  EXPECT_EQ(served()["tickets"]["unanswered"], 153 - 9);
  EXPECT_NE(served()["tickets"]["warning"], "");
  EXPECT_EQ(served()["tickets"], told()["tickets"]);
}

// Updates that are committed between two reads of `allot status` are left out of all members.
TEST_F(StatusDocument, IsOfOneVersionWhileUpdatesAreMade) {
  const auto told_while = [&](uint64_t more) {
    test::MovingSource source(worker_.get(), kRunId, [&] { updates(more); });
    return valueOf(readRunStatus(&source, worker_.get()));
  };
  const RunStatus begun = told_while(1);
  EXPECT_EQ(begun.head.version(), 0u);
  EXPECT_EQ(begun.first.updates, 0u);
  EXPECT_EQ(begun.last.updates, 0u);
  EXPECT_EQ(begun.tickets_reached, 0u);
  EXPECT_EQ(begun.last_update_unix_ms, 0u);
  const RunStatus first = told_while(2);
  EXPECT_EQ(first.head.version(), 1u);
  EXPECT_EQ(first.first.updates, 1u);
  EXPECT_EQ(first.last.updates, 1u);
  EXPECT_EQ(first.tickets_reached, 3u);
}

TEST_F(StatusDocument, TheEndOfARunIsRememberedUntilItGoesOn) {
  now_ += 5000;
  updates(4);
  const uint64_t end = now_;
  EXPECT_FALSE(tick(aggregator_.get()));
  EXPECT_EQ(served()["finished_unix_ms"], end);
  EXPECT_EQ(served(), told());
  EXPECT_EQ(served()["state"], "finished");
  // By another process, an hour later.
  now_ += 3'600'000;
  aggregator_ = start("aggregator-2");
  for (int i = 0; i < 3; ++i) tick(aggregator_.get());
  EXPECT_EQ(served()["finished_unix_ms"], end);
  EXPECT_EQ(served(), told());
  set({"spec.update.maxUpdates=5"}, Desired::kRunning);
  now_ += 2000;
  tick(aggregator_.get());
  EXPECT_EQ(served()["finished_unix_ms"], nullptr);
  EXPECT_EQ(served(), told());
}

// The names are an interface: a program of another version reads them. None may go or be renamed;
// for a new one, add it to the file.
TEST_F(StatusDocument, HasTheFieldsThatAreWrittenDown) {
  beat("w-1", "rollout");
  updates(2);
  auto bad = episode(90);
  bad.set_reward(2);
  ASSERT_TRUE(worker_->pushResult(bad, 100));
  tick(aggregator_.get());
  std::set<std::string> paths;
  collect(statusDocument(
              snapshot(),
              {.now_unix_ms = now_, .stale_since_unix_ms = 1, .stale_why = "the store is away"}),
          "", &paths);
  std::set<std::string> expected;
  std::ifstream file(ALLOT_SOURCE_DIR "/tests/golden/status_fields.txt");
  for (std::string line; std::getline(file, line);) expected.insert(line);
  std::string all;
  for (const std::string& path : paths) all += path + "\n";
  EXPECT_TRUE(paths == expected) << "what tests/golden/status_fields.txt would be now:\n" << all;
  // Before the run is there it has the same ones.
  const json early = json::parse(
      SharedView([] { return uint64_t{7}; }, [] { return uint64_t{7}; }).reply("/api/status").body);
  EXPECT_EQ(early["state"], "starting");
  for (const auto& [key, value] : early.items()) EXPECT_TRUE(expected.contains(key)) << key;
  for (const std::string& path : expected) {
    const bool inner = path.find_first_of(".[") != std::string::npos;
    EXPECT_TRUE(inner || early.contains(path)) << path;
  }
}

TEST_F(StatusDocument, AViewThatCannotBeRenewedSaysSo) {
  SharedView view([this] { return now_; }, [this] { return now_; });
  view.set(snapshot(), kRunId);
  now_ += 25'000;
  view.keep("the store is away");
  const json status = json::parse(view.reply("/api/status").body);
  EXPECT_EQ(status["stale"]["since_unix_ms"], now_ - 25'000);
  EXPECT_EQ(status["stale"]["why"], "the store is away");
  EXPECT_EQ(status["not_progressing"], "no news from the store since 25 s ago: the store is away");
  EXPECT_EQ(status["now_unix_ms"], now_);
}

TEST_F(StatusDocument, IsBoundedAndHarmlessWhateverStrangersWrote) {
  RunSnapshot snapshot = this->snapshot();
  const std::string noise = [] {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += i % 3 == 0 ? "\"" : i % 3 == 1 ? "\x1b" : "\xff";
    return text;
  }();
  for (int i = 0; i < 2000; ++i) {
    auto& beat = snapshot.workers.emplace_back();
    beat.set_worker(noise);
    beat.set_device(noise);
    beat.set_build(std::to_string(i) + noise);
    beat.set_last_error(noise);
    beat.set_state(i == 1999 ? "failed" : noise);
  }
  snapshot.refusals.assign(5, {noise, noise, noise});
  snapshot.refused[noise] = 1;
  snapshot.run.experiment.set_name(noise);
  for (auto* text : {snapshot.told->mutable_holder(), snapshot.told->mutable_phase(),
                     snapshot.told->mutable_waiting(), snapshot.told->mutable_last_error(),
                     snapshot.told->mutable_page(), snapshot.told->mutable_edit_refused(),
                     snapshot.told->mutable_build()}) {
    *text = noise;
  }
  snapshot.told->mutable_audits()->set_summary(noise);
  for (int i = 0; i < 2000; ++i) {
    auto& worker = *snapshot.told->mutable_audits()->add_workers();
    worker.set_worker(noise);
    worker.set_lies(noise);
  }
  const json status = statusDocument(snapshot, {.now_unix_ms = now_, .stale_why = noise});
  const std::string text = status.dump();  // throws at what is no UTF-8
  EXPECT_LT(text.size(), kLargestStatus);
  EXPECT_EQ(text.find("\\u00"), std::string::npos);
  EXPECT_EQ(status["worker_counts"]["all"], 2000);
  EXPECT_EQ(status["worker_counts"]["by_state"]["other"], 1999);
  EXPECT_EQ(status["workers"].size(), kStatusWorkers);
  EXPECT_EQ(status["workers_left_out"], 2000 - kStatusWorkers);
  EXPECT_EQ(status["workers"][0]["state"], "failed");
}

}  // namespace
}  // namespace allot
