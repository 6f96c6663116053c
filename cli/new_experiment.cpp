#include "cli/new_experiment.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "core/files/files.h"
#include "core/json_text.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kOwnModel[] = "experiments/models/recall-7m";
constexpr uint64_t kLargestConfig = 1 << 20;
constexpr uint32_t kReadsOfLayer = 8;   // 1 for the repository's own model
constexpr uint32_t kUsualBudget = 256;  // where the number of layers is not known
constexpr size_t kLongestName = 50;

// Returns lower-case letters and digits with dashes between them, as metadata.name must be.
std::string nameOf(const fs::path& model) {
  const bool file = model.extension() == ".gguf";
  const fs::path last = model.has_filename() ? model.filename() : model.parent_path().filename();
  std::string name;
  for (const char c : file ? last.stem().string() : last.string()) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
      name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), kLongestName));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "experiment" : name;
}

Result<std::optional<uint32_t>> layersOf(const fs::path& model) {
  std::error_code ignored;
  const fs::path config = model / "config.json";
  if (!fs::exists(config, ignored)) {
    for (const auto& entry : fs::directory_iterator(model, ignored)) {
      if (entry.path().extension() == ".gguf") return std::nullopt;
    }
    return badInput(model.string() + " has neither config.json nor a GGUF file: name the folder " +
                    "of a model");
  }
  ALLOT_ASSIGN(const std::string text, readWholeFile(config.string(), kLargestConfig));
  ALLOT_ASSIGN(const json parsed, parseJson(text, config.string()));
  if (!parsed.is_object() || !parsed.contains("num_hidden_layers")) return std::nullopt;
  const json& layers = parsed["num_hidden_layers"];
  if (!layers.is_number_unsigned() || layers > 10'000) return std::nullopt;
  return layers.get<uint32_t>();
}

// Returns the text, in quotes if YAML might take it for something else. A string of JSON is one of
// YAML, too.
std::string yamlWord(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos &&
                     text.front() != '-' &&
                     text.find_first_not_of("0123456789._-") != std::string::npos;
  return plain ? text : json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Result<NewExperiment> newExperiment(const std::string& model) {
  NewExperiment experiment;
  experiment.recall = model.empty();
  experiment.model = model.empty() ? kOwnModel : model;
  std::error_code ignored;
  fs::path found = experiment.model;
  if (experiment.recall) {
    const auto own = findNamedPath("--model", kOwnModel, "experiment.yaml");
    if (!own)
      return badInput("name a model with --model FOLDER: " + std::string(kOwnModel) +
                      " is not here");
    found = *own;
  }
  if (fs::is_directory(found, ignored)) {
    ALLOT_ASSIGN(experiment.layers, layersOf(found));
  } else if (found.extension() != ".gguf" || !fs::is_regular_file(found, ignored)) {
    return badInput("--model " + printable(model) +
                    ": there is no folder or .gguf file of that name");
  }
  experiment.name = nameOf(found);
  return experiment;
}

std::string newExperimentText(const NewExperiment& experiment) {
  const std::string task =
      experiment.recall ? "{suite: recall, tasks: [niah, multi, track, freq], contextTokens: 512}"
                        : "{suite: ruler, tasks: [niah_single_1, vt], contextTokens: 2048, "
                          "maxNewTokens: 0}  # 0: RULER's own";
  const std::string layers =
      experiment.layers ? "its " + std::to_string(*experiment.layers) + " layers" : "its layers";
  const uint32_t budget = experiment.recall   ? *experiment.layers
                          : experiment.layers ? *experiment.layers * kReadsOfLayer
                                              : kUsualBudget;
  return "# `allot explain spec` tells every key; what is left out has its default.\n"
         "apiVersion: allot.dev/v1alpha1\n"
         "kind: Experiment\n"
         "metadata: {name: " +
         experiment.name +
         "}  # of lists, metrics, objects in a cluster\n"
         "spec:\n"
         "  # A folder with config.json and *.safetensors, or a GGUF file.\n"
         "  model: {path: " +
         yamlWord(experiment.model) +
         "}\n"
         "  # What is asked: `allot explain tasks` tells what there is.\n"
         "  task: " +
         task +
         "\n"
         "  # Reads (value rows) of a head in a step, in all of " +
         layers +
         " together.\n"
         "  policy: {totalBudget: " +
         std::to_string(budget) +
         "}\n"
         "  # Learns in which layers to spend them; without this line it only measures.\n"
         "  update: {maxUpdates: 150}\n";
}

Status writeNewFile(const std::string& path, const std::string& text) {
  FileHandle file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.isOpen()) {
    const int error = errno;
    if (error == EEXIST) return badInput(path + " is there already: name another file");
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(error));
  }
  const bool whole =
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole && file.close() == 0) return {};
  unlink(path.c_str());
  return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace allot
