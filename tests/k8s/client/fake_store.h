#pragma once
// FakeStore: what a Kubernetes API server does with objects, as far as a controller can tell.
//
// resourceVersions and generations, /status apart from the rest, create, replace, merge patch,
// server-side apply, finalizers, deletion of what is owned, label selectors, and the history that
// watches read. Not here: schemas, defaults, admission, exact managed fields, merging of lists by
// key (a list that is sent replaces the one that is there). Any thread.
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace allot::kube::test {

// What a path names. collection: "group/plural"; core's group is "".
struct Target {
  std::string api_version;
  std::string collection;
  std::string plural;
  std::string space;
  std::string name;
  std::string subresource;
};
// nullopt: no path of the API.
std::optional<Target> targetOf(const std::string& path);
// Of an object, by its apiVersion, kind and metadata.
Target targetOf(const nlohmann::json& object);

struct Answer {
  int status = 200;
  nlohmann::json body;
};
// A Status object.
Answer refusal(int code, const std::string& reason, const std::string& message);

// "a=b,c!=d,e in (f,g),h notin (i),j,!k"
bool matches(const std::string& selector, const nlohmann::json& object);

class FakeStore {
 public:
  Answer get(const Target& target) const;
  Answer list(const Target& target, const std::string& selector, const std::string& name,
              size_t limit, const std::string& continued) const;
  Answer create(const Target& target, nlohmann::json object);
  Answer replace(const Target& target, nlohmann::json object);
  Answer mergePatch(const Target& target, const nlohmann::json& patch);
  Answer apply(const Target& target, const nlohmann::json& object, const std::string& manager,
               bool force);
  Answer remove(const Target& target, const nlohmann::json& options);

  // For tests, which may write everything at once, status as well.
  nlohmann::json put(nlohmann::json object);
  // null if there is none.
  nlohmann::json find(const nlohmann::json& like) const;
  std::vector<nlohmann::json> all(const std::string& plural) const;

  struct Change {
    int64_t version = 0;
    std::string collection;
    nlohmann::json before;  // null: it is new
    nlohmann::json after;   // null: it is gone; `before` has the version of that
  };
  // Changes after `version`, once there are any, or after so many ms none. nullopt: forgotten.
  std::optional<std::vector<Change>> changesAfter(int64_t version, int wait_ms) const;
  int64_t version() const;
  // Watches that begin at an older version than now are told 410.
  void forgetHistory();
  // Wakes all who wait in changesAfter.
  void wake();

 private:
  using Key = std::pair<std::string, std::string>;  // collection, "space/name"

  static Key keyOf(const Target& target);
  Answer store(const Target& target, nlohmann::json object);
  void removeNow(const Key& key, bool orphan);
  void append(const Key& key, nlohmann::json before, nlohmann::json after);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<Key, nlohmann::json> objects_;
  // What each manager applied last, of an object and subresource.
  std::map<Key, std::map<std::string, nlohmann::json>> applied_;
  std::vector<Change> history_;
  int64_t version_ = 100;
  int64_t forgotten_ = 0;
  int64_t uids_ = 0;
  int64_t wakes_ = 0;
};

}  // namespace allot::kube::test
