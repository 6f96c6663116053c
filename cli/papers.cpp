#include "cli/papers.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "core/files/files.h"
#include "core/spec/spec_keys.h"  // nearest, joined
#include "core/spec/spec_yaml.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using Kind = YamlValue::Kind;

constexpr char kList[] = "papers.yaml";

// A map of a file, whose values are taken key by key: what nobody took is not known.
class Fields {
 public:
  static Result<Fields> of(const YamlValue& map, std::string place,
                           const std::vector<std::string>& known) {
    if (map.kind != Kind::kMap) return badInput(place + ": is no map of keys");
    for (const std::string& key : map.keys) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      return badInput(place + ": " + doubleQuoted(key) + " is not one of " + joined(known));
    }
    return Fields(map, std::move(place));
  }

  const std::string& place() const { return place_; }

  // A text that is there and not empty.
  Result<std::string> text(const std::string& key) const {
    const YamlValue* const value = map_->find(key);
    if (value == nullptr || value->kind != Kind::kScalar || value->text.empty()) {
      return badInput(place_ + ": " + key + ": required, as one line of text");
    }
    return value->text;
  }
  Result<std::string> optionalText(const std::string& key) const {
    if (map_->find(key) == nullptr) return std::string();
    return text(key);
  }
  // Missing: empty.
  Result<std::vector<std::string>> texts(const std::string& key) const {
    ALLOT_ASSIGN(const std::vector<YamlValue> values, list(key));
    std::vector<std::string> texts;
    for (const YamlValue& value : values) {
      if (value.kind != Kind::kScalar || value.text.empty()) {
        return badInput(place_ + ": " + key + ": holds what is no line of text");
      }
      texts.push_back(value.text);
    }
    return texts;
  }
  Result<std::vector<std::string>> someTexts(const std::string& key) const {
    ALLOT_ASSIGN(std::vector<std::string> found, texts(key));
    if (found.empty()) return badInput(place_ + ": " + key + ": required, as a list of texts");
    return found;
  }
  Result<std::vector<YamlValue>> list(const std::string& key) const {
    const YamlValue* const value = map_->find(key);
    if (value == nullptr) return std::vector<YamlValue>();
    if (value->kind != Kind::kList) return badInput(place_ + ": " + key + ": is no list");
    return value->items;
  }

 private:
  Fields(const YamlValue& map, std::string place) : map_(&map), place_(std::move(place)) {}

  const YamlValue* map_;
  std::string place_;
};

Result<YamlValue> readYaml(const std::string& path) {
  ALLOT_ASSIGN(const std::string text, readWholeFile(path, kMostYamlBytes));
  return parseYaml(text, path);
}

Result<std::vector<PaperRun>> runsOf(const Fields& fields, const std::string& own) {
  ALLOT_ASSIGN(const std::vector<YamlValue> values, fields.list("runs"));
  std::vector<PaperRun> runs;
  for (const YamlValue& value : values) {
    ALLOT_ASSIGN(const Fields run, Fields::of(value, fields.place() + ": runs",
                                              {"title", "folder", "options", "set"}));
    PaperRun one;
    ALLOT_ASSIGN(one.title, run.text("title"));
    ALLOT_ASSIGN(one.folder, run.optionalText("folder"));
    if (one.folder.empty()) one.folder = own;
    ALLOT_ASSIGN(one.options, run.texts("options"));
    ALLOT_ASSIGN(one.set, run.texts("set"));
    runs.push_back(std::move(one));
  }
  if (runs.empty()) runs.push_back({"all of it", own, {}, {}});
  return runs;
}

Result<PaperExperiment> readExperiment(const fs::path& folder) {
  const std::string file = (folder / "paper.yaml").string();
  ALLOT_ASSIGN(const YamlValue map, readYaml(file));
  ALLOT_ASSIGN(const Fields fields, Fields::of(map, file,
                                               {"paper", "items", "shows", "model", "data", "exact",
                                                "chosen", "differs", "ours", "runs"}));
  PaperExperiment one;
  one.name = folder.filename().string();
  ALLOT_ASSIGN(one.paper, fields.text("paper"));
  ALLOT_ASSIGN(one.items, fields.someTexts("items"));
  ALLOT_ASSIGN(one.shows, fields.text("shows"));
  ALLOT_ASSIGN(one.model, fields.text("model"));
  ALLOT_ASSIGN(one.data, fields.text("data"));
  ALLOT_ASSIGN(one.exact, fields.someTexts("exact"));
  ALLOT_ASSIGN(one.chosen, fields.texts("chosen"));
  ALLOT_ASSIGN(one.differs, fields.texts("differs"));
  ALLOT_ASSIGN(one.ours, fields.optionalText("ours"));
  ALLOT_ASSIGN(one.runs, runsOf(fields, one.name));
  if (const std::string slug = paperSlug(one.paper, one.items[0]); slug != one.name) {
    return badInput(file + ": the folder of " + one.items[0] + " of " + one.paper + " is called " +
                    slug);
  }
  return one;
}

Result<PaperSource> sourceOf(const YamlValue& value, const std::string& file) {
  ALLOT_ASSIGN(const Fields fields,
               Fields::of(value, file + ": papers", {"key", "title", "source", "without"}));
  PaperSource source;
  ALLOT_ASSIGN(source.key, fields.text("key"));
  ALLOT_ASSIGN(source.title, fields.text("title"));
  ALLOT_ASSIGN(source.source, fields.text("source"));
  ALLOT_ASSIGN(const std::vector<YamlValue> without, fields.list("without"));
  for (const YamlValue& one : without) {
    ALLOT_ASSIGN(const Fields found,
                 Fields::of(one, file + ": " + source.key + ": without", {"items", "why"}));
    WithoutExperiment left;
    ALLOT_ASSIGN(left.items, found.someTexts("items"));
    ALLOT_ASSIGN(left.why, found.text("why"));
    source.without.push_back(std::move(left));
  }
  return source;
}

Result<std::vector<PaperSource>> readSources(const std::string& file) {
  ALLOT_ASSIGN(const YamlValue map, readYaml(file));
  ALLOT_ASSIGN(const Fields fields, Fields::of(map, file, {"papers"}));
  ALLOT_ASSIGN(const std::vector<YamlValue> values, fields.list("papers"));
  std::vector<PaperSource> sources;
  for (const YamlValue& value : values) {
    ALLOT_ASSIGN(PaperSource source, sourceOf(value, file));
    sources.push_back(std::move(source));
  }
  return sources;
}

// Each table of a paper is in one place, and each place's paper is known.
Status checkPlaces(const Papers& papers, const std::string& folder) {
  std::map<std::string, std::string> places;  // by slug
  const auto take = [&](const std::string& paper, const std::vector<std::string>& items,
                        const std::string& place) -> Status {
    for (const std::string& item : items) {
      const auto [at, first] = places.emplace(paperSlug(paper, item), place);
      if (!first) {
        return badInput(folder + ": " + item + " of " + paper + " is in " + at->second +
                        " and in " + place);
      }
    }
    return {};
  };
  std::vector<std::string> keys;
  for (const PaperSource& source : papers.sources) {
    keys.push_back(source.key);
    for (const WithoutExperiment& one : source.without) {
      ALLOT_TRY(take(source.key, one.items, kList));
    }
  }
  for (const PaperExperiment& one : papers.experiments) {
    if (std::find(keys.begin(), keys.end(), one.paper) == keys.end()) {
      return badInput(folder + "/" + one.name + "/paper.yaml: paper: " + doubleQuoted(one.paper) +
                      " is not one of " + joined(keys) + ", those of " + kList);
    }
    ALLOT_TRY(take(one.paper, one.items, one.name));
    for (const PaperRun& run : one.runs) {
      const bool there =
          std::any_of(papers.experiments.begin(), papers.experiments.end(),
                      [&](const PaperExperiment& other) { return other.name == run.folder; });
      if (there) continue;
      return badInput(folder + "/" + one.name + "/paper.yaml: runs: folder: there is no " +
                      doubleQuoted(run.folder) + " beside it");
    }
  }
  return {};
}

}  // namespace

std::string paperSlug(const std::string& paper, const std::string& item) {
  std::string slug = paper;
  std::istringstream words(item);
  for (std::string word; words >> word;) {
    const bool number =
        std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    slug += number && word.size() == 1 ? "-0" : "-";
    for (const unsigned char c : word) slug += static_cast<char>(std::tolower(c));
  }
  return slug;
}

Result<Papers> readPapers(const std::string& folder) {
  Papers papers;
  ALLOT_ASSIGN(papers.sources, readSources(folder + "/" + kList));
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (fs::exists(it->path() / "paper.yaml", error)) folders.push_back(it->path());
  }
  if (error) return badInput(folder + ": cannot be read: " + error.message());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& one : folders) {
    ALLOT_ASSIGN(PaperExperiment experiment, readExperiment(one));
    papers.experiments.push_back(std::move(experiment));
  }
  ALLOT_TRY(checkPlaces(papers, folder));
  return papers;
}

Result<std::string> findPapersFolder() {
  const fs::path name = fs::path("experiments") / "papers";
  std::error_code error;
  if (fs::exists(name / kList, error)) return name.string();  // short, for commands
  for (fs::path folder = fs::current_path(error); !folder.empty(); folder = folder.parent_path()) {
    const fs::path found = folder / name;
    if (fs::exists(found / kList, error)) return found.string();
    if (folder == folder.root_path()) break;
  }
  return badInput(
      "there is no experiments/papers here or in a folder above: name the repository's with --dir");
}

Result<PaperExperiment> findPaperExperiment(const Papers& papers, const std::string& name) {
  std::vector<std::string> slugs;
  for (const PaperExperiment& one : papers.experiments) {
    for (const std::string& item : one.items) {
      slugs.push_back(paperSlug(one.paper, item));
      if (slugs.back() == name) return one;
    }
  }
  for (const PaperSource& source : papers.sources) {
    for (const WithoutExperiment& one : source.without) {
      for (const std::string& item : one.items) {
        if (paperSlug(source.key, item) == name) return badInput(name + ": " + one.why);
      }
    }
  }
  const std::string meant = nearest(name, slugs);
  return badInput(doubleQuoted(name) + " is no table or figure that is here" +
                  (meant.empty() ? "" : " (did you mean " + meant + "?)") +
                  ": `allot papers` lists them");
}

}  // namespace allot
