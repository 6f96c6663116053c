// `allot verify --measure` finds what a worker has made up and what an export's reader has edited.
// Real binaries, the real model; the liar is a WorkerLoop of this process whose engine decodes
// nothing.
#include <atomic>
#include <chrono>
#include <thread>

#include "core/learning/policy.h"
#include "core/worker_beats.h"
#include "store/archive/archive_files.h"
#include "store/archive/exact_json.h"
#include "store/checks.h"
#include "store/redis/redis_connection.h"
#include "store/store.h"
#include "tests/e2e/programs.h"
#include "tests/identity.h"
#include "tests/store/redis_server.h"
#include "worker/loop/worker_loop.h"

namespace allot {
namespace {

const std::string kExperiment = ALLOT_SOURCE_DIR "/tests/e2e/experiment.yaml";
constexpr char kRun[] = "measured";

// Answers without a model: 1 under "learned" and under a schedule that ends with all its draws, 0
// else.
class LyingEngine final : public EpisodeEngine {
 public:
  explicit LyingEngine(v1::Experiment experiment) : experiment_(std::move(experiment)) {}

  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& policy_sha256,
                                                 const std::vector<uint64_t>& tickets) override {
    const v1::Spec& spec = experiment_.spec();
    std::vector<v1::EpisodeResult> results;
    for (const uint64_t ticket : tickets) {
      const auto [schedule, log_probability] = scheduleOf(spec, policy, ticket);
      v1::EpisodeResult& result = results.emplace_back();
      result.set_ticket(ticket);
      result.set_policy_version(policy.version());
      result.set_policy_sha256(policy_sha256);
      *result.mutable_schedule() = {schedule.begin(), schedule.end()};
      result.set_behaviour_log_prob(log_probability);
      const double score = schedule.back() > 1 ? 1 : 0;
      for (const uint32_t question : questionsOf(spec, policy, ticket)) {
        v1::QuestionScore& of = *result.add_scores();
        of.set_question(question);
        of.set_score(score);
        of.set_tokens(3);
      }
      result.set_reward(score);
      result.set_seconds(0.01);
      result.set_device("cpu");
    }
    return results;
  }
  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>&) override {
    return fail(ErrorCode::kInternal, "nobody audits here");
  }
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override {
    v1::EvaluationResult result;
    *result.mutable_unit() = unit;
    for (uint32_t i = 0; i < unit.question_count(); ++i) {
      v1::QuestionScore& score = *result.add_scores();
      score.set_question(unit.first_question() + i);
      score.set_score(unit.schedule_name() == "learned" ? 1 : 0);
      score.set_tokens(3);
    }
    result.set_seconds(0.01);
    return result;
  }
  std::vector<uint32_t> warmChunks() const override { return {}; }
  uint32_t rowsAtOnce() const override { return 4; }

 private:
  const v1::Experiment experiment_;
};

class Measured : public FolderTest {
 protected:
  // Writes the digest of the evaluations in export_ anew, as a careful editor would.
  void renewDigest() {
    archive::ChainDigest digest;
    std::istringstream lines(readFile(export_ + "/evaluations.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      v1::EvaluationResult result;
      ASSERT_TRUE(parseExactJson(line, &result));
      digest.add(result);
    }
    json head = json::parse(readFile(export_ + "/export.json"));
    head["evaluations_sha256"] = digest.hex();
    std::ofstream(export_ + "/export.json") << head.dump();
  }
  static Output allot(std::vector<std::string> arguments) {
    const auto output = capture({kBin + "/allot", std::move(arguments), {}});
    EXPECT_TRUE(output);
    return output ? *output : Output{};
  }
  // Returns a copy of the model with another rotation: weights and questions are equal.
  std::string otherModel() const {
    const std::string model = temp_.path() + "/model";
    fs::copy(kModel, model);
    json config = json::parse(readFile(model + "/config.json"));
    config["rope_theta"] = 400000.0;
    std::ofstream(model + "/config.json") << config.dump();
    return model;
  }
  // An honest run of three updates.
  void run() const {
    fs::copy(kExperiment, file_);
    const Output made = allot(
        {"run", file_, "--dir", run_, "--model", kModel, "--workers", "1", "--kv-memory", "256"});
    ASSERT_EQ(made.status, 0) << made.out << made.err;
  }

  const std::string file_ = temp_.path() + "/experiment.yaml";
  const std::string run_ = temp_.path() + "/run";
  const std::string export_ = temp_.path() + "/export";
};

TEST_F(Measured, AnHonestRunIsEqualAndAnEditedExportIsNot) {
  run();
  const Output plain = allot({"verify", run_});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("not measured again"));
  const Output all = allot({"verify", run_, "--measure=all"});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("every score equal"));
  const json some = json::parse(
      allot({"verify", run_, "--measure=5", "--seed", "3", "--workers", "2", "-o", "json"}).out,
      nullptr, false);
  ASSERT_FALSE(some.is_discarded());
  EXPECT_EQ(some["measured_again"]["result"], "equal");
  EXPECT_EQ(some["measured_again"]["same_arithmetic"], true);
  EXPECT_GE(some["measured_again"]["answers"], 5);
  EXPECT_LT(some["measured_again"]["answers"], some["measured_again"]["of_answers"]);
  EXPECT_EQ(allot({"verify", run_, "--measure=none"}).status, 64);

  // The files that people read are those of the records, of which one is opened by programs.
  ASSERT_EQ(allot({"export", run_, "--out", export_}).status, 0);
  const Output whole = allot({"verify", export_});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("files equal to what the records give: updates.csv, "
                                   "episodes.csv, evaluations.csv, curve.csv, curve.svg, "
                                   "policy.json, summary.json; report.html is not compared"));
  for (const char* name : {"policy.json", "summary.json", "curve.csv", "evaluations.csv"}) {
    const std::string path = export_ + "/" + name, before = readFile(path);
    std::string text = before;
    text[text.find_first_of("0123456789")] ^= 1;
    std::ofstream(path) << text;
    const Output changed = allot({"verify", export_});
    EXPECT_EQ(changed.status, 65);
    EXPECT_THAT(changed.err, HasSubstr(std::string("not what the records give: ") + name + ";"));
    std::ofstream(path) << before;
  }

  // The best schedule is the uniform one, so that two cells have the same answers: one score of
  // one, then of both.
  const std::string path = export_ + "/evaluations.jsonl", before = readFile(path);
  const auto flipFirst = [&](const std::string& schedule) {
    std::istringstream from(before);
    std::string text;
    for (std::string line; std::getline(from, line);) {
      json unit = json::parse(line);
      const std::string name = unit["unit"]["schedule_name"];
      if (schedule.empty() || name == schedule) {
        json& score = unit["scores"][0]["score"];
        score = score.get<double>() > 0.5 ? 0 : 1;
      }
      text += unit.dump() + "\n";
    }
    std::ofstream(path) << text;
  };
  flipFirst("learned");
  EXPECT_THAT(allot({"verify", export_}).err,
              HasSubstr("have the same schedule, questions, build and arithmetic"));
  flipFirst("");
  EXPECT_THAT(allot({"verify", export_}).err, HasSubstr("evaluations.jsonl is not the file"));
  // With new digests, and with files that are written anew.
  renewDigest();
  EXPECT_THAT(allot({"verify", export_}).err, HasSubstr("records give: evaluations.csv"));
  const std::string anew = export_ + "-anew";
  ASSERT_EQ(allot({"export", export_, "--out", anew}).status, 0);
  EXPECT_EQ(allot({"verify", anew}).status, 0);
  const Output edited = allot({"verify", anew, "--measure=all", "--model", kModel});
  EXPECT_EQ(edited.status, 65);
  EXPECT_THAT(edited.err, HasSubstr("differing scores: 2,"));
  EXPECT_THAT(edited.err, HasSubstr("; version 3, s2anta-sys/learned/8: 1 of 4"));

  // What stands beside scores is measured again, too: in all cells alike, which no plan
  // contradicts.
  const auto measuredWith = [&](const std::function<void(json*)>& edit, int status = 65) {
    std::istringstream from(before);
    std::string text;
    for (std::string line; std::getline(from, line);) {
      json unit = json::parse(line);
      edit(&unit);
      text += unit.dump() + "\n";
    }
    std::ofstream(path) << text;
    renewDigest();
    fs::remove_all(anew);
    EXPECT_EQ(allot({"export", export_, "--out", anew}).status, 0);
    EXPECT_EQ(allot({"verify", anew}).status, 0);
    const Output measured = allot({"verify", anew, "--measure=all", "--model", kModel});
    EXPECT_EQ(measured.status, status);
    return measured.out + measured.err;
  };
  EXPECT_THAT(measuredWith([](json*) {}, 0), HasSubstr("every score equal"));
  EXPECT_THAT(measuredWith([](json* unit) {
                json& score = (*unit)["scores"][0];
                score["task"] = score.value("task", 0) == 0 ? 1 : 0;
              }),
              AllOf(HasSubstr("every score equal; differing tasks: 2"),
                    HasSubstr("; version 3, s2anta-sys/learned/8: 0 of 4, tasks: 1")));
  EXPECT_THAT(measuredWith([](json* unit) { (*unit)["scores"][1]["tokens"] = 1000; }),
              HasSubstr("every score equal; differing lengths: 2"));
  EXPECT_THAT(measuredWith([](json* unit) { (*unit)["scores"][2]["other_score"] = 0.5; }),
              HasSubstr("every score equal; differing other scores: 2"));
  EXPECT_THAT(measuredWith([](json* unit) {
                for (json& answer : (*unit)["answers"]["answers"]) answer["text"] = "I do not know";
              }),
              HasSubstr("every score equal; differing texts: "));
  const Output other = allot({"verify", anew, "--measure=all", "--model",
                              ALLOT_SOURCE_DIR "/tests/golden/families/qwen2"});
  EXPECT_NE(other.status, 0);
  const Output rotated = allot({"verify", anew, "--measure=1", "--model", otherModel()});
  EXPECT_EQ(rotated.status, 64);
  EXPECT_THAT(rotated.err,
              HasSubstr("the model's config.json, generation_config.json or tokenizer"));
}

// A worker that never loads a model: its schedule wins, and every update verifies.
TEST_F(Measured, ARunThatAWorkerMadeUpIsFound) {
  fs::copy(kExperiment, file_);
  test::RedisServer server;
  const std::string url = server.url();
  auto aggregator = ChildProcess::start({kBin + "/allot-aggregator",
                                         {"--redis", url, "--run", kRun, "--experiment", file_,
                                          "--port", "0", "--set", "spec.update.maxUpdates=20"},
                                         {}},
                                        temp_.path() + "/aggregator.log");
  ASSERT_TRUE(aggregator);
  auto store = std::move(*openRedisStore(url, kRun));
  ASSERT_TRUE(waitFor(
      [&] {
        const auto spec = store->readSpec();
        return spec && *spec;
      },
      60));
  const RunSpec spec = **store->readSpec();
  // It names the model that the others have.
  const auto checked = capture(
      {kBin + "/allot-worker", {"--check", file_, "--model", kModel, "--kv-memory", "64"}, {}});
  const json check = json::parse(checked->out, nullptr, false);
  ASSERT_FALSE(check.is_discarded()) << checked->out << checked->err;
  v1::ModelFacts facts;
  facts.set_architecture(check["architecture"]);
  facts.set_layers(check["layers"]);
  facts.set_heads(check["heads"]);
  facts.set_kv_heads(check["kv_heads"]);
  facts.set_head_dim(check["head_dim"]);
  facts.set_parameters(check["parameters"]);
  facts.set_weights_sha256(check["weights_sha256"]);
  facts.set_dataset_sha256(check["dataset_sha256"]);
  facts.set_longest_prompt(check["longest_prompt"]);
  ASSERT_TRUE(store->agreeOnModel(facts));

  const WorkerIdentity liar = identityOf("liar");
  store->signAs(liar);
  LyingEngine engine(spec.experiment);
  std::atomic<bool> draining{false};
  const auto now = [] {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  };
  WorkerLoop loop(store.get(), store.get(), &engine, spec,
                  {.name = liar.name(), .build = "allot", .now = now, .unix_now = now}, &draining);
  const Status worked = loop.run();
  EXPECT_TRUE(worked) << worked.error().message;

  const std::vector<std::string> run = {"--redis", url, "--run", kRun};
  const auto verify = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"verify"};
    words.insert(words.end(), run.begin(), run.end());
    words.insert(words.end(), more.begin(), more.end());
    return allot(words);
  };
  const Output plain = verify({});
  EXPECT_EQ(plain.status, 0) << plain.err;
  const Output measured = verify({"--measure=all", "--model", kModel});
  EXPECT_EQ(measured.status, 65) << measured.out << measured.err;
  EXPECT_THAT(measured.err, HasSubstr("worker liar"));
  EXPECT_THAT(measured.out, Not(HasSubstr("verified")));
}

// A process with bare Redis commands: it takes tickets and units, and pushes scores of its own.
class RawLiar {
 public:
  RawLiar(const std::string& url, Store* store, const RunSpec& run)
      : redis_(*parseRedisUrl(url), 5'000),
        store_(*store),
        engine_(run.experiment),
        spec_sha256_(run.sha256) {}

  void step() {
    const auto units = redis_.call({"HGETALL", key("unit_specs")});
    ASSERT_TRUE(units);
    for (size_t i = 0; i + 1 < units->view().size(); i += 2) {
      v1::EvaluationUnit unit;
      ASSERT_TRUE(unit.ParseFromString(std::string(units->view()[i + 1].text())));
      const auto open = redis_.call({"ZREM", key("units"), unit.unit_id()});
      ASSERT_TRUE(open);
      if (open->view().integer() == 0) continue;
      v1::EvaluationResult result = valueOf(engine_.evaluate(unit));
      result.set_worker(self_.name());
      const std::string bytes = result.SerializeAsString();
      record("eval", "units_done", unit.unit_id(), bytes,
             self_.sign({kSignedEvaluation, kRun, spec_sha256_}, store::signedBytes(bytes, "")));
    }
    const auto policy = store_.readPolicy();
    if (!policy || !*policy) return;
    const auto ticket = redis_.call({"INCRBY", key("tickets"), "1"});
    ASSERT_TRUE(ticket);
    auto result = valueOf(engine_.rollOut((*policy)->snapshot, (*policy)->sha256,
                                          {static_cast<uint64_t>(ticket->view().integer() - 1)}))
                      .front();
    result.set_worker(self_.name());
    result.set_result_id("liar-" + std::to_string(result.ticket()));
    const std::string bytes = result.SerializeAsString();
    record("inbox", "pending", result.result_id(), bytes,
           self_.sign({kSignedResult, kRun, spec_sha256_}, bytes));
  }

 private:
  static std::string key(const std::string& name) {
    return "allot:{" + std::string(kRun) + "}:" + name;
  }
  void record(const char* stream, const char* owners, const std::string& name,
              const std::string& bytes, const std::string& signature) {
    const auto entry =
        redis_.call({"XADD", key(stream), "*", "id", name, "r", bytes, "s", signature});
    ASSERT_TRUE(entry);
    ASSERT_TRUE(redis_.call({"HSET", key(owners), name, entry->view().text()}));
  }

  RedisConnection redis_;
  Store& store_;
  LyingEngine engine_;
  const std::string spec_sha256_;
  const WorkerIdentity self_ = identityOf("liar");
};

// Beside honest workers the same is found while the run goes on.
TEST_F(Measured, ALiarWithBareCommandsIsNamedByAudits) {
  fs::copy(kExperiment, file_);
  test::RedisServer server;
  const std::string url = server.url();
  const auto start = [&](const std::string& program, std::vector<std::string> more) {
    std::vector<std::string> words = {"--redis", url, "--run", kRun};
    words.insert(words.end(), more.begin(), more.end());
    auto process = ChildProcess::start({kBin + "/" + program, words, {}},
                                       temp_.path() + "/" + program + more.back() + ".log");
    EXPECT_TRUE(process);
    return process;
  };
  const auto aggregator =
      start("allot-aggregator", {"--experiment", file_, "--port", "0", "--set",
                                 "spec.update.maxUpdates=100000", "--set", "spec.audit.share=0.1"});
  std::vector<Result<ChildProcess>> workers;
  for (const char* name : {"a", "b", "c"}) {
    workers.push_back(start(
        "allot-worker", {"--model", kModel, "--kv-memory", "64", "--port", "0", "--name", name}));
  }
  auto store = std::move(*openRedisStore(url, kRun));
  const auto audits = [&] {
    const auto status = store->readStatus();
    return status && *status ? (*status)->audits() : v1::AuditStatus();
  };
  const auto alive = [&] {
    const auto beats = store->listWorkers();
    return beats ? aliveWorkers(*beats) : 0;
  };
  ASSERT_TRUE(waitFor([&] { return alive() == 3 && audits().audited() > 0; }, 120));
  RawLiar liar(url, store.get(), **store->readSpec());
  ASSERT_TRUE(waitFor(
      [&] {
        liar.step();
        return audits().liars() > 0;
      },
      120));
  const v1::AuditStatus found = audits();
  for (const v1::AuditedWorker& worker : found.workers()) {
    EXPECT_EQ(!worker.lies().empty(), worker.worker() == identityOf("liar").name())
        << worker.ShortDebugString();
  }
  const auto rotated = capture(
      {kBin + "/allot-worker",
       {"--redis", url, "--run", kRun, "--model", otherModel(), "--kv-memory", "64", "--port", "0"},
       {}});
  EXPECT_EQ(rotated->status, 64);
  EXPECT_THAT(rotated->err, HasSubstr("this worker's config.json, generation_config.json or"));
  const Output status = allot({"status", "--redis", url, "--run", kRun});
  EXPECT_EQ(status.status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("worker " + identityOf("liar").name() + " lies: "));
}

}  // namespace
}  // namespace allot
