#pragma once
// TargetFile: tells a Prometheus on this machine the address of a process's metrics. It is a file
// for Prometheus's file_sd_configs that exists as long as the object. Owned by Telemetry; one
// thread.
#include <cstdint>
#include <string>

#include "core/result.h"

namespace allot {

class TargetFile {
 public:
  // Writes the file; readers see all of it or nothing. kIo if it cannot be written.
  static Result<TargetFile> write(const std::string& path, const std::string& address,
                                  uint16_t port);

  TargetFile(TargetFile&& other) noexcept;
  TargetFile& operator=(TargetFile&&) = delete;
  ~TargetFile();  // removes the file

 private:
  explicit TargetFile(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: moved from
};

// Returns HOST:PORT to reach a server that listens on `address`: 127.0.0.1 if that is any address.
std::string reachableAt(const std::string& address, uint16_t port);

}  // namespace allot
