#include "k8s/client/reflector.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace allot::kube {
namespace {

// managedFields takes as much room as the fields, and is not used here.
Object kept(nlohmann::json object) {
  if (object.contains("metadata")) object["metadata"].erase("managedFields");
  return std::make_shared<const nlohmann::json>(std::move(object));
}

constexpr int kFailuresToSpeakOf = 3;

}  // namespace

Object ObjectCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<Object> ObjectCache::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Object> objects;
  objects.reserve(objects_.size());
  for (const auto& [key, object] : objects_) objects.push_back(object);
  return objects;
}

size_t ObjectCache::size() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

bool ObjectCache::filled() const {
  const std::lock_guard lock(mutex_);
  return filled_;
}

std::vector<std::string> ObjectCache::replaceAll(std::vector<nlohmann::json> items) {
  std::map<std::string, Object> fresh;
  for (auto& item : items) {
    std::string key = keyOf(item);
    fresh[std::move(key)] = kept(std::move(item));
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> changed;
  for (const auto& [key, object] : fresh) {
    const auto old = objects_.find(key);
    if (old == objects_.end() || *old->second != *object) changed.push_back(key);
  }
  for (const auto& [key, object] : objects_) {
    if (!fresh.contains(key)) changed.push_back(key);
  }
  objects_ = std::move(fresh);
  filled_ = true;
  return changed;
}

std::string ObjectCache::apply(WatchEvent event) {
  if (event.type == EventType::kBookmark) return {};
  std::string key = keyOf(event.object);
  if (key.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (event.type == EventType::kDeleted) {
    objects_.erase(key);
  } else {
    objects_[key] = kept(std::move(event.object));
  }
  return key;
}

Reflector::Reflector(const ServerAccess& access, ReflectorOptions options, Changed changed)
    : options_(std::move(options)),
      changed_(std::move(changed)),
      api_(access, options_.limits, options_.clock),
      machine_(options_.random) {}

Reflector::~Reflector() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  api_.interrupt();
  if (thread_.joinable()) thread_.join();
}

void Reflector::start() {
  thread_ = quietThread([this] { run(); });
}

void Reflector::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    const auto step = turn();
    if (step.what == ListWatch::Step::What::kWait) waitUntil(step.until);
  }
}

ListWatch::Step Reflector::turn() {
  auto step = machine_.next(options_.clock());
  if (step.what == ListWatch::Step::What::kList) list();
  if (step.what == ListWatch::Step::What::kWatch) watch(step);
  return step;
}

void Reflector::list() {
  auto list =
      api_.list(options_.resource, options_.space, {.label_selector = options_.label_selector});
  {
    const std::lock_guard lock(mutex_);
    ++counts_.lists;
  }
  if (!list) {
    machine_.listFailed(options_.clock(), list.error());
    return note(&list.error());
  }
  const auto keys = objects_.replaceAll(std::move(list->items));
  machine_.listed(std::move(list->resource_version));
  if (machine_.failures() == 0) note(nullptr);
  for (const auto& key : keys) changed_(key);
}

void Reflector::watch(const ListWatch::Step& step) {
  const TimePoint began = options_.clock();
  {
    const std::lock_guard lock(mutex_);
    ++counts_.watches;
  }
  const auto take = [this](WatchEvent event) {
    machine_.saw(event);
    if (event.type != EventType::kBookmark) {
      const std::lock_guard lock(mutex_);
      ++counts_.events;
    }
    note(nullptr);
    const std::string key = objects_.apply(std::move(event));
    if (!key.empty()) changed_(key);
  };
  const auto ended = api_.watch(options_.resource, options_.space,
                                {.resource_version = step.resource_version,
                                 .label_selector = options_.label_selector,
                                 .timeout = step.timeout},
                                take);
  machine_.watchEnded(began, options_.clock(), ended);
  if (!ended) return note(&ended.error());
  static const ApiError kAtOnce{0, "Unavailable", "the watch ends as soon as it begins",
                                std::nullopt};
  note(machine_.failures() > 0 ? &kAtOnce : nullptr);
}

void Reflector::note(const ApiError* error) {
  if (error != nullptr && error->interrupted()) return;
  const std::lock_guard lock(mutex_);
  if (error == nullptr) {
    if (!problem_.empty()) spdlog::info("{} are watched again", options_.resource.plural);
    problem_.clear();
    return;
  }
  ++counts_.failures;
  const bool loud = error->refused() || machine_.failures() >= kFailuresToSpeakOf;
  if (!loud) {
    spdlog::debug("watching {}: {}", options_.resource.plural, error->message);
    return;
  }
  // Each sentence once, or every 30 s it would be told again.
  if (problem_ != error->message) {
    spdlog::error("{} cannot be watched: {}", options_.resource.plural, error->message);
  }
  problem_ = error->message;
}

void Reflector::waitUntil(TimePoint time) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, time, [this] { return stopping_; });
}

Reflector::Counts Reflector::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string Reflector::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace allot::kube
