#include "core/telemetry/target_file.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/files/files.h"

namespace allot {

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

}  // namespace allot
