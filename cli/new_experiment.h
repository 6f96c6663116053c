#pragma once
// Writes a person's first experiment file, for `allot new`: a small one, with comments. Any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"

namespace allot {

struct NewExperiment {
  std::string name;
  std::string model;               // value of spec.model.path
  std::optional<uint32_t> layers;  // of the model, if config.json has them
  bool recall = false;             // the repository's own model, which answers only suite recall
};

// Describes an experiment for a model. model: a .gguf file, or a folder with config.json or a .gguf
// file; "": the repository's own, in this folder or one above. kUsage if the model is not there or
// its config.json cannot be read.
Result<NewExperiment> newExperiment(const std::string& model);

std::string newExperimentText(const NewExperiment& experiment);

// Writes the file. kUsage if the path exists already, else kIo.
Status writeNewFile(const std::string& path, const std::string& text);

}  // namespace allot
