#pragma once
// FakeEngine: an EpisodeEngine that decodes nothing: schedules and questions as the real one draws
// them, scores made out of names, durations that differ from worker to worker. Owned by one
// worker's body; one thread.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/world.h"
#include "worker/loop/episode_engine.h"

namespace allot::sim {

// 0 or 1; the truth about a held-out question.
double heldOutScore(const v1::EvaluationUnit& unit, uint32_t question);
// What units of fidelity and variance have instead: one cell, made out of the unit's name.
v1::FidelityCell fidelityOf(const v1::EvaluationUnit& unit);
// [layers] What the layers lose in a unit of measure layer-loss.
std::vector<v1::AgreementCell> lossesOf(const v1::EvaluationUnit& unit);
// Whether `result` says about `unit` what is true.
bool isTrue(const v1::EvaluationUnit& unit, const v1::EvaluationResult& result);

class FakeEngine final : public EpisodeEngine {
 public:
  FakeEngine(World* world, const Process* process);

  Result<std::vector<v1::EpisodeResult>> rollOut(const v1::PolicySnapshot& policy,
                                                 const std::string& policy_sha256,
                                                 const std::vector<uint64_t>& tickets) override;
  Result<std::vector<v1::EpisodeResult>> answerUnder(const std::vector<Episode>& episodes) override;
  Result<v1::EvaluationResult> evaluate(const v1::EvaluationUnit& unit) override;
  std::vector<uint32_t> warmChunks() const override { return warm_; }
  // Several episodes at once, where the scenario has one a pull.
  uint32_t rowsAtOnce() const override { return 12; }

 private:
  // A score as it is told: a liar has one of its own for each answer.
  double told(double score);
  v1::EpisodeResult episode(const v1::PolicySnapshot& policy, uint64_t ticket);
  // An error once the work is to be given up.
  Status work(uint64_t ms);

  World& world_;
  const Process& process_;
  uint64_t episode_ms_;  // about how long one takes here
  std::vector<uint32_t> warm_;
};

}  // namespace allot::sim
