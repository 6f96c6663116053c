#pragma once
// A policy as an artefact: policy.json, which says what it was learned for and how well it did, and
// the card that a model hub reads beside it. Pure functions, except writeHubFolder(); any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "aggregator/page/run_view.h"
#include "core/result.h"

namespace allot {

// Returns policy.json. Beside the schedules: the model with its digests, the method, the task, the
// newest complete measurement of each method, schedule and budget with its interval, the names of
// the schedules that the learned one is measured against, and the build that wrote it.
nlohmann::json policyJson(const RunView& view);

// Returns README.md of the policy: YAML that a model hub reads, then what the policy is for and a
// table of the measurements. base_model: "organisation/name"; "": the model's name if it has that
// form, or none.
std::string hubCard(const RunView& view, const std::string& base_model);

// Writes both files into `folder`, which is made if need be. kUsage: the run has no learned
// schedule, or the folder has other files, which a hub would get too; kIo names the file.
Status writeHubFolder(const std::string& folder, const RunView& view,
                      const std::string& base_model);

}  // namespace allot
