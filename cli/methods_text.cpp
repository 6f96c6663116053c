#include "cli/methods_text.h"

#include <algorithm>
#include <vector>

#include "allot/kernels/method.h"
#include "cli/terminal.h"

namespace allot {

std::vector<kernels::MethodTraits> allMethods() {
  const auto table = kernels::methodTable();
  std::vector<kernels::MethodTraits> methods(table.begin(), table.end());
  std::stable_partition(methods.begin(), methods.end(), [](const kernels::MethodTraits& method) {
    return kernels::includes(method.phases, kernels::Phase::kDecode);
  });
  return methods;
}

std::string_view methodMeaning(std::string_view name) {
  for (const kernels::MethodTraits& method : kernels::methodTable()) {
    if (method.name == name) return method.reads;
  }
  return "";
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

}  // namespace allot
