#include "core/telemetry/telemetry.h"

#include <openssl/crypto.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/clocks.h"
#include "core/digest.h"
#include "core/files/files.h"

namespace allot {
namespace {

HttpReply reply(const Health::Answer& answer) {
  return plainText(answer.good ? 200 : 503, answer.sentence);
}

constexpr uint64_t kLongestPassword = 1024;

Result<std::string> pagePassword(const std::string& path) {
  auto password = readWholeFile(path, kLongestPassword);
  while (password && (password->ends_with('\n') || password->ends_with('\r'))) {
    password->pop_back();
  }
  if (password && !password->empty()) return password;
  return badInput(
      "--page-password-file: " + (password ? path + " is empty" : password.error().message) +
      ": let it hold a password of at most 1024 bytes");
}

}  // namespace

std::string reachableAt(const std::string& address, uint16_t port) {
  std::string host = address == "0.0.0.0" ? "127.0.0.1" : address == "::" ? "::1" : address;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return host + ":" + std::to_string(port);
}

Result<TargetFile> TargetFile::write(const std::string& path, const std::string& address,
                                     uint16_t port) {
  const nlohmann::json targets = {
      {{"targets", {reachableAt(address, port)}}, {"labels", nlohmann::json::object()}}};
  const Status written = writeWholeFile(path, targets.dump() + "\n");
  if (!written) {
    return fail(ErrorCode::kIo, written.error().message + ": name another file with --target-file");
  }
  return TargetFile(path);
}

TargetFile::TargetFile(TargetFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TargetFile::~TargetFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

Telemetry::Telemetry() : health_(steadyMs) {
  metrics_.gauge("allot_build_info", {{"version", ALLOT_VERSION}, {"compiler", ALLOT_COMPILER}})
      .Set(1);
  metrics_.gauge("allot_process_start_timestamp_seconds").Set(static_cast<double>(unixMs()) / 1000);
}

Result<std::unique_ptr<Telemetry>> Telemetry::start(const TelemetryOptions& options,
                                                    PathHandler other) {
  std::unique_ptr<Telemetry> telemetry(new Telemetry());
  if (options.port) {
    ALLOT_TRY(telemetry->serve(options, std::move(other)));
  } else if (!options.target_file.empty()) {
    return badInput("--target-file tells of a server: give --port, too");
  } else if (!options.password_file.empty()) {
    return badInput("--page-password-file is for a server: give --port, too");
  }
  return telemetry;
}

Status Telemetry::serve(const TelemetryOptions& options, PathHandler other) {
  other_ = std::move(other);
  if (!options.password_file.empty()) {
    ALLOT_ASSIGN(const std::string password, pagePassword(options.password_file));
    credentials_ = sha256Hex("Basic " + toBase64("allot:" + password));
  }
  const auto handler = [this](const HttpRequest& request) { return answer(request); };
  auto server = HttpServer::start(options.listen, *options.port, handler);
  if (!server && options.any_port) server = HttpServer::start(options.listen, 0, handler);
  if (!server) return tl::unexpected(server.error());
  server_ = std::move(*server);
  url_ = "http://" + reachableAt(options.listen, server_->port()) + "/";
  if (options.target_file.empty()) return {};
  ALLOT_ASSIGN(TargetFile file,
               TargetFile::write(options.target_file, options.listen, server_->port()));
  target_file_.emplace(std::move(file));
  return {};
}

// Compares digests, which takes the same time for every wrong password.
bool Telemetry::mayRead(const HttpRequest& request) const {
  const std::string given = sha256Hex(request.authorization);
  return credentials_.empty() ||
         CRYPTO_memcmp(given.data(), credentials_.data(), credentials_.size()) == 0;
}

HttpReply Telemetry::answer(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/startedz") return reply(health_.started());
  if (path == "/livez") return reply(health_.live());
  if (path == "/readyz") return reply(health_.readiness());
  if (!mayRead(request)) {
    return plainText(401,
                     "This server asks for user allot and the password of its "
                     "--page-password-file.");
  }
  if (path == "/metrics") {
    const Exposition format = expositionFor(request.accept);
    std::string text = metrics_.text(format);
    if (text.empty()) return plainText(503, "The experiment is not known yet.");
    ++scrapes_;
    return {200, expositionType(format), std::move(text)};
  }
  if (other_) return other_(path);
  return plainText(404, "There is nothing here: /metrics, /startedz, /livez and /readyz are.");
}

void Telemetry::waitForScrape(std::chrono::milliseconds limit) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  const uint64_t before = scrapes_;
  constexpr auto kStep = std::chrono::milliseconds(50);
  while (server_ && scrapes_ == before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kStep);
  }
  if (server_) std::this_thread::sleep_for(kStep);
}

void Telemetry::setRun(const std::string& run_id, const std::string& experiment) {
  metrics_.setRun(experiment, run_id);
  setLogRun(run_id, experiment);
}

}  // namespace allot
