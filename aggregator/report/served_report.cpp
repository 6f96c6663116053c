#include "aggregator/report/served_report.h"

#include <fstream>
#include <sstream>
#include <string_view>

#include "aggregator/report/report.h"

namespace allot {
namespace {

constexpr std::string_view kReport = "/report/";
// What writeReport leaves. Nothing else of the folder is shown, whatever a path says.
struct ReportFile {
  std::string_view name;
  const char* type;
};
constexpr ReportFile kReportFiles[] = {{"summary.json", "application/json"},
                                       {"policy.json", "application/json"},
                                       {"report.html", "text/html; charset=utf-8"},
                                       {"curve.csv", "text/csv; charset=utf-8"},
                                       {"curve.svg", "image/svg+xml"},
                                       {"fidelity.csv", "text/csv; charset=utf-8"},
                                       {"variance.csv", "text/csv; charset=utf-8"}};

}  // namespace

bool isReportPath(const std::string& path) { return path.starts_with(kReport); }

HttpReply serveReport(const std::string& path, const std::string& dir) {
  for (const auto& [name, type] : kReportFiles) {
    if (!isReportPath(path) || path.substr(kReport.size()) != name) continue;
    std::ifstream file(dir + "/" + std::string(name), std::ios::binary);
    if (dir.empty() || !file) {
      return plainText(404, "Not there yet: it is written after an evaluation and at the end.");
    }
    std::stringstream text;
    text << file.rdbuf();
    return {200, type, text.str(), kReportLoads};
  }
  return plainText(404, "The report has no such file: its summary is /report/summary.json.");
}

}  // namespace allot
