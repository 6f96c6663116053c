#include "cli/explain.h"

#include <algorithm>
#include <string_view>

#include "cli/terminal.h"
#include "core/spec/model_catalogue.h"
#include "core/spec/spec.h"
#include "core/spec/spec_rules.h"
#include "core/spec/task_catalogue.h"
#include "core/telemetry/metric_catalogue.h"
#include "core/words.h"

namespace allot {
namespace {

using nlohmann::json;

std::string gradersOfTask(const TaskInfo& task) {
  std::string names(task.grader);
  if (!task.other_grader.empty()) names.append(", ").append(task.other_grader);
  return names;
}

std::string pathWord(TaskPath path) {
  return std::string(wordAt(path, {"never", "optional", "required"}));
}

constexpr size_t kIndent = 4;

// Lays out texts for a terminal: a bold head, and indented lines below it.
struct Layout {
  size_t width;
  bool colour;

  std::string entry(std::string_view name, const std::string& facts,
                    const std::string& meaning) const {
    return title(std::string(name)) + (facts.empty() ? "" : wrapped(facts, width, kIndent)) +
           (meaning.empty() ? "" : wrapped(meaning, width, kIndent));
  }
  std::string title(const std::string& text) const {
    return toned(wrapped(text, width), Tone::kBold, colour);
  }
};

// ---- Keys of the experiment file ----

bool isBelow(const std::string& path, const std::string& section) {
  return section == "spec" || path == section || path.starts_with(section + ".");
}

Explanation explainKeys(const std::string& section, const Layout& layout) {
  Explanation told{"SpecKeys", {{"keys", json::array()}}, "", ""};
  for (const SpecKey& key : specKeys()) {
    if (!isBelow(key.path, section)) continue;
    told.fields["keys"].push_back({{"path", key.path},
                                   {"type", key.type},
                                   {"default", key.default_value},
                                   {"allowed", key.allowed},
                                   {"live", key.live},
                                   {"meaning", key.meaning}});
    const std::string given = key.default_value.starts_with("required")
                                  ? key.default_value
                                  : "default " + key.default_value;
    told.text += layout.entry(
        key.path, key.type + ": " + key.allowed + "; " + given + (key.live ? "; live" : ""),
        key.meaning);
  }
  told.text +=
      "\n" + wrapped("Keys marked live may change while a run goes on: `allot set`.", layout.width);
  told.markdown = specKeysMarkdown();
  return told;
}

// ---- Methods ----

std::string parametersText(std::string_view method, const Layout& layout) {
  std::string text;
  for (const auto& parameter : kernels::methodParameterTable()) {
    const auto methods = ", " + parameter.methods + ",";
    if (!method.empty() && methods.find(", " + std::string(method) + ",") == std::string::npos) {
      continue;
    }
    text += layout.entry(parameter.key,
                         (method.empty() ? "of " + parameter.methods + "; " : "") +
                             parameter.allowed + "; default " + parameter.default_value,
                         parameter.meaning);
  }
  return text;
}

// only: the name of a method; "": all. Fields have all parameters.
Explanation explainMethods(std::string_view only, const Layout& layout) {
  Explanation told{"Methods", {{"methods", json::array()}, {"parameters", json::array()}}, "", ""};
  for (const kernels::MethodTraits& method : allMethods()) {
    if (!only.empty() && method.name != only) continue;
    told.fields["methods"].push_back({{"name", method.name},
                                      {"phases", wordsOf(method.phases)},
                                      {"gpu", wordsOf(method.gpu)},
                                      {"promise", wordsOf(method.promise)},
                                      {"reads", method.reads}});
    told.text += layout.entry(method.name,
                              "in " + std::string(wordsOf(method.phases)) + "; on a GPU in " +
                                  std::string(wordsOf(method.gpu)) +
                                  "; promise: " + std::string(wordsOf(method.promise)),
                              std::string(method.reads));
  }
  for (const auto& parameter : kernels::methodParameterTable()) {
    told.fields["parameters"].push_back({{"key", parameter.key},
                                         {"methods", parameter.methods},
                                         {"default", parameter.default_value},
                                         {"allowed", parameter.allowed},
                                         {"meaning", parameter.meaning}});
  }
  const std::string parameters = parametersText(only, layout);
  if (!parameters.empty()) {
    told.text +=
        "\n" + layout.title("Parameters, as in `vattention epsilon=0.1 delta=0.1`") + parameters;
  }
  told.markdown = methodsMarkdown() + "\n" + kernels::methodParametersMarkdown();
  return told;
}

// ---- Models, tasks, metrics ----

Explanation explainModels(const Layout& layout) {
  Explanation told{
      "Models", {{"architectures", json::array()}, {"chat_templates", json::array()}}, "", ""};
  told.text = layout.title("Architectures, of config.json or of a GGUF file");
  for (const ArchitectureInfo& info : architectureCatalogue()) {
    told.fields["architectures"].push_back({{"name", info.name},
                                            {"gguf", info.gguf},
                                            {"models", info.models},
                                            {"special", info.special}});
    told.text += layout.entry(info.name, info.gguf.empty() ? "" : "GGUF: " + std::string(info.gguf),
                              std::string(info.models) + ". " + std::string(info.special));
  }
  told.text += "\n" + layout.title("Chat templates, the values of spec.model.chatTemplate");
  for (const ChatTemplateInfo& info : chatTemplateCatalogue()) {
    told.fields["chat_templates"].push_back(
        {{"name", info.name}, {"models", info.models}, {"special", info.special}});
    told.text +=
        layout.entry(info.name, "", std::string(info.models) + ". " + std::string(info.special));
  }
  told.markdown = architecturesMarkdown() + "\n" + chatTemplatesMarkdown();
  return told;
}

// only: a suite, a task or a grader; "": all. It chooses the text, not the fields.
Explanation explainTasks(std::string_view only, const Layout& layout) {
  Explanation told{"Tasks", tasksJson(), "", tasksMarkdown() + "\n" + gradersMarkdown()};
  for (const SuiteInfo& suite : suiteCatalogue()) {
    if (!only.empty() && suite.name != only && suite.find(only) == nullptr) continue;
    told.text += layout.entry("suite " + std::string(suite.name), "", std::string(suite.meaning));
    for (const TaskInfo& task : suite.tasks) {
      if (!only.empty() && suite.name != only && task.name != only) continue;
      told.text += wrapped(std::string(task.name) + ": " + std::string(task.meaning) +
                               "; graded by " + std::string(task.grader),
                           layout.width, kIndent);
    }
  }
  if (only.empty()) told.text += "\n" + layout.title("Graders: an answer is right if");
  for (const GraderInfo& grader : graderCatalogue()) {
    if (!only.empty() && grader.name != only) continue;
    told.text += layout.entry(grader.name, "", std::string(grader.meaning));
  }
  return told;
}

Explanation explainMetrics(const Layout& layout) {
  Explanation told{"Metrics", {{"metrics", json::array()}}, "", metricsMarkdown()};
  for (const MetricInfo& metric : metricCatalogue()) {
    told.fields["metrics"].push_back({{"name", metric.name},
                                      {"type", metricKindName(metric.kind)},
                                      {"process", metric.process},
                                      {"labels", metric.labels},
                                      {"meaning", metric.help}});
    std::string labels;
    for (const std::string_view label : metric.labels) labels += ", " + std::string(label);
    told.text += layout.entry(metric.name,
                              std::string(metricKindName(metric.kind)) + " of " +
                                  std::string(metric.process) +
                                  (labels.empty() ? "" : ", by " + labels.substr(2)),
                              std::string(metric.help));
  }
  return told;
}

Explanation explainAll(const Layout& layout) {
  Explanation told{"Topics", {{"topics", json::array()}}, "", ""};
  TextTable table({"topic", "what it tells"});
  told.markdown = "| topic | what it tells |\n| --- | --- |\n";
  for (const Topic& topic : explainTopics()) {
    told.fields["topics"].push_back({{"name", topic.name}, {"meaning", topic.meaning}});
    table.add({topic.name, topic.meaning});
    told.markdown += "| `" + topic.name + "` | " + topic.meaning + " |\n";
  }
  told.text = table.text(layout.colour) + "\nSections of the experiment file:\n";
  std::string sections;
  for (const std::string& section : knownKeys("spec")) sections += " spec." + section;
  told.text += wrapped(sections, layout.width, 2);
  return told;
}

std::vector<std::string_view> taskSubjects() {
  std::vector<std::string_view> names;
  for (const SuiteInfo& suite : suiteCatalogue()) {
    names.push_back(suite.name);
    for (const TaskInfo& task : suite.tasks) names.push_back(task.name);
  }
  for (const GraderInfo& grader : graderCatalogue()) names.push_back(grader.name);
  return names;
}

// Returns the subjects that a suggestion may name.
std::vector<std::string> subjects() {
  std::vector<std::string> names;
  for (const Topic& topic : explainTopics()) names.push_back(topic.name);
  for (const SpecKey& key : specKeys()) names.push_back(key.path);
  for (const std::string& section : knownKeys("spec")) names.push_back("spec." + section);
  for (const kernels::MethodTraits& method : allMethods()) names.emplace_back(method.name);
  for (const std::string_view name : taskSubjects()) names.emplace_back(name);
  return names;
}

// Returns "spec.policy.totalBudget" for "totalBudget"; "" if no key ends so.
std::string keyThatEndsWith(const std::string& word) {
  for (const SpecKey& key : specKeys()) {
    if (key.path.ends_with("." + word)) return key.path;
  }
  return "";
}

}  // namespace

std::vector<kernels::MethodTraits> allMethods() {
  const auto table = kernels::methodTable();
  std::vector<kernels::MethodTraits> methods(table.begin(), table.end());
  std::stable_partition(methods.begin(), methods.end(), [](const kernels::MethodTraits& method) {
    return kernels::includes(method.phases, kernels::Phase::kDecode);
  });
  return methods;
}

std::string methodsText() {
  TextTable table({"method", "phases", "on a GPU", "promise", "what it reads"});
  for (const kernels::MethodTraits& method : allMethods()) {
    table.add({std::string(method.name), std::string(wordsOf(method.phases)),
               std::string(wordsOf(method.gpu)), std::string(wordsOf(method.promise)),
               std::string(method.reads)});
  }
  return table.text(usesColour()) +
         "\nParameters follow the name, as in `vattention epsilon=0.1 delta=0.1`:\n\n" +
         kernels::methodParametersMarkdown();
}

std::string methodsMarkdown() {
  std::string table =
      "| method | what it reads | promise | phases | on a GPU |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const kernels::MethodTraits& method : allMethods()) {
    table.append("| `").append(method.name).append("` | ").append(method.reads);
    table.append(" | ").append(wordsOf(method.promise)).append(" | ");
    table.append(wordsOf(method.phases)).append(" | ").append(wordsOf(method.gpu)).append(" |\n");
  }
  return table;
}

std::string tasksText() {
  std::string text;
  for (const SuiteInfo& suite : suiteCatalogue()) {
    text += "suite " + std::string(suite.name) + ": " + std::string(suite.meaning) +
            "; spec.task.path: " + pathWord(suite.path) + "\n";
    TextTable table({"task", "asks for", "graders"});
    for (const TaskInfo& task : suite.tasks) {
      table.add({std::string(task.name),
                 std::string(task.meaning) + (task.needs_path ? " (from files only)" : ""),
                 gradersOfTask(task)});
    }
    text += table.text(usesColour()) + "\n";
  }
  TextTable table({"grader", "an answer is right if"});
  for (const GraderInfo& grader : graderCatalogue()) {
    table.add({std::string(grader.name), std::string(grader.meaning)});
  }
  return text + table.text(usesColour());
}

json tasksJson() {
  json suites = json::array();
  for (const SuiteInfo& suite : suiteCatalogue()) {
    json tasks = json::array();
    for (const TaskInfo& task : suite.tasks) {
      json one = {{"name", task.name},
                  {"meaning", task.meaning},
                  {"grader", task.grader},
                  {"needs_path", task.needs_path}};
      if (!task.other_grader.empty()) one["other_grader"] = task.other_grader;
      tasks.push_back(std::move(one));
    }
    suites.push_back({{"name", suite.name},
                      {"meaning", suite.meaning},
                      {"path", pathWord(suite.path)},
                      {"tasks", std::move(tasks)}});
  }
  json graders = json::array();
  for (const GraderInfo& grader : graderCatalogue()) {
    graders.push_back({{"name", grader.name}, {"meaning", grader.meaning}});
  }
  return {{"suites", std::move(suites)}, {"graders", std::move(graders)}};
}

const std::vector<Topic>& explainTopics() {
  static const std::vector<Topic> topics = {
      {"spec", "every key of the experiment file; also one section or key, as spec.policy"},
      {"methods", "attention methods and their parameters; also one method, as s2anta-sys"},
      {"models", "architectures that run, and the turns in which models are asked"},
      {"tasks", "suites, their tasks, and the graders of answers; also one of these, as niah"},
      {"metrics", "what the processes export for Prometheus"},
  };
  return topics;
}

Result<Explanation> explain(const std::string& subject, size_t width, bool colour) {
  const Layout layout{width, colour};
  if (subject.empty()) return explainAll(layout);
  if (subject == "methods") return explainMethods("", layout);
  if (subject == "models") return explainModels(layout);
  if (subject == "tasks") return explainTasks("", layout);
  if (subject == "metrics") return explainMetrics(layout);
  if (subject == "spec" || subject == "keys" || !knownKeys(subject).empty()) {
    return explainKeys(subject == "keys" ? "spec" : subject, layout);
  }
  for (const SpecKey& key : specKeys()) {
    if (key.path == subject) return explainKeys(subject, layout);
  }
  for (const kernels::MethodTraits& method : allMethods()) {
    if (method.name == subject) return explainMethods(subject, layout);
  }
  for (const std::string_view name : taskSubjects()) {
    if (name == subject) return explainTasks(subject, layout);
  }
  std::string meant = nearest(subject, subjects());
  if (meant.empty()) meant = keyThatEndsWith(subject);
  return badInput(
      "there is nothing to explain of '" + printable(subject, 60) + "'" +
      (meant.empty() ? ": `allot explain` lists the topics" : " (did you mean " + meant + "?)"));
}

}  // namespace allot
