// What verify finds in a run that was changed.
#include <cmath>

#include "allot/v1/archive.pb.h"
#include "core/learning/policy.h"
#include "core/spec/spec.h"
#include "store/archive/run_source.h"
#include "tests/store/archive_fixture.h"

namespace allot::test {
namespace {

// A change of one logit of a record's policy, and of the digest with it or not.
auto changeLogit(double (*change)(double), bool digest) {
  return [=](v1::IterationRecord* record) {
    v1::PolicySnapshot& policy = *record->mutable_policy();
    policy.set_logits(2, change(policy.logits(2)));
    if (digest) record->set_policy_sha256(policyDigest(policy));
  };
}

// The first difference is named, whatever it is.
TEST_F(Archive, VerifyFindsWhatWasChanged) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const auto at5 = [&](const std::function<void(v1::IterationRecord*)>& change) {
    return afterChanging(5, change);
  };
  EXPECT_THAT(at5([](auto* record) {
                auto* result = record->mutable_results(1);
                double sum = 0;
                result->mutable_scores(0)->set_score(result->scores(0).score() > 0 ? 0 : 1);
                for (const auto& score : result->scores()) sum += score.score();
                result->set_reward(sum / result->scores_size());
              }),
              HasSubstr("update 5: it computes to policy"));
  EXPECT_THAT(at5([](auto* record) { record->mutable_results(1)->set_reward(0.75); }),
              HasSubstr("update 5: result"));
  const auto larger = [](double logit) { return logit + 1e-9; };
  EXPECT_THAT(at5(changeLogit(larger, false)), HasSubstr("update 5: its record differs"));
  EXPECT_THAT(at5(changeLogit(larger, true)), HasSubstr("update 5: it computes to policy"));
  // The order counts wherever the two differ in what they do to the policy.
  const auto records = store_->readHistory(0, 100);
  size_t swaps = 0;
  for (const v1::IterationRecord& record : *records) {
    if (record.results(0).reward() == record.results(1).reward()) continue;
    ++swaps;
    EXPECT_THAT(
        afterChanging(record.version(), [](auto* r) { r->mutable_results()->SwapElements(0, 1); }),
        HasSubstr("update " + std::to_string(record.version())));
  }
  EXPECT_GT(swaps, 0u);
  EXPECT_THAT(at5([](auto* record) { record->mutable_results()->RemoveLast(); }),
              HasSubstr("update 5: it consumed 2 results instead of 3"));
  EXPECT_THAT(at5([](auto* record) { *record->mutable_results(2) = record->results(1); }),
              HasSubstr("was consumed before"));
  EXPECT_THAT(at5([](auto* record) { record->mutable_update()->set_learning_rate(0.06); }),
              HasSubstr("update 5: it computes to policy"));
  EXPECT_THAT(at5([](auto* record) { record->mutable_weights()->Set(0, 0.5); }),
              HasSubstr("update 5: its record differs"));
  EXPECT_THAT(at5([](auto* record) { record->set_mean_reward(record->mean_reward() + 1e-16); }),
              HasSubstr("update 5: its record differs"));
  EXPECT_THAT(at5([](auto* record) { record->set_version(0); }),  // left out
              HasSubstr("line 5: holds update 6 where update 5 belongs"));
  EXPECT_THAT(afterChanging(7, [](auto* record) { record->set_version(0); }),
              HasSubstr("ends with update 6"));
  v1::EpisodeResult first;
  afterChanging(1, [&](auto* record) {
    first = record->results(0);
    record->set_version(0);
  });
  EXPECT_THAT(at5([&](auto* record) { *record->mutable_results(0) = first; }),
              HasSubstr("result result-0 was consumed before"));
}

// No update follows from these.
TEST_F(Archive, VerifyFindsWhatChangesNoPolicy) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const auto counts = [](auto* record) {
    record->mutable_results(0)->mutable_counts()->set_unique_rows(7);
  };
  const std::string changed = "history.jsonl is not the file that export.json was written with";
  EXPECT_THAT(afterChanging(2, counts), HasSubstr(changed));
  EXPECT_THAT(afterChanging(3, [](auto* r) { r->mutable_results(1)->set_device("gpu"); }),
              HasSubstr(changed));
  EXPECT_THAT(afterChanging(7, [](auto* r) { r->mutable_results(2)->set_worker("other"); }),
              HasSubstr(changed));

  const std::string path = out_ + "/evaluations.jsonl";
  const std::string before = readFile(path);
  const auto afterChange = [&](const std::function<void(std::vector<v1::EvaluationResult>*)>& at) {
    std::vector<v1::EvaluationResult> results;
    for (const std::string& line : lines(before)) {
      EXPECT_TRUE(parseExactJson(line, &results.emplace_back()));
    }
    at(&results);
    std::string after;
    for (const v1::EvaluationResult& result : results) after += *exactJson(result) + "\n";
    write(path, after);
    const auto verified = verify(out_);
    auto store = emptyStore();
    EXPECT_EQ(import(out_, store.get()).has_value(), verified.has_value());
    return verified ? "verified" : verified.error().message;
  };
  const std::string replaced =
      "evaluations.jsonl is not the file that export.json was written with";
  EXPECT_EQ(afterChange([](auto*) {}), "verified");
  EXPECT_THAT(afterChange([](auto* results) {
                auto* score = results->at(1).mutable_scores(0);
                score->set_score(score->score() > 0 ? 0 : 1);
              }),
              HasSubstr(replaced));
  EXPECT_THAT(afterChange([](auto* results) { results->at(4).set_device("gpu"); }),
              HasSubstr(replaced));
  EXPECT_THAT(afterChange([](auto* results) { std::swap(results->at(0), results->at(1)); }),
              HasSubstr(replaced));
}

// An interrupted export leaves lines that export.json does not count, and an editor anything.
TEST_F(Archive, WhatFollowsTheLastRecordIsRefused) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  for (const char* name : {"history.jsonl", "evaluations.jsonl"}) {
    const std::string path = out_ + "/" + name, before = readFile(path);
    for (const std::string& more : {before, std::string("x"), std::string(100'000, '\0')}) {
      write(path, before + more);
      const auto refused =
          isError(ErrorCode::kData, HasSubstr(name + std::string(" goes on behind")));
      EXPECT_THAT(verify(out_), refused);
      auto store = emptyStore();
      EXPECT_THAT(import(out_, store.get()), refused);
      EXPECT_FALSE(store->readSpec()->has_value());
      // The mend that the message names.
      const std::string mended = folder_ + "/mended";
      auto reader = valueOf(ArchiveReader::open(out_));
      ASSERT_THAT(exportRun(reader.get(), mended), succeeds());
      EXPECT_TRUE(verify(mended));
      EXPECT_EQ(readFile(mended + "/" + name), before);
    }
    write(path, before);
  }
  EXPECT_TRUE(verify(out_));
}

// With new digests, as somebody who knows the format writes them.
TEST_F(Archive, VerifyHoldsEvaluationsToTheirPlan) {
  run_ = std::make_unique<SmallRun>(store_.get());
  run_->evaluate(4);
  run_->update(6);
  run_->planEvaluation();
  run_->evaluate(4);
  run_->update();
  ASSERT_TRUE(exportTo(out_));
  const auto is = [](const v1::EvaluationResult& result, const char* schedule, uint64_t budget) {
    return result.unit().schedule_name() == schedule && result.unit().total_budget() == budget;
  };
  EXPECT_EQ(afterEditing([](auto*, auto*) {}), "verified");
  // Measured under another schedule than the name says, or with other draws.
  EXPECT_THAT(afterEditing([&](Results* results, auto*) {
                for (auto& result : *results) {
                  if (is(result, "learned", 8)) result.mutable_unit()->set_schedule(0, 16);
                }
              }),
              HasSubstr("/learned/8 is not one that version 6 plans"));
  EXPECT_THAT(
      afterEditing([](Results* results, auto*) { results->at(0).mutable_unit()->set_repeat(7); }),
      HasSubstr("is not one that version 0 plans"));
  // The best chunk alone; a budget; a version; one of the two.
  const std::string deleted = "was planned, and is neither recorded nor open: it was deleted";
  EXPECT_THAT(afterEditing([&](Results* results, auto*) {
                std::erase_if(*results, [&](const auto& result) {
                  return is(result, "learned", 8) && result.unit().chunk() == 0;
                });
              }),
              HasSubstr("unit v000006/c0000/s2anta-sys/learned/8 " + deleted));
  for (const uint64_t version : {0, 6}) {
    EXPECT_THAT(afterEditing([&](Results* results, auto*) {
                  std::erase_if(*results, [&](const auto& result) {
                    return result.unit().policy_version() == version;
                  });
                }),
                HasSubstr(deleted));
  }
  EXPECT_THAT(afterEditing([](Results* results, auto*) {
                std::erase_if(*results,
                              [](const auto& r) { return r.unit().total_budget() == 16; });
              }),
              HasSubstr(deleted));
  // Only the questions with the best answers.
  EXPECT_THAT(afterEditing([&](Results* results, auto*) {
                Results split;
                for (const auto& result : *results) {
                  for (const auto& score : result.scores()) {
                    if (is(result, "learned", 8) && score.score() < 1) continue;
                    v1::EvaluationResult& one = split.emplace_back(result);
                    v1::EvaluationUnit& unit = *one.mutable_unit();
                    unit.set_unit_id(unit.unit_id() + "/" + std::to_string(score.question()));
                    unit.set_first_question(score.question());
                    unit.set_question_count(1);
                    one.clear_scores();
                    one.clear_answers();
                    *one.add_scores() = score;
                  }
                }
                *results = split;
              }),
              HasSubstr(deleted));
  EXPECT_THAT(afterEditing([](Results* results, auto*) { results->push_back(results->back()); }),
              HasSubstr("is recorded twice"));
  EXPECT_THAT(afterEditing([](Results* results, auto*) {
                results->push_back(results->back());
                results->back().mutable_unit()->set_unit_id("v000006/c0000/dense/dense/0");
              }),
              HasSubstr("v000006/c0000/dense/dense/0 is not one that version 6 plans"));

  // What a run may lack is named.
  const auto open = [](Results* results, v1::RunExport* head) {
    *head->add_open_units() = results->back().unit();
    results->pop_back();
  };
  EXPECT_EQ(afterEditing(open), "verified 6:s2anta-sys/learned/8:1");
  EXPECT_THAT(afterEditing([&](Results* results, v1::RunExport* head) {
                open(results, head);
                head->mutable_open_units(0)->set_total_budget(15);
              }),
              HasSubstr(deleted));
  EXPECT_THAT(afterEditing([&](Results* results, v1::RunExport* head) {
                open(results, head);
                head->mutable_state()->set_evaluated_version(7);
                head->set_desired("finished");
              }),
              HasSubstr("v000007/c0000/s2anta-sys/learned/8 is not recorded, and the run says that "
                        "it is finished"));
  EXPECT_EQ(
      afterEditing([&](Results* results, v1::RunExport* head) {
        results->pop_back();
        head->mutable_experiment_in_force()->mutable_spec()->mutable_stop()->set_max_worker_hours(
            1e-4);
      }),
      "verified 6:s2anta-sys/learned/8:1");
}

// A version's schedule may be that of another cell. Draws depend on the question alone.
TEST_F(Archive, VerifyComparesCellsOfOneSchedule) {
  run_ = std::make_unique<SmallRun>(store_.get());
  run_->evaluate(4);
  ASSERT_TRUE(exportTo(out_));
  const auto scoreOf = [](const std::string& build, const std::string& arithmetic, double score) {
    return [=](Results* results, v1::RunExport*) {
      for (auto& result : *results) {
        result.set_build("allot");
        result.set_arithmetic("avx");
      }
      // In the place of a unit of the same questions.
      const v1::EvaluationUnit unit = results->at(1).unit();
      results->at(1) = results->at(0);
      *results->at(1).mutable_unit() = unit;
      *results->at(1).mutable_unit()->mutable_schedule() = results->at(0).unit().schedule();
      results->at(1).mutable_scores(0)->set_score(score);
      results->at(1).set_build(build);
      results->at(1).set_arithmetic(arithmetic);
    };
  };
  const std::string other =
      "have the same schedule, questions, build and arithmetic, and other scores";
  EXPECT_THAT(afterEditing(scoreOf("allot", "avx", 0.25)), HasSubstr(other));
  EXPECT_THAT(afterEditing([&](Results* results, v1::RunExport* head) {
                scoreOf("allot", "avx", results->at(0).scores(0).score())(results, head);
                results->at(1).mutable_scores(0)->set_tokens(9);
              }),
              HasSubstr(other));
  for (const auto& edit : {scoreOf("allot 2", "avx", 0.25), scoreOf("allot", "gpu", 0.25)}) {
    EXPECT_THAT(afterEditing(edit), HasSubstr("is not one that version 0 plans"));
  }
}

// Scores are compared by place, and tables are by question and task.
TEST_F(Archive, VerifyFindsOtherQuestionsAndTasks) {
  run_ = std::make_unique<SmallRun>(store_.get());
  run_->evaluate(4);
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(afterEditing([](auto*, auto*) {}).substr(0, 8), "verified");
  EXPECT_THAT(afterEditing([](Results* results, auto*) {
                auto& scores = *results->at(0).mutable_scores();
                const uint32_t first = scores.begin()->question();
                scores.begin()->set_question(first + 1);
                std::next(scores.begin())->set_question(first);
              }),
              HasSubstr("has scores that cannot be"));
  const auto otherTask = [](size_t unit) {
    return [=](Results* results, v1::RunExport*) {
      v1::QuestionScore& score = *results->at(unit).mutable_scores(3);
      score.set_task(1 - score.task());
    };
  };
  for (const size_t unit : {0, 1, 2, 3}) {
    EXPECT_THAT(afterEditing(otherTask(unit)),
                AllOf(HasSubstr("evaluation units v000000/c000"), HasSubstr(" say that question "),
                      HasSubstr(" is of two tasks: one of them was changed, or made up")));
  }
}

// What people may change while a run goes on changes no unit.
TEST_F(Archive, ARunWhoseSettingsWereEditedVerifies) {
  run_ = std::make_unique<SmallRun>(store_.get());
  run_->evaluate(3);
  run_->update(3);
  run_->planEvaluation();  // every 3 updates, then every 5
  run_->evaluate(2);
  Control control = valueOf(valueOf(store_->readControl()));
  control.experiment = valueOf(withSettings(
      control.experiment, {"spec.evaluation.everyUpdates=5", "spec.update.maxUpdates=7"}));
  ASSERT_TRUE(store_->changeControl(control).value());
  run_->update(2);
  run_->planEvaluation();
  run_->update(2);
  run_->planEvaluation();
  run_->evaluate(3);
  ASSERT_TRUE(exportTo(out_));
  EXPECT_EQ(afterEditing([](auto*, auto*) {}),
            "verified 5:s2anta-sys/learned/16:2 5:s2anta-sys/learned/8:2 7:s2anta-sys/learned/16:2 "
            "7:s2anta-sys/learned/8:2");
  EXPECT_THAT(valueOf(verify(out_)).unevaluated, testing::IsEmpty());
  StoreSource source(store_.get(), kRunId);
  EXPECT_TRUE(verifyRun(&source));
}

TEST_F(Archive, VerifyComparesTheEndWithTheStore) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const std::string path = out_ + "/export.json";
  v1::RunExport good;
  ASSERT_TRUE(parseExactJson(readFile(path), &good));
  const auto verdict = [&](const std::function<void(v1::RunExport*)>& change) -> std::string {
    v1::RunExport changed = good;
    change(&changed);
    write(path, *exactJson(changed));
    const auto verified = verify(out_);
    return verified ? "verified" : verified.error().message;
  };
  EXPECT_EQ(verdict([](auto*) {}), "verified");
  EXPECT_THAT(verdict([](auto* e) {
                auto* moments = e->mutable_state()->mutable_second_moment();
                moments->Set(1, moments->Get(1) + 1e-9);
              }),
              HasSubstr("second_moment differs"));
  EXPECT_THAT(verdict([](auto* e) { e->mutable_state()->set_episodes(20); }),
              HasSubstr("episodes differs"));
  EXPECT_THAT(verdict([](auto* e) { e->mutable_state()->set_optimizer_steps(8); }),
              HasSubstr("optimizer_steps differs"));
  EXPECT_THAT(verdict([](auto* e) { e->set_policy_sha256(std::string(64, '0')); }),
              HasSubstr("the published policy is not the state's"));
  EXPECT_THAT(verdict([](auto* e) {
                e->mutable_state()->mutable_policy()->set_version(6);
                e->set_policy_sha256(policyDigest(e->state().policy()));
              }),
              HasSubstr("policy differs"));
  EXPECT_THAT(verdict([](auto* e) { e->mutable_state()->set_evaluated_version(3); }),
              HasSubstr("unit v000003/c0000/s2anta-sys/learned/8 was planned"));
}

// Before anything is computed from it.
TEST_F(Archive, ARunWhoseLeastExceedsItsBudgetIsRefused) {
  RunSpec spec = SmallRun(store_.get()).spec();
  v1::ModelFacts model;
  model.set_layers(3);
  EXPECT_TRUE(firstState(spec, model));
  for (const char* learner : {"additive", "reinforce"}) {
    const auto changed = valueOf(
        withSettings(spec.experiment,
                     {std::string("spec.update={episodesPerUpdate: 4, learner: ") + learner + "}",
                      "spec.rollout={questionsPerEpisode: 4, episodesPerQuestionSet: 4}",
                      "spec.policy={totalBudget: 8, minPerLayer: 3}"}));
    EXPECT_THAT(firstState({changed, specDigest(changed)}, model),
                isError(ErrorCode::kData, HasSubstr("needs 9 draws, more than")))
        << learner;
  }
}

// By the last bit, too; the digest has to fit.
TEST_F(Archive, VerifyFindsTheLastBit) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const auto changed = [&](const std::function<void(v1::IterationRecord*)>& change) {
    return afterChanging(7, change);
  };
  EXPECT_THAT(
      changed([](auto* record) {
        record->set_step_kl_nats(std::nextafter(record->step_kl_nats(), 1));
      }),
      HasSubstr("update 7: its record differs from what it computes to: modified: step_kl"));
  const auto next = [](double logit) { return std::nextafter(logit, 1); };
  EXPECT_THAT(changed(changeLogit(next, true)), HasSubstr("update 7: it computes to policy"));
  EXPECT_THAT(changed(changeLogit(next, false)), HasSubstr("update 7: its record differs"));
}

TEST_F(Archive, ARunOfAnotherArithmeticIsRefusedWithTheBuildToUse) {
  makeRun();
  ASSERT_TRUE(exportTo(out_));
  const std::string path = out_ + "/export.json";
  v1::RunExport exported;
  ASSERT_TRUE(parseExactJson(readFile(path), &exported));
  for (const char* arithmetic : {"exact-0", ""}) {
    exported.set_arithmetic(arithmetic);
    exported.set_build("allot 0.0");
    write(path, *exactJson(exported));
    EXPECT_THAT(
        verify(out_),
        isError(ErrorCode::kUsage, HasSubstr(std::string("was computed by arithmetic \"") +
                                             arithmetic + "\", and this build has " + kArithmetic +
                                             ": use the build that made it, allot 0.0")));
  }
}

TEST_F(Archive, VerifyFindsAStoreThatDisagreesWithItself) {
  makeRun();
  // Imported with a history that goes on behind the state.
  auto other = emptyStore();
  StoreSource source(store_.get(), kRunId);
  auto head = source.readHead();
  ASSERT_TRUE(head);
  const auto records = store_->readHistory(0, 100);
  class Ahead final : public RunSource {
   public:
    Ahead(RunHead head, std::vector<v1::IterationRecord> records)
        : head_(std::move(head)), records_(std::move(records)) {}
    Result<RunHead> readHead() override { return head_; }
    Result<std::vector<v1::IterationRecord>> nextRecords() override {
      return std::exchange(records_, {});
    }
    Result<std::vector<v1::EvaluationResult>> nextEvaluations() override {
      return std::vector<v1::EvaluationResult>();
    }
    Status checkEnd() override { return fail(ErrorCode::kData, "the history goes on"); }
    std::string name() const override { return "x"; }

   private:
    RunHead head_;
    std::vector<v1::IterationRecord> records_;
  };
  Ahead ahead(*head, *records);
  EXPECT_THAT(verifyRun(&ahead), isError("the history goes on"));
}

}  // namespace
}  // namespace allot::test
