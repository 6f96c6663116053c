#include "tests/k8s/client/fake_store.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <sstream>

#include "k8s/client/api.h"

namespace allot::kube::test {
namespace {

using nlohmann::json;

std::string pluralOf(std::string kind) {
  std::transform(kind.begin(), kind.end(), kind.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (kind == "endpoints") return kind;
  if (kind.ends_with("y")) return kind.substr(0, kind.size() - 1) + "ies";
  return kind + (kind.ends_with("s") ? "es" : "s");
}

// What counts for metadata.generation.
json desired(json object) {
  object.erase("metadata");
  object.erase("status");
  return object;
}

json withoutVersion(json object) {
  object["metadata"].erase("resourceVersion");
  return object;
}

// What an apply may own.
json ownedPart(json object, bool status) {
  if (status) return json{{"status", object.value("status", json::object())}};
  object.erase("apiVersion");
  object.erase("kind");
  object.erase("status");
  if (object.contains("metadata")) {
    for (const char* name : {"name", "namespace", "uid", "resourceVersion", "managedFields"}) {
      object["metadata"].erase(name);
    }
  }
  return object;
}

void merge(json& into, const json& sent) {
  if (!into.is_object() || !sent.is_object()) {
    into = sent;
    return;
  }
  for (const auto& [name, value] : sent.items()) merge(into[name], value);
}

// Leaves that were applied before and are left out now, unless another manager owns them.
void removeDropped(json& object, const json& before, const json& now,
                   const std::vector<json>& others) {
  if (!object.is_object() || !before.is_object()) return;
  for (const auto& [name, old] : before.items()) {
    if (!object.contains(name)) continue;
    const bool kept = now.is_object() && now.contains(name);
    if (kept && !old.is_object()) continue;
    std::vector<json> theirs;
    for (const json& other : others) {
      if (other.is_object() && other.contains(name)) theirs.push_back(other[name]);
    }
    if (old.is_object()) {
      removeDropped(object[name], old, kept ? now[name] : json(), theirs);
      if (!kept && theirs.empty() && object[name].empty()) object.erase(name);
    } else if (theirs.empty()) {
      object.erase(name);
    }
  }
}

// The path of a leaf that both have with different values; "" if there is none.
std::string conflictOf(const json& mine, const json& theirs, const std::string& path) {
  if (!mine.is_object() || !theirs.is_object()) return mine == theirs ? "" : path;
  for (const auto& [name, value] : mine.items()) {
    if (!theirs.contains(name)) continue;
    std::string found = conflictOf(value, theirs[name], path + "." + name);
    if (!found.empty()) return found;
  }
  return {};
}

std::string trimmed(const std::string& text) {
  const size_t from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') - from + 1);
}

bool matchesTerm(const std::string& term, const json& labels) {
  const auto value = [&](const std::string& key) -> std::optional<std::string> {
    const auto found = labels.find(trimmed(key));
    if (found == labels.end()) return std::nullopt;
    return found->get<std::string>();
  };
  if (const size_t open = term.find('('); open != std::string::npos) {
    const size_t notin = term.find(" notin ");
    const size_t word = notin != std::string::npos ? notin : term.find(" in ");
    std::set<std::string> values;
    std::stringstream list(term.substr(open + 1, term.find(')') - open - 1));
    for (std::string each; std::getline(list, each, ',');) values.insert(trimmed(each));
    const auto own = value(term.substr(0, word));
    const bool in = own && values.contains(*own);
    return notin != std::string::npos ? !in : in;
  }
  if (const size_t at = term.find("!="); at != std::string::npos) {
    return value(term.substr(0, at)) != trimmed(term.substr(at + 2));
  }
  if (const size_t at = term.find('='); at != std::string::npos) {
    const size_t after = term.find_first_not_of('=', at);
    return value(term.substr(0, at)) ==
           (after == std::string::npos ? "" : trimmed(term.substr(after)));
  }
  if (term.starts_with("!")) return !value(term.substr(1));
  return value(term).has_value();
}

Answer notFound(const Target& target) {
  return refusal(404, "NotFound", target.plural + " \"" + target.name + "\" not found");
}

Answer conflict(const Target& target) {
  return refusal(409, "Conflict",
                 "Operation cannot be fulfilled on " + target.plural + " \"" + target.name +
                     "\": the object has been modified; please apply your changes to the latest "
                     "version and try again");
}

}  // namespace

std::optional<Target> targetOf(const std::string& path) {
  std::vector<std::string> parts;
  std::stringstream stream(path);
  for (std::string part; std::getline(stream, part, '/');) {
    if (!part.empty()) parts.push_back(part);
  }
  Target target;
  std::string group;
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    target.api_version = parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    group = parts[1];
    target.api_version = parts[1] + "/" + parts[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  if (parts[at] == "namespaces" && parts.size() >= at + 3) {
    target.space = parts[at + 1];
    at += 2;
  }
  target.plural = parts[at];
  if (parts.size() > at + 1) target.name = parts[at + 1];
  if (parts.size() > at + 2) target.subresource = parts[at + 2];
  target.collection = group + "/" + target.plural;
  return target;
}

Target targetOf(const json& object) {
  Target target;
  target.api_version = textAt(object, {"apiVersion"});
  target.plural = pluralOf(textAt(object, {"kind"}));
  const size_t slash = target.api_version.find('/');
  target.collection =
      (slash == std::string::npos ? "" : target.api_version.substr(0, slash)) + "/" + target.plural;
  target.space = nameOf(object).space;
  target.name = nameOf(object).name;
  return target;
}

Answer refusal(int code, const std::string& reason, const std::string& message) {
  return {code, json{{"kind", "Status"},
                     {"apiVersion", "v1"},
                     {"status", "Failure"},
                     {"message", message},
                     {"reason", reason},
                     {"code", code}}};
}

bool matches(const std::string& selector, const json& object) {
  const json* found = memberAt(object, {"metadata", "labels"});
  const json labels = found != nullptr && found->is_object() ? *found : json::object();
  std::string term;
  int depth = 0;
  for (const char c : selector + ",") {
    if (c == ',' && depth == 0) {
      if (!trimmed(term).empty() && !matchesTerm(trimmed(term), labels)) return false;
      term.clear();
      continue;
    }
    depth += (c == '(') - (c == ')');
    term += c;
  }
  return true;
}

FakeStore::Key FakeStore::keyOf(const Target& target) {
  return {target.collection, target.space + "/" + target.name};
}

Answer FakeStore::get(const Target& target) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(keyOf(target));
  return found == objects_.end() ? notFound(target) : Answer{200, found->second};
}

Answer FakeStore::list(const Target& target, const std::string& selector, const std::string& name,
                       size_t limit, const std::string& continued) const {
  const std::lock_guard lock(mutex_);
  json list = {{"kind", "List"},
               {"apiVersion", target.api_version},
               {"metadata", {{"resourceVersion", std::to_string(version_)}}},
               {"items", json::array()}};
  for (const auto& [key, object] : objects_) {
    if (key.first != target.collection || key.second <= continued) continue;
    if (!target.space.empty() && nameOf(object).space != target.space) continue;
    if (!name.empty() && nameOf(object).name != name) continue;
    if (!matches(selector, object)) continue;
    if (limit > 0 && list["items"].size() == limit) {
      const json& last = list["items"].back();
      list["metadata"]["continue"] = nameOf(last).space + "/" + nameOf(last).name;
      break;
    }
    list["items"].push_back(object);
    // As of built-in kinds.
    list["items"].back().erase("apiVersion");
    list["items"].back().erase("kind");
  }
  return {200, std::move(list)};
}

Answer FakeStore::create(const Target& target, json object) {
  const std::lock_guard lock(mutex_);
  Target named = target;
  named.name = nameOf(object).name;
  if (named.name.empty()) {
    return refusal(422, "Invalid", target.plural + ": metadata.name: Required value");
  }
  if (!target.space.empty()) object["metadata"]["namespace"] = target.space;
  if (objects_.contains(keyOf(named))) {
    return refusal(409, "AlreadyExists", target.plural + " \"" + named.name + "\" already exists");
  }
  object.erase("status");
  Answer answer = store(named, std::move(object));
  answer.status = 201;
  return answer;
}

Answer FakeStore::replace(const Target& target, json object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(keyOf(target));
  if (found == objects_.end()) return notFound(target);
  const std::string version = textAt(object, {"metadata", "resourceVersion"});
  if (!version.empty() && version != textAt(found->second, {"metadata", "resourceVersion"})) {
    return conflict(target);
  }
  json next = target.subresource == "status" ? found->second : std::move(object);
  const json& with_status = target.subresource == "status" ? object : found->second;
  if (with_status.contains("status")) {
    next["status"] = with_status["status"];
  } else {
    next.erase("status");
  }
  return store(target, std::move(next));
}

Answer FakeStore::mergePatch(const Target& target, const json& patch) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(keyOf(target));
  if (found == objects_.end()) return notFound(target);
  const std::string version = textAt(patch, {"metadata", "resourceVersion"});
  if (!version.empty() && version != textAt(found->second, {"metadata", "resourceVersion"})) {
    return conflict(target);
  }
  json part = patch;
  if (target.subresource == "status") {
    part = json{{"status", patch.value("status", json::object())}};
  } else {
    part.erase("status");
  }
  json next = found->second;
  next.merge_patch(part);
  return store(target, std::move(next));
}

Answer FakeStore::apply(const Target& target, const json& object, const std::string& manager,
                        bool force) {
  const std::lock_guard lock(mutex_);
  if (manager.empty())
    return refusal(400, "BadRequest", "fieldManager is required for apply patch");
  if (nameOf(object).name != target.name) {
    return refusal(400, "BadRequest", "the name of the object is not that of the URL");
  }
  const bool status = target.subresource == "status";
  const auto found = objects_.find(keyOf(target));
  if (found == objects_.end() && status) return notFound(target);
  const std::string version = textAt(object, {"metadata", "resourceVersion"});
  if (!version.empty() && (found == objects_.end() ||
                           version != textAt(found->second, {"metadata", "resourceVersion"}))) {
    return conflict(target);
  }
  const json sent = ownedPart(object, status);
  auto& managers = applied_[keyOf(target)];
  std::vector<json> others;
  for (auto& [name, theirs] : managers) {
    if (name == manager + "/" + target.subresource) continue;
    const std::string path = conflictOf(sent, theirs, "");
    if (!path.empty() && !force) {
      return refusal(409, "Conflict",
                     "Apply failed with 1 conflict: conflict with \"" + name + "\": " + path);
    }
    others.push_back(theirs);
  }
  json next = found == objects_.end() ? object : found->second;
  if (found == objects_.end()) next.erase("status");
  json& mine = managers[manager + "/" + target.subresource];
  removeDropped(next, mine, sent, others);
  merge(next, sent);
  mine = sent;
  const bool made = found == objects_.end();
  Answer answer = store(target, std::move(next));
  if (made && answer.status == 200) answer.status = 201;
  return answer;
}

Answer FakeStore::remove(const Target& target, const json& options) {
  const std::lock_guard lock(mutex_);
  const Key key = keyOf(target);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return notFound(target);
  for (const char* name : {"uid", "resourceVersion"}) {
    const std::string wanted = textAt(options, {"preconditions", name});
    if (!wanted.empty() && wanted != textAt(found->second, {"metadata", name})) {
      return conflict(target);
    }
  }
  const json* finalizers = memberAt(found->second, {"metadata", "finalizers"});
  if (finalizers != nullptr && !finalizers->empty()) {
    json next = found->second;
    if (!next["metadata"].contains("deletionTimestamp")) {
      next["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    }
    return store(target, std::move(next));
  }
  json gone = found->second;
  removeNow(key, textAt(options, {"propagationPolicy"}) == "Orphan");
  return {200, std::move(gone)};
}

json FakeStore::put(json object) {
  const std::lock_guard lock(mutex_);
  const Target target = targetOf(object);
  return store(target, std::move(object)).body;
}

json FakeStore::find(const json& like) const {
  const Answer answer = get(targetOf(like));
  return answer.status == 200 ? answer.body : json();
}

std::vector<json> FakeStore::all(const std::string& plural) const {
  const std::lock_guard lock(mutex_);
  std::vector<json> found;
  for (const auto& [key, object] : objects_) {
    if (key.first.ends_with("/" + plural)) found.push_back(object);
  }
  return found;
}

// The object as it is to be; what a client must not set is kept.
Answer FakeStore::store(const Target& target, json object) {
  const Key key = keyOf(target);
  const auto found = objects_.find(key);
  json before = found == objects_.end() ? json() : found->second;
  if (!target.api_version.empty()) object["apiVersion"] = target.api_version;
  json& metadata = object["metadata"];
  if (before.is_null()) {
    char uid[40];
    std::snprintf(uid, sizeof uid, "00000000-0000-4000-8000-%012d", static_cast<int>(++uids_));
    metadata["uid"] = uid;
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z";
    metadata["generation"] = 1;
  } else {
    for (const char* name : {"uid", "creationTimestamp", "generation"}) {
      metadata[name] = before["metadata"][name];
    }
    if (withoutVersion(object) == withoutVersion(before)) return {200, std::move(before)};
    if (desired(object) != desired(before)) {
      metadata["generation"] = metadata["generation"].get<int64_t>() + 1;
    }
  }
  const json* finalizers = memberAt(object, {"metadata", "finalizers"});
  if (metadata.contains("deletionTimestamp") && (finalizers == nullptr || finalizers->empty())) {
    removeNow(key, false);
    return {200, std::move(object)};
  }
  metadata["resourceVersion"] = std::to_string(version_ + 1);
  objects_[key] = object;
  append(key, std::move(before), object);
  return {200, std::move(object)};
}

void FakeStore::removeNow(const Key& key, bool orphan) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  json before = std::move(found->second);
  objects_.erase(found);
  applied_.erase(key);
  before["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
  const std::string uid = textAt(before, {"metadata", "uid"});
  append(key, std::move(before), {});
  if (orphan) return;
  std::vector<Key> owned;
  for (const auto& [other, object] : objects_) {
    const json* owners = memberAt(object, {"metadata", "ownerReferences"});
    if (owners == nullptr || !owners->is_array()) continue;
    for (const json& owner : *owners) {
      if (textAt(owner, {"uid"}) == uid) owned.push_back(other);
    }
  }
  for (const Key& other : owned) removeNow(other, false);
}

void FakeStore::append(const Key& key, json before, json after) {
  history_.push_back({++version_, key.first, std::move(before), std::move(after)});
  changed_.notify_all();
}

std::optional<std::vector<FakeStore::Change>> FakeStore::changesAfter(int64_t version,
                                                                      int wait_ms) const {
  std::unique_lock lock(mutex_);
  const int64_t wakes = wakes_;
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                    [&] { return version_ > version || version < forgotten_ || wakes_ != wakes; });
  if (version < forgotten_) return std::nullopt;
  const auto from =
      std::partition_point(history_.begin(), history_.end(),
                           [&](const Change& change) { return change.version <= version; });
  return std::vector<Change>(from, history_.end());
}

int64_t FakeStore::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

void FakeStore::forgetHistory() {
  const std::lock_guard lock(mutex_);
  // Of something that no watch here is about: so no one begins where the history does.
  forgotten_ = ++version_;
  history_.clear();
  changed_.notify_all();
}

void FakeStore::wake() {
  const std::lock_guard lock(mutex_);
  ++wakes_;
  changed_.notify_all();
}

}  // namespace allot::kube::test
