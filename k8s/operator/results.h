#pragma once
// The results of an experiment that is being deleted. If spec.cluster.results names a claim, a
// finalizer holds the experiment until a Job (k8s/base/export.yaml) has exported the run to the
// claim. An experiment that never began, cannot be exported any more, or was not exported within a
// day is deleted without an export; an event reports what is lost. Pure; any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/operator/experiment_status.h"

namespace allot {

// Returns the name of the claim in spec.cluster.results, also of a file that cannot be run; "":
// none.
std::string resultsClaim(const nlohmann::json& object);

bool isLeaving(const nlohmann::json& object);  // it is being deleted
bool isHeld(const nlohmann::json& object);     // by our finalizer
// Returns metadata.finalizers with ours if `held`, else without ours; the others stay.
nlohmann::json finalizersOf(const nlohmann::json& object, bool held);

std::string exportJobName(const std::string& experiment);

struct ExportStep {
  enum class Next {
    kNothing,  // it is not being deleted
    kWait,     // for workers, or for somebody to correct the file
    kRunJob,
    kLetGo  // remove the finalizer
  };
  Next next = Next::kNothing;
  bool exported = false;
  bool lost = false;  // kLetGo without an export of its results
  // Reason and message of condition Exported.
  std::string reason;
  std::string message;
};

// Returns the step. status: that of statusOf(); its conditions are not read.
ExportStep exportStep(const Observed& observed, const Judgement& judgement,
                      const nlohmann::json& status);

}  // namespace allot
