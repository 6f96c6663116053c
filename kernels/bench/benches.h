#pragma once
// The kernels' parts of allot-bench, and the output that all parts share. Each part reads its own
// command line, whose argv[0] is the part's name, and returns the exit code. One thread.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace allot::bench {

constexpr int kUsage = 64;
constexpr int kUnavailable = 69;
constexpr int kCannotWrite = 74;

// Measure a decode step of one attention layer, beside LibTorch's (CPU) or peers' (GPU, peer.h).
int decodeOnCpu(int argc, char** argv);
int decodeOnGpu(int argc, char** argv);
// Measures a prompt in one attention layer, beside peers.
int prefillOnGpu(int argc, char** argv);
// Returns why no GPU can be used, or nothing.
std::optional<std::string> whyNoGpu();

// Prints the sentence to stderr. Returns the code.
inline int refuse(const std::string& sentence, int code = kUsage) {
  std::fprintf(stderr, "allot-bench: %s\n", sentence.c_str());
  return code;
}

// Replaces the last line of stderr with the text, if stderr is a terminal.
inline void progress(const std::string& text) {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K%s", text.c_str());
}

// Writes the document to the path, unless the path is empty. Returns the exit code.
inline int writeJson(const std::string& path, const nlohmann::json& document) {
  if (path.empty()) return 0;
  std::ofstream file(path);
  file << document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return file.flush() ? 0 : refuse("cannot write " + path, kCannotWrite);
}

}  // namespace allot::bench
