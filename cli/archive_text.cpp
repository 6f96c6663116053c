#include "cli/archive_text.h"

#include "core/spec/spec_yaml.h"

namespace allot {

using nlohmann::json;

json verificationJson(const VerifySummary& summary) {
  const bool begun = summary.head.image.state.has_value();
  return {{"run_id", summary.head.run_id},
          {"experiment", summary.head.image.spec.experiment.name()},
          {"result", begun ? "equal" : "not-begun"},
          {"version", summary.head.version()},
          {"policy_sha256", summary.head.policy_sha256},
          {"updates", summary.updates},
          {"results", summary.results},
          {"evaluations", summary.evaluations},
          {"workers", summary.workers}};
}

std::string verificationText(const VerifySummary& summary) {
  if (!summary.head.image.state) return "verified: the run has not begun";
  return "verified: " + counted(summary.updates, "update") + ", " +
         counted(summary.results, "result") + " of " + counted(summary.workers, "worker") +
         ", every policy equal bit for bit (sha256 of version " +
         std::to_string(summary.head.version()) + ": " + summary.head.policy_sha256 + ")";
}

json exportJson(const ExportSummary& summary, const std::string& folder) {
  return {{"folder", folder},
          {"updates", summary.updates},
          {"new_updates", summary.new_updates},
          {"results", summary.results},
          {"evaluation_units", summary.evaluations},
          {"waiting_results", summary.waiting_results}};
}

std::string exportText(const ExportSummary& summary, const std::string& folder) {
  std::string text = "exported: " + counted(summary.updates, "update");
  if (summary.new_updates < summary.updates) {
    text += " (" + std::to_string(summary.new_updates) + " new)";
  }
  text += ", " + counted(summary.results, "result") + ", " +
          counted(summary.evaluations, "evaluation unit") + ", into " + folder;
  if (summary.waiting_results > 0) {
    text += "\n" + counted(summary.waiting_results, "result") +
            " in the inbox, which no update has consumed yet: left out";
  }
  return text;
}

}  // namespace allot
