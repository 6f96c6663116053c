#include "core/telemetry/health.h"

#include <utility>

namespace allot {
namespace {

std::string seconds(uint64_t ms) { return std::to_string(ms / 1000) + " s"; }

}  // namespace

Health::Health(std::function<uint64_t()> now) : now_(std::move(now)) {}

void Health::loading(std::string why) {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kLoading;
  why_unready_ = std::move(why);
}

void Health::waiting(std::string why) {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kWaiting;
  why_unready_ = std::move(why);
}

void Health::progress() {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kWorking;
  progressed_ms_ = now_();
}

void Health::ready() {
  const std::lock_guard lock(mutex_);
  why_unready_.clear();
}

void Health::unready(std::string why) {
  const std::lock_guard lock(mutex_);
  why_unready_ = std::move(why);
}

void Health::storeAnswered() {
  const std::lock_guard lock(mutex_);
  store_away_ = false;
  store_answered_ms_ = now_();
}

void Health::storeDidNotAnswer() {
  const std::lock_guard lock(mutex_);
  store_away_ = true;
}

Health::Answer Health::started() const {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kLoading) return {false, "not started: " + why_unready_};
  return {true, phase_ == Phase::kWaiting ? "started: " + why_unready_ : "started"};
}

Health::Answer Health::live() const {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kWorking) return {true, "alive: " + why_unready_};
  const uint64_t silent = now_() - progressed_ms_;
  if (silent < kStuckMs) return {true, "alive"};
  return {false, "the main loop has made no progress for " + seconds(silent)};
}

// A process that does not ask the store, because an episode takes long, stays ready.
Health::Answer Health::readiness() const {
  const std::lock_guard lock(mutex_);
  if (!why_unready_.empty()) return {false, "not ready: " + why_unready_};
  if (!store_answered_ms_) return {false, "not ready: the store has not answered yet"};
  const uint64_t silent = now_() - *store_answered_ms_;
  if (store_away_ && silent >= kStoreAwayMs) {
    return {false, "not ready: the store has not answered for " + seconds(silent)};
  }
  return {true, "ready"};
}

}  // namespace allot
