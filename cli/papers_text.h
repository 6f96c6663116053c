#pragma once
// What `allot papers` prints, and what the READMEs of experiments/papers hold of it between their
// marks. Pure functions, any thread.
#include <nlohmann/json.hpp>
#include <string>

#include "cli/papers.h"

namespace allot {

// Of the list: each paper with its experiments, then what no experiment repeats.
std::string papersText(const Papers& papers, bool colour);
nlohmann::json papersJson(const Papers& papers);
// The same between the marks "papers" of experiments/papers/README.md.
std::string papersMarkdown(const Papers& papers);

// Of one. `folder` is that of the list, for commands that can be pasted.
std::string paperText(const PaperExperiment& paper, const std::string& folder, bool colour);
nlohmann::json paperJson(const PaperExperiment& paper);
// Between the marks "paper" of its README.md; commands are those of the repository's root.
std::string paperMarkdown(const PaperExperiment& paper);

}  // namespace allot
