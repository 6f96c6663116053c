#pragma once
// TargetFile: tells a Prometheus on this machine where a process serves its metrics.
//
// A file for Prometheus's file_sd_configs, as long as the object lives. Owned by Telemetry.
#include <cstdint>
#include <string>

#include "core/result.h"

namespace allot {

class TargetFile {
 public:
  // Whole or not at all, whoever reads it meanwhile. kIo if it cannot be written.
  static Result<TargetFile> write(const std::string& path, const std::string& address,
                                  uint16_t port);

  TargetFile(TargetFile&& other) noexcept;
  TargetFile& operator=(TargetFile&&) = delete;
  ~TargetFile();  // removes the file

 private:
  explicit TargetFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

// HOST:PORT to reach a server under that listens on `address`: 127.0.0.1 where that is any address.
std::string reachableAt(const std::string& address, uint16_t port);

}  // namespace allot
