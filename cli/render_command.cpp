// allot render, allot crd.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/files/files.h"
#include "core/spec/kv_profile.h"
#include "core/spec/prefill_profile.h"
#include "k8s/render/crd.h"
#include "k8s/render/render.h"
#include "k8s/render/yaml_text.h"
#include "store/redis/acl.h"

namespace allot {
namespace {

constexpr size_t kLongestAccountFile = size_t{1} << 16;

struct RenderChoice {
  std::string file;
  std::vector<std::string> set;
  TextMap values;        // of keys that have an option of their own
  std::string accounts;  // folder
  bool no_accounts = false;
  RenderOptions options;
};

// Returns the files of the experiment's ConfigMap: the file, and the profiles that it names. Embeds
// the profiles in `object`.
Result<TextMap> filesOf(const RenderChoice& choice, const std::string& text,
                        ExperimentObject* object) {
  TextMap files = {{"experiment.yaml", text}};
  const v1::Spec& spec = object->experiment.spec();
  for (const auto& [key, named] : {std::pair(kSaleProfile.key, spec.attention().prefill_profile()),
                                   std::pair(kKvProfile.key, spec.model().kv_profile())}) {
    if (named.empty() || isProfileText(named)) continue;
    if (named.find('/') != std::string::npos) {
      return badInput(choice.file + ": " + key + ": " + named +
                      " lies in another folder, which a cluster has not; put the profile beside "
                      "the experiment file and name it without a folder");
    }
    ALLOT_ASSIGN(const std::string path, findNamedPath(key, named, choice.file));
    const auto profile = readWholeFile(path, kMostProfileBytes);
    if (!profile) return badInput(std::string(key) + ": " + profile.error().message);
    files[named] = *profile;
  }
  ALLOT_TRY(embedProfiles(&object->experiment, choice.file));
  return files;
}

// Returns the files of the folder --accounts, which is made if needed; without it new ones; none
// with --no-accounts.
Result<TextMap> accountsOf(const RenderChoice& choice) {
  if (choice.no_accounts) return TextMap();
  if (choice.accounts.empty()) {
    ALLOT_ASSIGN(const auto passwords, newPasswords());
    return accountFiles(passwords);
  }
  ALLOT_TRY(writeAcl(choice.accounts));
  TextMap files;
  std::map<std::string, std::string> roles;
  for (const AclRole& role : aclRoles()) roles[role.name] = "";
  for (const auto& [name, ignored] : accountFiles(roles)) {
    const auto text = readWholeFile(choice.accounts + "/" + name, kLongestAccountFile);
    if (!text) return badInput("--accounts: " + text.error().message);
    files[name] = *text;
  }
  return files;
}

Status render(RenderChoice choice) {
  if (choice.no_accounts && !choice.accounts.empty()) {
    return badInput("--accounts and --no-accounts: choose one");
  }
  for (const std::string& setting : choice.set) {
    if (setting.starts_with("spec.cluster.")) continue;
    return badInput(
        "--set " + escaped(setting) +
        ": the cluster gets the file as it is; of spec.cluster alone a value can be set "
        "here, for the rest edit the file");
  }
  const auto text = readWholeFile(choice.file, kMostYamlBytes);
  if (!text) return badInput(text.error().message);
  // Options become settings of the file, so that the same rules check them.
  std::vector<std::string> values = choice.set;
  for (const auto& [key, value] : choice.values) {
    values.push_back(
        key + "=" +
        nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
  ALLOT_ASSIGN(auto object, parseExperimentObject(*text, choice.file, values));
  ALLOT_ASSIGN(const TextMap files, filesOf(choice, *text, &object));
  ALLOT_ASSIGN(const TextMap accounts, accountsOf(choice));
  RenderOptions& options = choice.options;
  options.accounts = choice.no_accounts        ? AccountsSecret::kLeftOut
                     : choice.accounts.empty() ? AccountsSecret::kOnce
                                               : AccountsSecret::kStamped;
  options.name_space = object.name_space;
  ALLOT_ASSIGN(const KubeObjects objects, renderExperiment(object, files, accounts, options));
  std::printf("%s", yamlText(objects).c_str());
  if (options.accounts == AccountsSecret::kOnce) {
    std::fprintf(stderr,
                 "allot: Secret %s-accounts has passwords that were made now and cannot change: "
                 "from the second time on use --no-accounts, or keep them with --accounts FOLDER\n",
                 object.experiment.name().c_str());
  }
  return {};
}

}  // namespace

void addRenderCommand(CLI::App* app, Action* action) {
  auto* command = app->add_subcommand(
      "render", "Print an experiment's Kubernetes objects (YAML), for `kubectl apply -f -`");
  command->group(kRunGroup);
  auto choice = std::make_shared<RenderChoice>();
  RenderOptions& options = choice->options;
  command->add_option("experiment", choice->file, "Experiment file (YAML)")->required();
  TextMap& values = choice->values;
  const auto into = [&values](const char* key) {
    return [&values, key](const std::string& value) { values[key] = value; };
  };
  command->add_option_function<std::string>(
      "--namespace", into("metadata.namespace"),
      "Namespace of the objects [metadata.namespace, or kubectl's own]");
  command->add_option_function<std::string>("--registry", into("spec.cluster.image.registry"),
                                            "Where images come from [spec.cluster.image.registry]");
  command->add_option_function<std::string>("--tag", into("spec.cluster.image.tag"),
                                            "Their tag [spec.cluster.image.tag, or the version]");
  command
      ->add_option("--component", options.components,
                   "One of " + joined(componentNames()) + "; repeatable")
      ->allow_extra_args(false);
  command->add_option("--accounts", choice->accounts,
                      "Folder that keeps Redis's passwords; made if it is not there");
  command->add_flag("--no-accounts", choice->no_accounts,
                    "Without the Secret of Redis's passwords, which the cluster has already");
  command
      ->add_option("--set", choice->set,
                   "spec.cluster.key=value, replaces a value of the file; repeatable")
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n"
      "  allot render my.yaml --registry registry.example.org/team | kubectl apply -n team -f -\n"
      "  allot render my.yaml --no-accounts | kubectl apply -n team -f -     # again, after an "
      "edit\n"
      "  allot render my.yaml --component disruption-budget --set spec.cluster.gpus=1");
  command->callback([=] { *action = [choice] { return exitCodeOf(render(*choice)); }; });
}

void addCrdCommand(CLI::App* app, Action* action) {
  auto* crd = app->add_subcommand(
      "crd", "Print what makes a Kubernetes cluster know kind Experiment (a CRD, as YAML)");
  crd->group(kLookUpGroup);
  auto without_rules = std::make_shared<bool>(false);
  crd->add_flag("--without-rules", *without_rules,
                "For servers before 1.25: fixed keys are kept by the operator alone");
  crd->footer("Example:\n  allot crd | kubectl apply --server-side -f -");
  crd->callback([=] {
    *action = [without_rules] {
      const auto rules = *without_rules ? CrdRules::kWithout : CrdRules::kWith;
      std::printf("%s", yamlText(experimentCrd(rules)).c_str());
      return 0;
    };
  });
}

}  // namespace allot
