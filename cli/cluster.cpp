#include "cli/cluster.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/terminal.h"
#include "core/digest.h"
#include "core/json_text.h"

namespace allot {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPatience = seconds(30);  // until the port is there
constexpr size_t kLongestName = 63;
// As in k8s/base/redis.yaml.
constexpr char kExperimentLabel[] = "allot.dev/experiment";
constexpr char kStoreLabel[] = "app.kubernetes.io/component=store";
constexpr char kAccountsVolume[] = "accounts";

// Returns true for a DNS label, as names of namespaces and services must be.
bool isName(const std::string& name) {
  if (name.empty() || name.size() > kLongestName || name.front() == '-' || name.back() == '-') {
    return false;
  }
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

// Returns true for the name of an object, which may have dots.
bool isObjectName(const std::string& name) {
  return !name.empty() && name.size() <= 253 && name.front() != '-' && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

// Returns a command of kubectl; without a namespace it is about all of them.
Command kubectl(const ClusterChoice& choice, std::vector<std::string> words) {
  std::vector<std::string> all;
  if (choice.context != "-" && choice.context != "current") {
    all.push_back("--context=" + choice.context);
  }
  all.push_back(choice.name_space.empty() ? "--all-namespaces"
                                          : "--namespace=" + choice.name_space);
  all.insert(all.end(), words.begin(), words.end());
  return {"kubectl", std::move(all), {}};
}

// Returns kubectl's last line as an error: kUnavailable if trying again may help, else kUsage.
Error kubectlError(const std::string& doing, const std::string& text) {
  std::string said = printable(lastLine(text), 500);
  if (said.starts_with("error: ")) said = said.substr(std::strlen("error: "));
  ErrorCode code = ErrorCode::kUsage;
  for (const char* sign : {"Unable to connect", "refused", "imeout", "timed out", "EOF"}) {
    if (said.find(sign) != std::string::npos) code = ErrorCode::kUnavailable;
  }
  return {code, "kubectl failed " + doing + ": " + (said.empty() ? "it said nothing" : said)};
}

// Returns the value at a path of keys, or null: kubectl's answers hold what others wrote.
const json& at(const json& document, std::initializer_list<const char*> path) {
  static const json kNothing;
  const json* value = &document;
  for (const char* key : path) {
    if (!value->is_object() || !value->contains(key)) return kNothing;
    value = &(*value)[key];
  }
  return *value;
}

std::string textAt(const json& document, std::initializer_list<const char*> path) {
  const json& value = at(document, path);
  return value.is_string() ? value.get<std::string>() : "";
}

Result<json> ask(const ClusterChoice& choice, const std::string& doing,
                 std::vector<std::string> words) {
  words.insert(words.end(), {"--output=json", "--request-timeout=20s"});
  ALLOT_ASSIGN(const Output output, capture(kubectl(choice, std::move(words))));
  if (output.status != 0) return tl::unexpected(kubectlError(doing, output.err));
  return parseJson(output.out, "kubectl's answer");
}

// Returns the Secret that the store's StatefulSet names. Secrets of earlier passwords remain, and
// after a roll-back an older one is in force.
Result<std::string> secretOf(const ClusterChoice& choice) {
  ALLOT_ASSIGN(const json sets, ask(choice, "to read the store's StatefulSet",
                                    {"get", "statefulset",
                                     "--selector=" + std::string(kExperimentLabel) + "=" +
                                         choice.experiment + "," + kStoreLabel}));
  for (const json& set : at(sets, {"items"})) {
    for (const json& volume : at(set, {"spec", "template", "spec", "volumes"})) {
      if (textAt(volume, {"name"}) != kAccountsVolume) continue;
      const std::string name = textAt(volume, {"secret", "secretName"});
      if (isObjectName(name)) return name;
    }
  }
  return badInput("namespace " + choice.name_space + " has no StatefulSet of experiment " +
                  choice.experiment + "'s store that names its Secret: is the experiment there, " +
                  "and --namespace the right one?");
}

Result<std::string> passwordOf(const ClusterChoice& choice, const std::string& key) {
  ALLOT_ASSIGN(const std::string name, secretOf(choice));
  ALLOT_ASSIGN(const json secret,
               ask(choice, "to read the store's Secret", {"get", "secret", name}));
  const std::string found = textAt(secret, {"data", key.c_str()});
  if (found.empty()) {
    return badInput("Secret " + name + " in namespace " + choice.name_space + " has no " + key);
  }
  const auto password = fromBase64(found);
  if (!password) return fail(ErrorCode::kData, key + " in the Secret is not base64");
  return *password;
}

// Returns a file in memory that child processes do not inherit.
Result<FileHandle> inMemory(const std::string& text) {
  FileHandle file(memfd_create("allot-password", MFD_CLOEXEC));
  if (!file.isOpen() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail(ErrorCode::kIo, "the system gives no memory for a password");
  }
  return file;
}

// Returns the port in "Forwarding from 127.0.0.1:40123 -> 6379"; 0 if there is no such line yet.
int portIn(const std::string& log) {
  const std::string sign = "Forwarding from 127.0.0.1:";
  const size_t at = log.find(sign);
  if (at == std::string::npos || log.find(' ', at + sign.size()) == std::string::npos) return 0;
  const long port = std::strtol(log.c_str() + at + sign.size(), nullptr, 10);
  return port > 0 && port < 65536 ? static_cast<int>(port) : 0;
}

// Checks both names, which may be empty, and that there is a kubectl.
Status checkNames(const ClusterChoice& choice) {
  for (const auto& [option, name] : {std::pair{"--experiment ", &choice.experiment},
                                     std::pair{"--namespace ", &choice.name_space}}) {
    if (name->empty() || isName(*name)) continue;
    return badInput(option + printable(*name) +
                    ": is no name that Kubernetes allows (a-z, 0-9 and - between them)");
  }
  if (!findProgram("kubectl")) {
    return badInput("kubectl was not found: install it, or reach the store with --redis URL");
  }
  return {};
}

Status check(ClusterChoice* choice) {
  if (choice->experiment.empty()) {
    return badInput("--context names a cluster: add --experiment NAME, the run's experiment");
  }
  if (choice->name_space.empty()) choice->name_space = choice->experiment;
  return checkNames(*choice);
}

}  // namespace

Result<ClusterStore> ClusterStore::open(const ClusterChoice& wanted, StoreAccount account) {
  ClusterChoice choice = wanted;
  ALLOT_TRY(check(&choice));
  const std::string user = account == StoreAccount::kReader ? "reader" : "aggregator";
  ALLOT_ASSIGN(const std::string password, passwordOf(choice, user + ".password"));
  ALLOT_ASSIGN(FileHandle file, inMemory(password));

  char path[] = "/tmp/allot-kubectl-XXXXXX";
  FileHandle log(mkostemp(path, O_CLOEXEC));
  if (!log.isOpen()) return fail(ErrorCode::kIo, "cannot make a file in /tmp");
  const std::string service = "svc/" + choice.experiment + "-redis";
  auto forward = ChildProcess::start(kubectl(choice, {"port-forward", service, ":6379"}), path);
  unlink(path);
  if (!forward) return tl::unexpected(forward.error());
  ClusterStore store(std::move(*forward), std::move(log), std::move(file),
                     "to forward a port to " + service + " in namespace " + choice.name_space);
  ALLOT_ASSIGN(const int port, store.waitForPort());
  store.url_ = "redis://" + user + "@127.0.0.1:" + std::to_string(port) +
               "?password-file=/proc/self/fd/" + std::to_string(store.password_.get());
  return store;
}

Result<std::vector<ClusterChoice>> listExperiments(const ClusterChoice& where) {
  ALLOT_TRY(checkNames(where));
  const std::string experiment = where.experiment.empty() ? "" : "=" + where.experiment;
  ALLOT_ASSIGN(const json sets,
               ask(where, "to list experiments",
                   {"get", "statefulset",
                    "--selector=" + (kExperimentLabel + experiment) + "," + kStoreLabel}));
  std::vector<ClusterChoice> found;
  for (const json& set : at(sets, {"items"})) {
    const ClusterChoice one{where.context, textAt(set, {"metadata", "namespace"}),
                            textAt(set, {"metadata", "labels", kExperimentLabel})};
    if (isName(one.name_space) && isName(one.experiment)) found.push_back(one);
  }
  return found;
}

std::string ClusterStore::said() const {
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = pread(log_.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

Result<int> ClusterStore::waitForPort() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    const bool ended = forward_.poll().has_value();  // before said(), which is then complete
    const std::string text = said();
    if (ended) return tl::unexpected(kubectlError(what_, text));
    if (const int port = portIn(text); port != 0) return port;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return fail(ErrorCode::kUnavailable,
              "kubectl took more than 30 s " + what_ + ": is the store's pod running?");
}

Status ClusterStore::explained(Status status) {
  if (status || status.error().code != ErrorCode::kUnavailable) return status;
  // kubectl may notice the fault after this process.
  if (!forward_.waitFor(milliseconds(500))) return status;
  return fail(ErrorCode::kUnavailable,
              kubectlError(what_, said()).message + " (it ended half-way: try again)");
}

}  // namespace allot
