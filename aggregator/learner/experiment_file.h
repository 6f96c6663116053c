#pragma once
// ExperimentFile: the experiment file of a run, at its start and with later edits.
//
// In a cluster the file is part of a ConfigMap, which people edit while the run goes on. A file
// that the run can take is applied (beginRun). Any other is refused with a sentence, and the run
// stays as it was. Owned by the aggregator's main thread; uses the store only in begin() and
// follow().
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "store/store.h"

namespace allot {

struct ExperimentFileOptions {
  std::string path;
  std::vector<std::string> set = {};  // spec.key=value, replaces a value of the file
  std::string origin = {};            // file with the v1::Origin of a fork; "": none
  std::string build = {};             // of this process, for a run that it creates
  bool synchronous = false;
  std::function<uint64_t()> unix_now;
};

class ExperimentFile {
 public:
  explicit ExperimentFile(ExperimentFileOptions options) : options_(std::move(options)) {}

  // Returns the run that the file asks for. kUsage if the file, an option, or a file that one of
  // them names is wrong.
  Result<RunSpec> read();

  // Creates the run of this store by the file, or continues it with the edits of the file. With
  // `stay` a refused file (kUsage) is no error if the store has a run: the stored run is returned,
  // and refused() says why.
  Result<RunSpec> begin(Store* store, bool stay);

  // Applies the file as begin() with `stay` does, if its content has changed since it was last
  // applied or refused. Returns the new run if the file has replaced the run: the caller must begin
  // anew with it. Errors are those of the store; the next call tries again.
  Result<std::optional<RunSpec>> follow(Store* store);

  // Returns why begin() or follow() last refused the file; empty if the file was accepted.
  const std::string& refused() const { return refused_; }

 private:
  // Returns the file's first kMostYamlBytes + 1 bytes; nothing if it cannot be read.
  std::optional<std::string> content() const;
  Result<RunSpec> parse(const std::optional<std::string>& content, uint32_t schema) const;
  Result<RunSpec> apply(Store* store, const std::optional<std::string>& content);

  const ExperimentFileOptions options_;
  std::optional<std::string> seen_;  // the content that was last applied or refused
  std::string refused_;
  std::string run_sha256_;  // of the run that was last returned
};

// Returns the id of the run that this aggregator leads: `run_id` if it is given; else the newest
// run of the experiment in the file, or `fresh_id` if there is none. Without a valid file: the
// newest run of the store's only experiment, or the error of the file if the store has no or
// several experiments.
Result<std::string> chooseRun(const std::string& redis, const std::string& run_id,
                              const Result<RunSpec>& file, const std::string& fresh_id);

}  // namespace allot
