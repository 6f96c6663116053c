#include "cli/run_report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace allot {
namespace {

using nlohmann::json;

std::string percentCell(const json& row) {
  if (row.is_null()) return "-";
  char text[96];
  std::snprintf(text, sizeof text, "%.3f  [%.3f, %.3f]  n %llu", row.value("accuracy", 0.0),
                row["ci95"][0].get<double>(), row["ci95"][1].get<double>(),
                static_cast<unsigned long long>(row.value("n", uint64_t{0})));
  return text;
}

// The table at the end: one row a total budget, uniform and learned side by side.
void printTable(const json& summary) {
  for (const json& row : summary.value("evaluations", json::array())) {
    if (row["schedule"] == "dense") {
      std::printf("\ndense attention: accuracy %s\n", percentCell(row).c_str());
    }
  }
  std::vector<std::string> methods;
  for (const json& row : summary["evaluations"]) {
    const std::string method = row["method"];
    if (method != "dense" && std::find(methods.begin(), methods.end(), method) == methods.end()) {
      methods.push_back(method);
    }
  }
  for (const std::string& method : methods) {
    std::printf("\n%-24s %-34s %s\n", (method + ", total budget").c_str(),
                "uniform (95 % interval)", "learned (95 % interval)");
    std::map<uint64_t, std::map<std::string, json>> table;
    std::vector<json> others;
    for (const json& row : summary["evaluations"]) {
      if (row["method"] != method) continue;
      const std::string schedule = row["schedule"];
      if (schedule == "uniform" || schedule == "learned") {
        table[row["total_budget"].get<uint64_t>()][schedule] = row;
      } else {
        others.push_back(row);
      }
    }
    for (auto& [budget, cells] : table) {
      std::printf("%-24llu %-34s %s\n", static_cast<unsigned long long>(budget),
                  percentCell(cells["uniform"]).c_str(), percentCell(cells["learned"]).c_str());
    }
    for (const json& row : others) {
      std::printf("%-24s %s\n",
                  (row["schedule"].get<std::string>() + " " + row["total_budget"].dump()).c_str(),
                  percentCell(row).c_str());
    }
  }
  if (!summary.value("learned_schedule", json::array()).empty() &&
      summary.value("updates", 0) > 0) {
    std::printf("\nlearned schedule, samples per layer: %s\n",
                summary["learned_schedule"].dump().c_str());
  }
}

}  // namespace

Status printReport(const std::string& folder) {
  std::ifstream file(folder + "/summary.json");
  const json summary = json::parse(file, nullptr, false);
  if (!summary.is_object() || !summary.contains("evaluations")) {
    return fail(ErrorCode::kInternal, "the run ended without " + folder + "/summary.json");
  }
  printTable(summary);
  std::printf(
      "\n%llu updates, %llu episodes, %s, %.1f episodes/s while learning\nreport: %s/report.html\n",
      static_cast<unsigned long long>(summary.value("updates", uint64_t{0})),
      static_cast<unsigned long long>(summary.value("episodes", uint64_t{0})),
      duration(summary.value("wall_seconds", 0.0)).c_str(),
      summary.value("episodes_per_second", 0.0), folder.c_str());
  return {};
}

}  // namespace allot
