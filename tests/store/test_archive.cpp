// Runs as files: what export writes and import gives back.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "allot/v1/archive.pb.h"
#include "core/spec/spec.h"
#include "tests/store/archive_fixture.h"
#include "tests/store/full_disk.h"
#include "tests/store/moving_source.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::vector<std::string> bytesOf(const std::vector<T>& messages) {
  std::vector<std::string> all;
  for (const auto& message : messages) all.push_back(message.SerializeAsString());
  return all;
}

void expectSameRun(Store* a, Store* b) {
  StoreSource first(a, kRunId), second(b, kRunId);
  const auto x = first.readHead(), y = second.readHead();
  ASSERT_TRUE(x && y);
  EXPECT_EQ(x->policy_sha256, y->policy_sha256);
  const RunImage &p = x->image, &q = y->image;
  EXPECT_EQ(canonicalBytes(p.spec.experiment), canonicalBytes(q.spec.experiment));
  EXPECT_EQ(p.spec.sha256, q.spec.sha256);
  EXPECT_EQ(p.spec.synchronous, q.spec.synchronous);
  EXPECT_EQ(p.spec.started_unix_ms, q.spec.started_unix_ms);
  EXPECT_EQ(p.spec.origin.has_value(), q.spec.origin.has_value());
  EXPECT_EQ(p.spec.arithmetic, q.spec.arithmetic);
  EXPECT_EQ(p.control.desired, q.control.desired);
  EXPECT_EQ(p.control.revision, q.control.revision);
  EXPECT_EQ(canonicalBytes(p.control.experiment), canonicalBytes(q.control.experiment));
  EXPECT_EQ(canonicalBytes(p.control.file), canonicalBytes(q.control.file));
  EXPECT_EQ(p.model->SerializeAsString(), q.model->SerializeAsString());
  EXPECT_EQ(p.state->SerializeAsString(), q.state->SerializeAsString());
  EXPECT_EQ(p.next_ticket, q.next_ticket);
  auto units = bytesOf(p.open_units), others = bytesOf(q.open_units);
  std::sort(units.begin(), units.end());
  std::sort(others.begin(), others.end());
  EXPECT_EQ(units, others);
  EXPECT_EQ(bytesOf(*a->readHistory(0, 1000)), bytesOf(*b->readHistory(0, 1000)));
  const auto evaluations = *a->readAnswers("", 1000), imported = *b->readAnswers("", 1000);
  ASSERT_EQ(evaluations.size(), imported.size());
  for (size_t i = 0; i < evaluations.size(); ++i) {
    EXPECT_EQ(evaluations[i].result.SerializeAsString(), imported[i].result.SerializeAsString());
  }
}

TEST_F(Archive, AnExportImportsAsTheSameRun) {
  makeRun();
  changeLearningRate(store_.get(), "0.01");
  run_->update(2);
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(summary_.updates, 9u);
  EXPECT_EQ(summary_.new_updates, 9u);
  EXPECT_EQ(summary_.results, 27u);
  EXPECT_EQ(summary_.evaluations, 5u);
  const auto verified = valueOf(verify(out_));
  EXPECT_EQ(verified.updates, 9u);
  EXPECT_EQ(verified.results, 27u);
  EXPECT_EQ(verified.workers, 3u);
  EXPECT_EQ(verified.evaluations, 5u);
  EXPECT_EQ(verified.missing.size(), 2u);
  EXPECT_THAT(verified.unevaluated, testing::ElementsAre(2, 4, 8));  // nobody planned them
  EXPECT_EQ(verified.head.policy_sha256, (*store_->readPolicy())->sha256);

  RedisServer server;
  auto redis = *openRedisStore(server.url(), kRunId);
  auto memory = emptyStore();
  for (Store* other : {redis.get(), memory.get()}) {
    ASSERT_THAT(import(out_, other), succeeds());
    expectSameRun(store_.get(), other);
    StoreSource source(other, kRunId);
    EXPECT_TRUE(verifyRun(&source));
    // What it has consumed cannot count again.
    const auto records = valueOf(other->readHistory(0, 1));
    EXPECT_EQ(other->pushResult(records.at(0).results(0), 100).value(), PushOutcome::kDuplicate);
    EXPECT_EQ(codeOf(import(out_, other)), ErrorCode::kUsage);
  }
  // From Redis to files again: the same bytes.
  StoreSource source(redis.get(), kRunId);
  ASSERT_TRUE(exportRun(&source, folder_ + "/again"));
  for (const char* name :
       {"history.jsonl", "evaluations.jsonl", "updates.csv", "episodes.csv", "evaluations.csv"}) {
    EXPECT_EQ(readFile(out_ + "/" + name), readFile(folder_ + "/again/" + name)) << name;
  }
}

// Nobody has looked at them in the store; an import would.
TEST_F(Archive, AnswersThatCannotBeStayBehind) {
  makeRun();
  v1::EvaluationResult result;
  *result.mutable_unit() =
      store_->claimUnits({.holder = "w", .count = 1, .lease_ms = 1000}).value().at(0);
  for (uint32_t q = 0; q < result.unit().question_count(); ++q) {
    result.add_scores()->set_question(result.unit().first_question() + q);
    result.mutable_scores()->rbegin()->set_task((result.unit().first_question() + q) % 2);
  }
  result.mutable_answers()->add_answers()->set_question(1000);
  ASSERT_EQ(store_->pushEvaluation(result).value(), PushOutcome::kAccepted);
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(verify(out_)->evaluations, 5u);  // the aggregator has not accepted it
  run_->acceptEvaluations();
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(verify(out_)->evaluations, 6u);
  const auto evaluations = lines(readFile(out_ + "/evaluations.jsonl"));
  ASSERT_EQ(evaluations.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(evaluations[i].find("\"answers\"") == std::string::npos, i == 5) << i;
  }
}

// Of a newer build and of a development build before 0.1.0, whatever else their files hold.
TEST_F(Archive, AnExportOfAnotherSchemaIsRefusedWithTheBuildToUse) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const std::string path = out_ + "/export.json";
  const nlohmann::json exported = nlohmann::json::parse(readFile(path));
  ASSERT_EQ(exported["schema"], kSpecSchema);
  const auto refusal = [&](uint32_t schema, const std::string& build = "allot 9.0 (GNU 20)") {
    nlohmann::json other = exported;
    other["schema"] = schema;
    other["build"] = build;
    other["experiment"]["spec"]["model"]["quantised"] = "yes";  // a key that nobody knows here
    write(path, other.dump());
    const auto refused = verify(out_);
    if (refused) return std::string("taken");
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    return refused.error().message;
  };
  EXPECT_THAT(refusal(kNextSchema), HasSubstr("newer build, allot 9.0 (GNU 20): "));
  EXPECT_THAT(refusal(kNextSchema), HasSubstr("use that one"));
  for (const uint32_t schema : {2u, kLastDevelopmentSchema}) {
    EXPECT_THAT(refusal(schema), HasSubstr("development build before 0.1.0, allot 9.0 (GNU 20),"));
  }
  EXPECT_THAT(refusal(0, ""), HasSubstr("development build before 0.1.0, which"));
  // Damaged: builds that stored their name stored the schema as well.
  nlohmann::json damaged = exported;
  damaged.erase("schema");
  write(path, damaged.dump());
  EXPECT_THAT(verify(out_), isError(ErrorCode::kData, HasSubstr("does not say the schema")));
}

TEST_F(Archive, ARunThatHasNotBegunTravels) {
  RunSpec spec;
  spec.experiment = smallExperiment();
  spec.sha256 = specDigest(spec.experiment);
  spec.started_unix_ms = 5;
  ASSERT_TRUE(store_->createRun(spec));
  ASSERT_TRUE(exportTo(out_));
  EXPECT_TRUE(verify(out_));
  auto other = emptyStore();
  ASSERT_THAT(import(out_, other.get()), succeeds());
  EXPECT_EQ((*other->readSpec())->sha256, spec.sha256);
  EXPECT_FALSE(*other->readPolicy());
}

TEST_F(Archive, AForkTravelsWithItsOrigin) {
  makeRun();
  StoreSource source(store_.get(), kRunId);
  const auto origin = valueOf(originAt(&source, 4));
  EXPECT_EQ(origin.version(), 4u);
  const auto then = store_->readHistory(3, 1);
  EXPECT_EQ(origin.policy_sha256(), then->at(0).policy_sha256());
  EXPECT_EQ(origin.state().optimizer_steps(), 4u);
  EXPECT_EQ(origin.state().episodes(), 0u);

  auto forked = emptyStore();
  SmallRun fork(forked.get(), origin);
  fork.update(3);
  StoreSource fork_source(forked.get(), kRunId);
  ASSERT_TRUE(exportRun(&fork_source, out_));
  EXPECT_EQ(valueOf(verify(out_)).updates, 3u);
  auto other = emptyStore();
  ASSERT_TRUE(import(out_, other.get()));
  expectSameRun(forked.get(), other.get());

  // An origin that is not what it says.
  const std::string path = out_ + "/export.json";
  v1::RunExport exported;
  ASSERT_TRUE(parseExactJson(readFile(path), &exported));
  auto* logits = exported.mutable_origin()->mutable_state()->mutable_policy()->mutable_logits();
  logits->Set(0, std::nextafter(logits->Get(0), 1));
  write(path, *exactJson(exported));
  EXPECT_THAT(verify(out_), isError(HasSubstr("not the one of its origin")));
}

TEST_F(Archive, OriginsAreWithinTheRun) {
  makeRun();
  for (const uint64_t version : {0, 7}) {
    StoreSource source(store_.get(), kRunId);
    EXPECT_TRUE(originAt(&source, version)) << version;
  }
  StoreSource source(store_.get(), kRunId);
  EXPECT_THAT(originAt(&source, 8), isError(ErrorCode::kUsage, HasSubstr("its newest is 7")));
}

// A run that goes on while it is read is read as it was when the reading began.
TEST_F(Archive, ARunningRunIsExportedAsOfOneMoment) {
  makeRun();
  const auto go_on = [&] {  // an update, and units that were open are recorded
    run_->update();
    run_->evaluate(2);
    run_->planEvaluation();
    run_->evaluate(3);  // the last one of before and two that are planned later
  };
  const auto update = [&] { run_->update(); };
  MovingSource busy(store_.get(), kRunId, go_on, update);
  EXPECT_EQ(valueOf(exportRun(&busy, out_)).updates, 7u);
  const auto verified = valueOf(verify(out_));
  EXPECT_EQ(verified.head.version(), 7u);
  EXPECT_EQ(verified.evaluations, 8u);  // five before, three while it was read
  for (const auto& unit : verified.head.image.open_units) EXPECT_LE(unit.policy_version(), 7u);

  MovingSource also_busy(store_.get(), kRunId, go_on, update);
  EXPECT_TRUE(verifyRun(&also_busy));
}

TEST_F(Archive, AnExportGrowsWithItsRun) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const std::string before = readFile(out_ + "/history.jsonl");
  run_->update(3);
  run_->evaluate(2);
  // An earlier export was killed while it wrote a line.
  write(out_ + "/history.jsonl", before + "{\"version\":\"8\",\"resu");
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(summary_.new_updates, 3u);
  EXPECT_EQ(summary_.updates, 10u);
  const std::string after = readFile(out_ + "/history.jsonl");
  EXPECT_TRUE(after.starts_with(before));
  EXPECT_EQ(lines(after).size(), 10u);
  EXPECT_EQ(lines(readFile(out_ + "/evaluations.jsonl")).size(), 7u);
  EXPECT_TRUE(verify(out_));
  ASSERT_TRUE(exportTo(folder_ + "/fresh"));
  EXPECT_EQ(readFile(folder_ + "/fresh/history.jsonl"), after);
  EXPECT_EQ(readFile(folder_ + "/fresh/export.json"), readFile(out_ + "/export.json"));
  for (const auto& entry : fs::directory_iterator(out_)) {
    EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
  }
}

TEST_F(Archive, AnExportDoesNotMixRuns) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  auto other = emptyStore();
  SmallRun run(other.get());
  run.update(9);
  StoreSource source(other.get(), "01M7YCD2AZVZVPGCPCSFDWQWNX");
  EXPECT_THAT(
      exportRun(&source, out_),
      isError(ErrorCode::kUsage, HasSubstr("holds the export of run " + std::string(kRunId))));

  // The same run, set back to an earlier state.
  auto earlier = emptyStore();
  SmallRun short_run(earlier.get());
  short_run.update(5);
  StoreSource back(earlier.get(), kRunId);
  EXPECT_THAT(exportRun(&back, out_), isError(HasSubstr("holds update 7, the run only 5")));

  // The same number of updates under the same name, but others.
  auto forked = emptyStore();
  SmallRun another(forked.get());
  another.update(2);
  changeLearningRate(forked.get(), "0.01");
  another.update(5);
  StoreSource different(forked.get(), kRunId);
  EXPECT_THAT(exportRun(&different, out_), isError(HasSubstr("holds another update 7")));
  EXPECT_TRUE(verify(out_));
}

TEST_F(Archive, OneProcessWritesAnExport) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  {
    const auto other = LineFile::open(out_ + "/history.jsonl");
    ASSERT_TRUE(other);
    EXPECT_THAT(exportTo(out_),
                isError(ErrorCode::kUsage, HasSubstr("another process is writing it")));
  }
  EXPECT_TRUE(exportTo(out_));
}

TEST_F(Archive, AFullDiskLeavesAnExportThatCanGrow) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const auto before = readFile(out_ + "/export.json");
  run_->update(20);
  {
    const FullDisk full(fs::file_size(out_ + "/history.jsonl") + 2000);
    EXPECT_THAT(exportTo(out_), isError(ErrorCode::kIo, HasSubstr("cannot write " + out_)));
  }
  EXPECT_EQ(readFile(out_ + "/export.json"), before);
  EXPECT_TRUE(verify(out_));  // what it was before
  EXPECT_TRUE(exportTo(out_));
  EXPECT_EQ(verify(out_)->updates, 27u);
}

}  // namespace
}  // namespace allot::test
