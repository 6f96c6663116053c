// Each run of experiments/papers is an experiment that is taken. tests/documents/papers_test.py
// holds the rest of that folder.
#include <filesystem>

#include "core/spec/spec.h"
#include "core/spec/spec_yaml.h"
#include "tests/readme.h"
#include "tests/results.h"

namespace allot {
namespace {

const std::string kFolder = "experiments/papers/";

std::string textAt(const YamlValue& map, const std::string& key, const std::string& otherwise) {
  const YamlValue* const value = map.find(key);
  return value == nullptr ? otherwise : value->text;
}

void expectTaken(const std::string& folder, const std::vector<std::string>& set) {
  const std::string file = kFolder + folder + "/experiment.yaml";
  const auto parsed = valueOf(parseExperiment(readSource(file), file, set));
  EXPECT_THAT(checkEffects(parsed, file), succeeds());
  EXPECT_EQ(parsed.name(), folder);
  EXPECT_EQ(parsed.spec().attention().protocol(), folder.starts_with("vattention") ? "B" : "A");
}

TEST(PaperRuns, AreExperimentsThatAreTaken) {
  size_t runs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ALLOT_SOURCE_DIR) + "/" + kFolder)) {
    if (!entry.is_directory() || !std::filesystem::exists(entry.path() / "paper.yaml")) continue;
    const std::string own = entry.path().filename();
    const auto paper = valueOf(parseYaml(readSource(kFolder + own + "/paper.yaml"), own));
    const YamlValue* const list = paper.find("runs");
    const std::vector<YamlValue> one(1);
    for (const YamlValue& run : list == nullptr ? one : list->items) {
      std::vector<std::string> set;
      if (const YamlValue* const values = run.find("set"); values != nullptr) {
        for (const YamlValue& value : values->items) set.push_back(value.text);
      }
      SCOPED_TRACE(own + ": " + textAt(run, "title", "all of it"));
      expectTaken(textAt(run, "folder", own), set);
      ++runs;
    }
  }
  EXPECT_GT(runs, 60u);
}

}  // namespace
}  // namespace allot
