#pragma once
// The results of an experiment that is being deleted. Where spec.cluster.results names a claim, a
// finalizer holds the experiment until a Job (k8s/base/export.yaml) has exported the run to it.
// Nobody is held for nothing: what never began, what nobody can export any more, and what could not
// be exported within a day goes, and an event says so. Pure; any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/operator/experiment_status.h"

namespace allot {

// Returns the name of the claim in spec.cluster.results, also of a file that cannot be run; "":
// none.
std::string resultsClaim(const nlohmann::json& object);

bool isLeaving(const nlohmann::json& object);  // somebody has deleted it
bool isHeld(const nlohmann::json& object);     // by our finalizer
// metadata.finalizers with ours or without it, and all others as they are.
nlohmann::json finalizersOf(const nlohmann::json& object, bool held);

std::string exportJobName(const std::string& experiment);

struct ExportStep {
  enum class Next {
    kNothing,  // it is not being deleted
    kWait,     // for workers, or for somebody to correct the file
    kRunJob,
    kLetGo
  };
  Next next = Next::kNothing;
  bool exported = false;
  bool lost = false;  // there was something to export, and it is let go without
  // What condition Exported says.
  std::string reason;
  std::string message;
};

// status: as statusOf has begun to make it, with what is known of the run.
ExportStep exportStep(const Observed& observed, const Judgement& judgement,
                      const nlohmann::json& status);

}  // namespace allot
