// Audits by itself: what is drawn, who is asked, and who is found to lie.
#include "aggregator/learner/audits.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "tests/proto_text.h"
#include "tests/results.h"

namespace allot {
namespace {

// A fleet whose workers push episodes of eight answers and answer what they are asked.
class AuditsTest : public testing::Test {
 protected:
  // The true score is 0.5; a worker of this table has others.
  using Scores = std::function<double(uint64_t ticket, uint32_t place)>;

  void add(const std::string& worker, const std::string& arithmetic = "cpu", Scores scores = {}) {
    v1::WorkerBeat& beat = beats_[worker];
    beat.set_worker(worker);
    beat.set_state("rollout");
    beat.set_build("1");
    beat.set_arithmetic(arithmetic);
    if (scores) scores_[worker] = std::move(scores);
    look();
  }
  // It has been gone for a while.
  void remove(const std::string& worker) {
    beats_.erase(worker);
    now_ += 120'000;
    look();
  }
  void look() {
    std::vector<v1::WorkerBeat> beats;
    for (const auto& [name, beat] : beats_) beats.push_back(beat);
    audits_.setWorkers(beats, now_);
  }
  double score(const std::string& worker, uint64_t ticket, uint32_t place) const {
    const auto own = scores_.find(worker);
    return own == scores_.end() ? 0.5 : own->second(ticket, place);
  }
  v1::QuestionScore scoreOf(const std::string& worker, uint64_t ticket, uint32_t place) const {
    v1::QuestionScore of;
    of.set_score(score(worker, ticket, place));
    of.set_tokens(30);
    of.set_task(place % 2);
    of.set_other_score(0.25);
    if (const auto own = labels_.find(worker); own != labels_.end()) own->second(&of);
    return of;
  }
  void push(const std::string& worker, const std::string& arithmetic = "cpu") {
    v1::EpisodeResult result;
    result.set_worker(worker);
    result.set_build("1");
    result.set_arithmetic(arithmetic);
    result.set_ticket(ticket_++);
    for (uint32_t i = 0; i < 8; ++i) {
      *result.add_scores() = scoreOf(worker, result.ticket(), i);
    }
    audits_.take(result);
  }
  std::vector<v1::AuditTasks> ask(uint64_t ms = 1'000) {
    now_ += ms;
    look();
    return audits_.ask(now_);
  }
  v1::AuditAnswers answer(const v1::AuditTasks& tasks) const {
    v1::AuditAnswers answers;
    answers.set_worker(tasks.worker());
    answers.set_number(tasks.number());
    answers.set_build("1");
    answers.set_arithmetic(beats_.at(tasks.worker()).arithmetic());
    for (const v1::AuditTask& task : tasks.tasks()) {
      v1::AuditAnswer& of = *answers.add_answers();
      for (uint32_t i = 0; i < task.count(); ++i) {
        *of.add_scores() = scoreOf(tasks.worker(), task.ticket(), task.first() + i);
      }
    }
    return answers;
  }
  // All are asked, and answer, in the order of their names from the last.
  bool round() {
    std::vector<v1::AuditAnswers> answers;
    for (const v1::AuditTasks& tasks : ask()) {
      if (tasks.lies().empty()) answers.insert(answers.begin(), answer(tasks));
    }
    return audits_.answered(answers);
  }
  void settle() {
    for (int i = 0; i < 50 && audits_.open(); ++i) round();
    EXPECT_FALSE(audits_.open());
  }
  static Scores always(double score) {
    return [score](uint64_t, uint32_t) { return score; };
  }

  uint64_t now_ = 0, ticket_ = 0;
  std::map<std::string, v1::WorkerBeat> beats_;
  std::map<std::string, Scores> scores_;
  std::map<std::string, std::function<void(v1::QuestionScore*)>> labels_;  // of liars
  Audits audits_ = [] {
    Audits audits(7, true);
    audits.setShare(1e-9);
    return audits;
  }();
};

TEST_F(AuditsTest, AFewAnswersOfTheFirstEpisodeAreAuditedAndResultsWaitUntilThen) {
  add("a");
  push("a");
  EXPECT_FALSE(audits_.open());
  EXPECT_FALSE(audits_.holds("a"));
  EXPECT_EQ(audits_.status().summary(), "not audited: one worker");
  add("b");
  push("a");
  EXPECT_TRUE(audits_.holds("a"));
  EXPECT_FALSE(audits_.holds("b"));
  const auto tasks = ask();
  ASSERT_THAT(tasks, SizeIs(1));
  EXPECT_EQ(tasks[0].worker(), "b");
  ASSERT_EQ(tasks[0].tasks_size(), 1);
  EXPECT_EQ(tasks[0].tasks(0).count(), 4u);
  EXPECT_LE(tasks[0].tasks(0).first(), 4u);
  EXPECT_EQ(tasks[0].tasks(0).ticket(), 1u);
  EXPECT_EQ(ask()[0].SerializeAsString(), tasks[0].SerializeAsString());
  v1::AuditAnswers other = answer(tasks[0]);
  other.set_number(other.number() + 1);
  EXPECT_FALSE(audits_.answered({other}));
  EXPECT_TRUE(audits_.holds("a"));
  EXPECT_FALSE(audits_.answered({answer(tasks[0])}));
  EXPECT_FALSE(audits_.holds("a"));
  push("a");
  EXPECT_THAT(ask(), IsEmpty());
  EXPECT_EQ(audits_.status().summary(), "4 of 24 answers, all equal");

  // The first unit likewise, of accuracy alone; a part of a unit is a unit of these questions.
  v1::EvaluationResult unit;
  unit.set_worker("a");
  unit.set_build("1");
  unit.set_arithmetic("cpu");
  unit.mutable_unit()->set_measure("fidelity");
  audits_.take(unit);
  EXPECT_FALSE(audits_.open());
  unit.mutable_unit()->set_measure("accuracy");
  unit.mutable_unit()->set_first_question(32);
  unit.mutable_unit()->set_question_count(2);
  unit.add_scores()->set_score(0.5);
  unit.add_scores()->set_score(0.5);
  audits_.take(unit);
  EXPECT_TRUE(audits_.holds("a"));
  const auto of_unit = ask()[0].tasks(0);
  EXPECT_EQ(of_unit.unit().first_question(), 32u);
  EXPECT_EQ(of_unit.unit().question_count(), 2u);
}

TEST_F(AuditsTest, EachAnswerIsDrawnWithTheProbabilityOfTheShare) {
  audits_.setShare(0.02);
  add("a");
  add("b");
  push("a");
  settle();
  for (int i = 0; i < 5'000; ++i) {
    push("a");
    settle();
  }
  // 40,000 draws: 800 +- 28.
  EXPECT_NEAR(static_cast<double>(audits_.status().audited()), 804, 5 * 28);
  audits_.setShare(0);
  push("a");
  EXPECT_FALSE(audits_.open());
  EXPECT_EQ(audits_.status().summary(), "none: spec.audit.share is 0");
}

TEST_F(AuditsTest, FalseTasksAndOtherScoresAreLies) {
  labels_["task"] = [](auto* of) { of->set_task(1 - of->task()); };
  labels_["other"] = [](auto* of) { of->set_other_score(1); };
  labels_["none"] = [](auto* of) { of->clear_other_score(); };
  for (const char* worker : {"b", "c", "d"}) add(worker);
  for (const char* liar : {"task", "other", "none"}) {
    add(liar);
    push(liar);
    settle();
  }
  EXPECT_THAT(audits_.lies("task"), HasSubstr("its tasks of ticket 0 are not those that workers"));
  EXPECT_THAT(audits_.lies("other"), HasSubstr("its other scores of ticket 1 are not those that"));
  EXPECT_THAT(audits_.lies("none"), HasSubstr("its other scores of ticket 2 are not those that"));
  for (const char* honest : {"b", "c", "d"}) EXPECT_EQ(audits_.lies(honest), "");
}

TEST_F(AuditsTest, OtherDevicesChangeNoTask) {
  audits_.setShare(1);
  labels_["a"] = [](auto* of) { of->set_other_score(0.75); };
  labels_["liar"] = [](auto* of) { of->set_task(1 - of->task()); };
  add("a", "gpu");
  add("liar", "npu");
  for (const char* worker : {"b", "c", "d"}) add(worker);
  for (int i = 0; i < 10; ++i) {
    push("a", "gpu");
    settle();
  }
  EXPECT_EQ(audits_.liars(), 0u);
  push("liar", "npu");
  settle();
  EXPECT_THAT(audits_.lies("liar"), HasSubstr("most workers of other devices differ from it in"));
}

TEST_F(AuditsTest, AnAnswerInDoubtIsAuditedOnce) {
  for (const char* worker : {"a", "b", "c"}) add(worker);
  const auto unit = messageFrom<v1::EvaluationResult>(R"(
    unit { first_question: 32 question_count: 2 } worker: "a" build: "1" arithmetic: "cpu"
    scores { score: 0.5 } scores { score: 0.5 task: 1 })");
  audits_.doubt(unit, 1);
  audits_.doubt(unit, 1);
  EXPECT_TRUE(audits_.holds("a"));
  const auto asked = ask().at(0);
  ASSERT_EQ(asked.tasks_size(), 1);
  EXPECT_EQ(asked.tasks(0).unit().first_question(), 33u);
  audits_.setShare(0);
  audits_.doubt(unit, 0);
  EXPECT_FALSE(audits_.open());
}

TEST_F(AuditsTest, OfTwoThatDisagreeAThirdNamesTheLiar) {
  add("a", "cpu", always(1));
  add("b");
  push("a");
  round();
  EXPECT_TRUE(audits_.holds("a"));
  EXPECT_TRUE(audits_.holds("b"));
  EXPECT_THAT(audits_.whyWaiting(),
              AllOf(StartsWith("workers a and b disagree on ticket 0"), HasSubstr("start one")));
  EXPECT_EQ(audits_.lies("a"), "");
  // While they are alone, time decides nothing; nor does one of another kind.
  EXPECT_THAT(ask(3'600'000), IsEmpty());
  EXPECT_THAT(audits_.whyWaiting(), HasSubstr("disagree"));
  add("gpu", "H200");
  EXPECT_THAT(audits_.whyWaiting(), HasSubstr("disagree"));
  add("c");
  EXPECT_EQ(audits_.whyWaiting(), "");
  EXPECT_TRUE(round());
  EXPECT_EQ(audits_.lies("a"), "its scores of ticket 0 are not those that workers b and c measure");
  EXPECT_FALSE(audits_.holds("b"));
  EXPECT_THAT(audits_.status().summary(),
              StartsWith("4 of 8 answers, 4 differ; worker a lies: its scores of ticket 0"));
  EXPECT_EQ(audits_.status().liars(), 1u);
  // It is told so, is asked nothing more, and its results are not audited.
  push("a");
  EXPECT_FALSE(audits_.open());
  push("b");
  for (const v1::AuditTasks& tasks : ask()) EXPECT_EQ(tasks.worker() == "a", tasks.tasks().empty());
}

// As a broken machine that begins again under another name would be.
TEST_F(AuditsTest, WhoWasAuditedItselfDecides) {
  add("b");
  add("d");
  for (const char* worker : {"b", "d"}) push(worker);
  settle();
  for (int i = 0; i < 10; ++i) {
    const std::string liar = "a" + std::to_string(i);
    add(liar, "cpu", always(1));
    push(liar);
    round();
    add("new", "cpu", always(1));
    const auto tasks = ask();
    ASSERT_THAT(tasks, SizeIs(1 + i));  // the others are told that they lie
    for (const v1::AuditTasks& of : tasks) EXPECT_EQ(of.worker() == "new", false);
    settle();
    EXPECT_THAT(audits_.lies(liar), HasSubstr("are not those that workers"));
    remove("new");
  }
}

TEST_F(AuditsTest, AnAuditorMayLieToo) {
  add("a");
  add("b", "cpu", always(0));
  push("a");
  round();
  add("c");
  EXPECT_TRUE(round());
  EXPECT_THAT(audits_.lies("b"),
              HasSubstr("the audit of ticket 0 are not those of workers a and c"));
  EXPECT_EQ(audits_.lies("a"), "");
}

TEST_F(AuditsTest, IfAllThreeDifferNobodyIsNamed) {
  add("a", "cpu", always(1));
  add("b", "cpu", always(0));
  push("a");
  round();
  add("c");
  EXPECT_FALSE(round());
  EXPECT_FALSE(audits_.open());
  EXPECT_EQ(audits_.status().undecided(), 1u);
  EXPECT_EQ(audits_.status().liars(), 0u);
}

TEST_F(AuditsTest, AnAuditWithoutAnAnswerIsGivenToOthersAndThenDropped) {
  for (const char* worker : {"a", "b", "c", "d", "e"}) add(worker);
  push("a");
  settle();
  audits_.setShare(1);
  push("a");
  audits_.setShare(1e-9);
  std::set<std::string> asked;
  for (int i = 0; i < 3; ++i) {
    const auto tasks = ask(i == 0 ? 1'000 : 600'000);
    ASSERT_FALSE(tasks.empty());
    for (const v1::AuditTasks& of : tasks) asked.insert(of.worker());
  }
  EXPECT_THAT(asked, SizeIs(4));  // one that was silent is asked last
  for (int i = 0; i < 20 && audits_.open(); ++i) ask(600'000);
  EXPECT_FALSE(audits_.open());
  EXPECT_EQ(audits_.status().dropped(), 8u);
  EXPECT_EQ(audits_.status().summary(), "4 of 16 answers, all equal, 8 dropped");
}

TEST_F(AuditsTest, AFirstAuditEndsWithAnAnswerOrWhenTheWorkerIsAlone) {
  for (const char* worker : {"a", "b", "c", "d", "e"}) add(worker);
  push("a");
  // Whoever is asked is silent, or gone.
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(ask(600'000), SizeIs(1));
    EXPECT_TRUE(audits_.holds("a"));
  }
  EXPECT_THAT(audits_.whyWaiting(), StartsWith("the first results of worker a wait, since 9 work"));
  for (int i = 0; i < 3; ++i) {
    const std::string first = ask()[0].worker();
    remove(first);
    EXPECT_NE(ask()[0].worker(), first);
    EXPECT_TRUE(audits_.holds("a"));
  }
  EXPECT_EQ(audits_.status().dropped(), 0u);
  // Others can delete a beat, but not what tells of life for a while.
  const auto last = std::prev(beats_.end());
  ASSERT_NE(last->first, "a");
  const std::string left = last->first;
  beats_.erase(last);
  EXPECT_EQ(ask(14'000)[0].worker(), left);
  EXPECT_TRUE(audits_.holds("a"));
  push(left);
  EXPECT_EQ(ask(14'000)[0].worker(), "a");
  EXPECT_TRUE(audits_.holds("a"));
  // Nobody is left; and the next result is the first one.
  EXPECT_THAT(ask(14'000), Not(Contains(testing::Property(&v1::AuditTasks::worker, left))));
  EXPECT_FALSE(audits_.holds("a"));
  add("f");
  push("a");
  EXPECT_TRUE(audits_.holds("a"));
}

// A worker is waited for as long as its results take, a few times, and for what it has in hand.
TEST_F(AuditsTest, ASilentWorkerIsNotWaitedForLong) {
  add("a");
  add("b");
  v1::EpisodeResult counted;
  counted.set_worker("a");
  counted.set_seconds(5);
  audits_.counts(counted, 1);
  push("a");
  EXPECT_THAT(ask(), SizeIs(1));
  const uint64_t number = ask(99'000)[0].number();
  EXPECT_NE(ask(1'000)[0].number(), number);  // 60 s, and 8 times 5 s
  // Names that answer nothing have but few of the places, once others have shown what they are.
  for (const char* worker : {"c", "d"}) add(worker);
  for (const char* worker : {"b", "c", "d"}) push(worker);
  settle();
  for (int i = 0; i < 60; ++i) add("s" + std::to_string(i));
  audits_.setShare(1);
  push("a");
  push("b");
  push("c");
  uint64_t silent = 0;
  for (int i = 0; i < 9; ++i) {
    silent = 0;
    std::vector<v1::AuditAnswers> answers;
    for (const v1::AuditTasks& tasks : ask()) {
      if (tasks.worker()[0] == 's') {
        silent += static_cast<uint64_t>(tasks.tasks_size());
      } else {
        answers.push_back(answer(tasks));
      }
    }
    audits_.answered(answers);
  }
  EXPECT_EQ(silent, 4u);
  EXPECT_EQ(audits_.status().open(), 4u);
}

// Three honest workers and two names of one that lies where it audits.
TEST_F(AuditsTest, TheMajorityDecides) {
  uint64_t liars = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    audits_.~Audits();
    new (&audits_) Audits(seed, true);
    audits_.setShare(0.02);
    scores_.clear();
    for (const char* worker : {"a", "b", "c", "x", "y"}) add(worker);
    for (const char* worker : {"a", "b", "c", "x", "y"}) push(worker);
    settle();
    for (const char* worker : {"x", "y"}) scores_[worker] = always(1);
    for (int i = 0; i < 2'000 && audits_.status().liars() < 2; ++i) {
      for (const char* worker : {"a", "b", "c"}) push(worker);
      for (int r = 0; r < 3; ++r) round();
    }
    for (const char* worker : {"a", "b", "c"}) ASSERT_EQ(audits_.lies(worker), "") << seed;
    liars += audits_.status().liars();
  }
  EXPECT_EQ(liars, 400u);
}

// Two names that audit each other under an arithmetic that they have invented.
TEST_F(AuditsTest, AnArithmeticOfTheirOwnHidesNoTwoLiars) {
  std::vector<uint64_t> found;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    audits_.~Audits();
    new (&audits_) Audits(seed, true);
    audits_.setShare(0.02);
    for (const char* worker : {"a", "b", "c"}) add(worker);
    for (const char* worker : {"x", "y"}) add(worker, "mine", always(1));
    uint64_t answers = 0;
    for (; answers < 40'000 && audits_.status().liars() < 2; answers += 8) {
      for (const char* worker : {"a", "b", "c"}) push(worker);
      for (const char* worker : {"x", "y"}) push(worker, "mine");
      for (int r = 0; r < 3; ++r) round();
    }
    for (const char* worker : {"a", "b", "c"}) ASSERT_EQ(audits_.lies(worker), "") << seed;
    found.push_back(answers);
  }
  std::sort(found.begin(), found.end());
  std::printf("two liars: both named within %d answers of each; median %d\n",
              static_cast<int>(found[94]), static_cast<int>(found[50]));
  EXPECT_LT(found[94], 4'000u);
}

// Two of an arithmetic that nobody else has cannot hold the run.
TEST_F(AuditsTest, ADisputeThatNobodyDecidesIsPutAside) {
  add("x", "mine", always(1));
  add("y", "mine");
  push("x", "mine");
  round();
  EXPECT_TRUE(audits_.holds("x") && audits_.holds("y"));
  EXPECT_THAT(ask(3'600'000), IsEmpty());
  EXPECT_THAT(audits_.takePutAside(), IsEmpty());  // nobody else could do their work
  add("a");
  EXPECT_THAT(ask(59'000), IsEmpty());
  EXPECT_TRUE(audits_.holds("x") && audits_.holds("y"));
  EXPECT_THAT(ask(), IsEmpty());
  const auto aside = audits_.takePutAside();
  EXPECT_THAT(aside, ElementsAre(testing::Key("x"), testing::Key("y")));
  EXPECT_THAT(aside.at("y"), HasSubstr("workers x and y disagree on ticket 0"));
  EXPECT_THAT(audits_.takePutAside(), IsEmpty());
  EXPECT_FALSE(audits_.holds("x") || audits_.holds("y"));
  EXPECT_THAT(audits_.status().summary(), HasSubstr(", 1 dispute undecided"));
  push("x", "mine");
  EXPECT_TRUE(audits_.holds("x"));  // a first one again
}

// One of three that lies about the length of its answer does not change what may differ.
TEST_F(AuditsTest, TheLengthOfAnswersIsTheMiddleOfThree) {
  add("a", "mine", always(1));
  add("b");
  add("c");
  push("a", "mine");
  for (const uint32_t tokens : {0u, 1'000u}) {
    auto tasks = ask();
    ASSERT_THAT(tasks, SizeIs(1));
    v1::AuditAnswers answers = answer(tasks[0]);
    for (auto& of : *answers.mutable_answers()) {
      for (auto& score : *of.mutable_scores()) score.set_tokens(tokens);
    }
    audits_.answered({answers});
  }
  EXPECT_FALSE(audits_.open());
  const v1::AuditStatus status = audits_.status();
  EXPECT_DOUBLE_EQ(status.workers(0).by_two().may_differ(), 4 * 0.005 * 30);
}

TEST_F(AuditsTest, MarksCountsAndDisputesOutliveARestart) {
  add("a", "cpu", always(1));
  add("b");
  push("a");
  round();
  const auto restart = [this] {
    const v1::AuditStatus stored = audits_.status();
    audits_.~Audits();
    new (&audits_) Audits(8, true);
    audits_.setShare(1e-9);
    audits_.restore(stored);
    look();
  };
  restart();
  EXPECT_TRUE(audits_.holds("a"));
  EXPECT_TRUE(audits_.holds("b"));
  add("c");
  EXPECT_TRUE(round());
  restart();
  EXPECT_THAT(audits_.lies("a"), HasSubstr("ticket 0"));
  EXPECT_EQ(audits_.status().audited(), 4u);
  // A first audit that was cut off begins anew; one that was settled does not.
  push("b");
  EXPECT_TRUE(audits_.holds("b"));
  restart();
  EXPECT_FALSE(audits_.holds("b"));
  push("b");
  EXPECT_TRUE(audits_.holds("b"));
  settle();
  restart();
  push("b");
  EXPECT_FALSE(audits_.open());
}

TEST_F(AuditsTest, AShareOfZeroEndsADispute) {
  add("a", "cpu", always(1));
  add("b");
  push("a");
  round();
  audits_.setShare(0);
  EXPECT_FALSE(audits_.holds("a"));
  EXPECT_EQ(audits_.status().undecided(), 1u);
}

// Who names an arithmetic of its own has no equal that could answer exactly; two others of another
// kind find it by the number of its differences.
TEST_F(AuditsTest, AnArithmeticOfItsOwnHidesNoLiar) {
  add("a", "mine", always(1));
  add("b");
  add("c");
  audits_.setShare(0.2);
  for (int i = 0; i < 8 && audits_.lies("a").empty(); ++i) {
    push("a", "mine");
    settle();
  }
  EXPECT_THAT(audits_.lies("a"), HasSubstr("most workers of other devices differ from it in"));
  // One other alone does not suffice for a name.
  add("d", "his", always(1));
  remove("c");
  for (int i = 0; i < 40; ++i) {
    push("d", "his");
    settle();
  }
  EXPECT_EQ(audits_.lies("d"), "");
  EXPECT_THAT(audits_.status().summary(), HasSubstr("worker d differs from another device"));
}

// At the margin itself, the worst case: 15 % of the scores of each worker differ from those of all
// others, in either direction.
TEST_F(AuditsTest, HonestWorkersOfOtherDevicesAreNamedOnceInAThousandRunsAtMost) {
  int named = 0;
  for (uint64_t run = 0; run < 1'000; ++run) {
    Audits audits(run, true);
    audits.setShare(1);
    std::mt19937_64 random(run);
    std::vector<v1::WorkerBeat> beats(3);
    for (size_t w = 0; w < beats.size(); ++w) {
      beats[w].set_worker(std::string(1, static_cast<char>('a' + w)));
      beats[w].set_state("idle");
      beats[w].set_arithmetic(beats[w].worker());
    }
    audits.setWorkers(beats, 0);
    for (int i = 0; i < 24; ++i) {
      for (const v1::WorkerBeat& beat : beats) {
        v1::EpisodeResult result;
        result.set_worker(beat.worker());
        result.set_arithmetic(beat.worker());
        for (int q = 0; q < 4; ++q) {
          const uint64_t x = random() % 200;
          v1::QuestionScore& score = *result.add_scores();
          score.set_score(x < 15 ? 0 : x < 30 ? 1 : 0.5);
          score.set_tokens(30);
        }
        audits.take(result);
      }
      for (int r = 0; r < 12 && audits.open(); ++r) {
        std::vector<v1::AuditAnswers> answers;
        for (const v1::AuditTasks& tasks : audits.ask(0)) {
          v1::AuditAnswers& from = answers.emplace_back();
          from.set_worker(tasks.worker());
          from.set_number(tasks.number());
          from.set_arithmetic(tasks.worker());
          for (const v1::AuditTask& task : tasks.tasks()) {
            v1::AuditAnswer& of = *from.add_answers();
            for (uint32_t q = 0; q < task.count(); ++q) {
              of.add_scores()->set_score(0.5);
              of.mutable_scores()->rbegin()->set_tokens(30);
            }
          }
        }
        audits.answered(answers);
      }
    }
    named += audits.status().liars() > 0 ? 1 : 0;
  }
  EXPECT_LE(named, 1);
}

}  // namespace
}  // namespace allot
