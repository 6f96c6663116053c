#include "telemetry/target_file.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

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
  const std::string draft = path + ".new";  // Prometheus reads *.json
  std::ofstream file(draft, std::ios::trunc);
  file << targets.dump() << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    std::remove(draft.c_str());
    return fail(ErrorCode::kIo, path + " cannot be written: name another file with --target-file");
  }
  return TargetFile(path);
}

TargetFile::TargetFile(TargetFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TargetFile::~TargetFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace allot
