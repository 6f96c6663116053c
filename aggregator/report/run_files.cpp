#include "aggregator/report/run_files.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "aggregator/page/run_view.h"
#include "aggregator/report/report.h"
#include "core/clocks.h"
#include "core/files/files.h"
#include "core/spec/spec_change.h"
#include "store/archive/archive.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

}  // namespace

RunFiles::RunFiles(std::string dir, std::string run_id, Open open)
    : dir_(std::move(dir)), run_id_(std::move(run_id)), open_(std::move(open)) {}

bool RunFiles::write(RunSnapshot snapshot, bool at_end) {
  if (isBusy()) return false;
  writing_ =
      std::async(std::launch::async, [this, at_end, snapshot = std::move(snapshot)]() -> Status {
        if (dir_.empty()) return {};
        const uint64_t unix_ms = unixMs();
        ALLOT_TRY(writeReport(dir_, runView(snapshot, unix_ms, run_id_)));
        // A file that is there is kept.
        const std::string file = dir_ + "/experiment.yaml";
        if (std::error_code ignored; !std::filesystem::exists(file, ignored)) {
          ALLOT_TRY(writeWholeFile(file, experimentYaml(snapshot.run.experiment)));
        }
        const uint64_t start = steadyMs();
        if (!at_end && start < next_export_) return {};
        ALLOT_ASSIGN(const auto store, open_());
        StoreSource source(store.get(), run_id_);
        ALLOT_TRY(exportRun(&source, dir_));
        const uint64_t end = steadyMs();
        next_export_ = end + 20 * (end - start);
        return {};
      });
  return true;
}

std::optional<Status> RunFiles::outcome() {
  if (!isBusy() || writing_.wait_for(milliseconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return writing_.get();
}

Status RunFiles::wait() { return isBusy() ? writing_.get() : Status(); }

std::optional<Status> EndFiles::look(uint64_t now, const std::function<RunSnapshot()>& snapshot) {
  if (written_) return std::nullopt;
  auto outcome = files_.outcome();
  if (!begun_) {
    begun_ = now >= again_ && !files_.isBusy() && files_.write(snapshot(), true);
    return outcome;  // of a write that began before the end
  }
  if (!outcome) return std::nullopt;
  written_ = outcome->has_value();
  begun_ = written_;
  if (!written_) again_ = now + (outcome->error().code == ErrorCode::kUnavailable ? 0 : kAgainMs);
  return outcome;
}

}  // namespace allot
