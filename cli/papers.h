#pragma once
// The experiments that repeat what papers report: a folder of folders, experiments/papers, each
// with an experiment.yaml and a paper.yaml that says which tables it serves, what it needs, what of
// it is the paper's to the letter and what had to be chosen. `allot papers` and the READMEs there
// are made of these files. Looks at the file system; any thread.
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

// One way to run the experiment: a column of a table, a panel of a figure.
struct PaperRun {
  std::string title;
  std::string folder;                // whose experiment.yaml; its own, or another of the list
  std::vector<std::string> options;  // of `allot run`, "--allow-code-execution"
  std::vector<std::string> set;      // "spec.key=value", as of its --set
};

struct PaperExperiment {
  std::string name;                  // its folder's
  std::string paper;                 // PaperSource::key
  std::vector<std::string> items;    // "Table 4"; the folder is called after the first
  std::string shows;                 // what they are about
  std::string model, data;           // what is needed
  std::vector<std::string> exact;    // settings that the paper states and the experiment has
  std::vector<std::string> chosen;   // those that the paper leaves open
  std::vector<std::string> differs;  // those that are not the paper's
  std::string ours;                  // where figures of ours are, below the repository; or ""
  std::vector<PaperRun> runs;        // at least one

  // Nothing differs from what the paper says.
  bool isExact() const { return differs.empty(); }
};

// Tables and figures that no experiment repeats, and why.
struct WithoutExperiment {
  std::vector<std::string> items;
  std::string why;
};

struct PaperSource {
  std::string key;     // "santa": folders of its experiments begin with it
  std::string title;   // "SANTA: Stochastic Sparse Attention for Memory-Bound Inference"
  std::string source;  // "arXiv 2605.01910, version 2"
  std::vector<WithoutExperiment> without;
};

struct Papers {
  std::vector<PaperSource> sources;          // in the order of papers.yaml
  std::vector<PaperExperiment> experiments;  // by name
};

// "Table 4" of "santa": "santa-table-04".
std::string paperSlug(const std::string& paper, const std::string& item);

// Reads papers.yaml and every folder with a paper.yaml. kUsage names the file and what is wrong: a
// key that is not known or missing, a paper that papers.yaml has not, a table that two places name,
// a folder that is not called after its first table.
Result<Papers> readPapers(const std::string& folder);

// experiments/papers here or in the nearest folder above. kUsage if there is none.
Result<std::string> findPapersFolder();

// By the folder's name, or by the slug of any table that it serves. kUsage says which there are.
Result<PaperExperiment> findPaperExperiment(const Papers& papers, const std::string& name);

}  // namespace allot
