#include "aggregator/report/report.h"

#include <spdlog/fmt/fmt.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "aggregator/page/assets.h"
#include "aggregator/report/curve_svg.h"
#include "aggregator/report/figures.h"
#include "aggregator/report/report_tables.h"
#include "core/files/files.h"

namespace allot {
namespace {

using nlohmann::json;

// --- the documents ---

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json policyJson(const json& facts) {
  const auto fact = [&](const char* key) { return facts.value(key, json()); };
  return {{"experiment", fact("experiment")},   {"run_id", fact("run_id")},
          {"version", fact("updates")},         {"total_budget", fact("total_budget")},
          {"layers", fact("layers")},           {"probabilities", fact("policy_probabilities")},
          {"granularity", fact("granularity")}, {"learned_schedule", fact("learned_schedule")},
          {"frontier", fact("frontier")}};
}

// Puts `text` in the place of `mark`, which index.html holds exactly once.
Status put(std::string& html, std::string_view mark, std::string_view text) {
  const size_t at = html.find(mark);
  if (at == std::string::npos || html.find(mark, at + 1) != std::string::npos) {
    return fail(ErrorCode::kInternal, "aggregator/page/index.html must hold exactly one " +
                                          std::string(mark) + ": build again from a clean tree");
  }
  html.replace(at, mark.size(), text);
  return {};
}

// --- writing ---

Status writeFiles(const std::string& dir, const RunView& view) {
  ALLOT_ASSIGN(const std::string html, reportHtml(view));
  std::error_code made;
  std::filesystem::create_directories(dir, made);
  if (made) return fail(ErrorCode::kIo, "cannot make " + dir + ": " + made.message());
  const auto curve = newestCompletePerSchedule(view.points);
  const auto fidelity = newestFidelity(view.fidelity);
  const auto variance = newestFidelity(view.variance);
  const std::string experiment = view.facts.value("experiment", "");
  ALLOT_TRY(writeWholeFile(dir + "/report.html", html));
  ALLOT_TRY(writeWholeFile(dir + "/curve.csv", curveCsv(curve)));
  ALLOT_TRY(writeWholeFile(dir + "/curve.svg", curveSvg(experiment, curve)));
  ALLOT_TRY(writeWholeFile(dir + "/policy.json", dump(policyJson(view.facts), 2) + "\n"));
  ALLOT_TRY(writeWholeFile(dir + "/summary.json", dump(summaryJson(view), 2) + "\n"));
  if (!fidelity.empty()) {
    ALLOT_TRY(writeWholeFile(dir + "/fidelity.csv", fidelityCsv(fidelity)));
  }
  if (variance.empty()) return {};
  return writeWholeFile(dir + "/variance.csv", varianceCsv(variance));
}

}  // namespace

Result<std::string> reportHtml(const RunView& view) {
  // Inside <script> only "<" can start something else (</script, <!--); JSON may write it as an
  // escape, as it stands in strings alone.
  std::string data;
  for (const char c : dump(viewJson(view), -1)) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  const auto element = [](std::string_view open, std::string_view text, std::string_view close) {
    return fmt::format("{}\n{}\n{}", open, text, close);
  };
  std::string html(page::kIndexHtml);
  // Later marks are looked for in a text that holds the earlier files; the data comes last.
  ALLOT_TRY(put(
      html, "<link rel=\"icon\" href=\"icon.svg\">",
      fmt::format("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">", kReportLoads)));
  ALLOT_TRY(put(html, "<link rel=\"stylesheet\" href=\"page.css\">",
                element("<style>", page::kPageCss, "</style>")));
  ALLOT_TRY(put(html, "<div id=\"figures\"></div>",
                "<style>" + std::string(plotStyle()) + "</style>\n<div id=\"figures\">\n" +
                    figuresHtml(view) + "</div>"));
  ALLOT_TRY(put(html, "<script src=\"chart.js\"></script>",
                element("<script>", page::kChartJs, "</script>")));
  ALLOT_TRY(put(html, "<script src=\"page.js\"></script>",
                element("<script type=\"application/json\" id=\"run-view\">", data, "</script>") +
                    "\n" + element("<script>", page::kPageJs, "</script>")));
  return html;
}

Status writeReport(const std::string& dir, const RunView& view) {
  try {
    return writeFiles(dir, view);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, "cannot write the report into " + dir + ": " + e.what());
  }
}

}  // namespace allot
