#pragma once
// The first experiment file of a person, as `allot new` writes it: the few keys that must be there,
// each with a word on what it means. Looks at the file system; any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"

namespace allot {

struct NewExperiment {
  std::string name;
  std::string model;               // as spec.model.path is to have it
  std::optional<uint32_t> layers;  // of the model, where config.json says so
  bool recall = false;             // the repository's own model, which answers suite recall alone
};

// model: a folder with config.json or a GGUF file; "": the repository's own, from here or a folder
// above. kUsage if it is not there.
Result<NewExperiment> newExperiment(const std::string& model);

// The file; it passes parseExperiment().
std::string newExperimentText(const NewExperiment& experiment);

// Writes it. kUsage if there is something of that name already.
Status writeNewFile(const std::string& path, const std::string& text);

}  // namespace allot
