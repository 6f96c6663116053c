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
#include "core/json_text.h"

namespace allot {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPatience = seconds(30);  // until the port is there
constexpr size_t kLongestName = 63;

// A label of DNS: what Kubernetes lets names of namespaces and services be.
bool isName(const std::string& name) {
  if (name.empty() || name.size() > kLongestName || name.front() == '-' || name.back() == '-') {
    return false;
  }
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

Command kubectl(const ClusterChoice& choice, std::vector<std::string> words) {
  std::vector<std::string> all;
  if (choice.context != "-" && choice.context != "current") {
    all.push_back("--context=" + choice.context);
  }
  all.push_back("--namespace=" + choice.name_space);
  all.insert(all.end(), words.begin(), words.end());
  return {"kubectl", std::move(all), {}};
}

// What kubectl said when it failed, and whether trying again may help.
Error kubectlError(const std::string& doing, const std::string& text) {
  std::string said = printable(lastLine(text), 500);
  if (said.starts_with("error: ")) said = said.substr(std::strlen("error: "));
  ErrorCode code = ErrorCode::kUsage;
  for (const char* sign : {"Unable to connect", "refused", "imeout", "timed out", "EOF"}) {
    if (said.find(sign) != std::string::npos) code = ErrorCode::kUnavailable;
  }
  return {code, "kubectl failed " + doing + ": " + (said.empty() ? "it said nothing" : said)};
}

// The newest Secret's entry: kubectl apply leaves those of earlier passwords where they are.
Result<std::string> passwordIn(const std::string& text, const ClusterChoice& choice,
                               const std::string& key) {
  ALLOT_ASSIGN(const json document, parseJson(text, "kubectl's answer"));
  std::string newest, found;
  if (document.is_object() && document.contains("items") && document["items"].is_array()) {
    for (const json& item : document["items"]) {
      if (!item.is_object()) continue;
      const json metadata = item.value("metadata", json::object());
      const json data = item.value("data", json::object());
      if (!data.is_object() || !data.contains(key) || !data[key].is_string()) continue;
      const std::string made = metadata.is_object() && metadata.contains("creationTimestamp") &&
                                       metadata["creationTimestamp"].is_string()
                                   ? metadata["creationTimestamp"].get<std::string>()
                                   : "";
      if (!found.empty() && made < newest) continue;
      newest = made;
      found = data[key].get<std::string>();
    }
  }
  if (found.empty()) {
    return badInput("namespace " + choice.name_space + " has no Secret with " + key +
                    " of experiment " + choice.experiment +
                    ": is the experiment there, and --namespace the right one?");
  }
  const auto password = fromBase64(found);
  if (!password) return fail(ErrorCode::kData, key + " in the Secret is not base64");
  return *password;
}

// In memory only, and closed to child processes.
Result<FileHandle> inMemory(const std::string& text) {
  FileHandle file(memfd_create("allot-password", MFD_CLOEXEC));
  if (!file.isOpen() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail(ErrorCode::kIo, "the system gives no memory for a password");
  }
  return file;
}

// The port in "Forwarding from 127.0.0.1:40123 -> 6379"; 0 if there is no such line yet.
int portIn(const std::string& log) {
  const std::string sign = "Forwarding from 127.0.0.1:";
  const size_t at = log.find(sign);
  if (at == std::string::npos || log.find(' ', at + sign.size()) == std::string::npos) return 0;
  const long port = std::strtol(log.c_str() + at + sign.size(), nullptr, 10);
  return port > 0 && port < 65536 ? static_cast<int>(port) : 0;
}

Status check(ClusterChoice* choice) {
  if (choice->experiment.empty()) {
    return badInput("--context names a cluster: add --experiment NAME, the run's experiment");
  }
  if (!isName(choice->experiment)) {
    return badInput("--experiment " + printable(choice->experiment) +
                    ": is no name that Kubernetes allows (a-z, 0-9 and - between them)");
  }
  if (choice->name_space.empty()) choice->name_space = choice->experiment;
  if (!isName(choice->name_space)) {
    return badInput("--namespace " + printable(choice->name_space) +
                    ": is no name that Kubernetes allows (a-z, 0-9 and - between them)");
  }
  if (!findProgram("kubectl")) {
    return badInput("kubectl was not found: install it, or reach the store with --redis URL");
  }
  return {};
}

}  // namespace

std::optional<std::string> fromBase64(const std::string& base64) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (base64.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < base64.size() && base64[base64.size() - 1 - padding] == '=') {
    ++padding;
  }
  std::string text;
  uint32_t bits = 0;
  for (size_t i = 0; i < base64.size() - padding; ++i) {
    const size_t digit = kDigits.find(base64[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    // Of four digits all but the first end a byte.
    if (i % 4 != 0) text += static_cast<char>(bits >> (6 - 2 * (i % 4)) & 0xff);
  }
  return text;
}

Result<ClusterStore> ClusterStore::open(const ClusterChoice& wanted, StoreAccount account) {
  ClusterChoice choice = wanted;
  ALLOT_TRY(check(&choice));
  const std::string user = account == StoreAccount::kReader ? "reader" : "aggregator";
  const std::string labels =
      "allot.dev/experiment=" + choice.experiment + ",app.kubernetes.io/component=store";
  ALLOT_ASSIGN(const Output secrets,
               capture(kubectl(choice, {"get", "secret", "--selector=" + labels, "--output=json",
                                        "--request-timeout=20s"})));
  if (secrets.status != 0) {
    return tl::unexpected(kubectlError("to read the store's Secret", secrets.err));
  }
  ALLOT_ASSIGN(const std::string password, passwordIn(secrets.out, choice, user + ".password"));
  ALLOT_ASSIGN(FileHandle file, inMemory(password));

  char path[] = "/tmp/allot-kubectl-XXXXXX";
  FileHandle log(mkostemp(path, O_CLOEXEC));
  if (!log.isOpen()) return fail(ErrorCode::kIo, "cannot make a file in /tmp");
  const std::string service = "svc/" + choice.experiment + "-redis";
  auto forward = Process::start(kubectl(choice, {"port-forward", service, ":6379"}), path);
  unlink(path);
  if (!forward) return tl::unexpected(forward.error());
  ClusterStore store(std::move(*forward), std::move(log), std::move(file),
                     "to forward a port to " + service + " in namespace " + choice.name_space);
  ALLOT_ASSIGN(const int port, store.waitForPort());
  store.url_ = "redis://" + user + "@127.0.0.1:" + std::to_string(port) +
               "?password-file=/proc/self/fd/" + std::to_string(store.password_.get());
  return store;
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
    const bool ended = forward_.poll().has_value();  // first: what it said is then all there
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
  // It may hear of the same fault a moment after us.
  if (!forward_.waitFor(milliseconds(500))) return status;
  return fail(ErrorCode::kUnavailable,
              kubectlError(what_, said()).message + " (it ended half-way: try again)");
}

}  // namespace allot
