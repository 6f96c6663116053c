// allot crd.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "k8s/render/crd.h"
#include "k8s/render/yaml_text.h"

namespace allot {

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
