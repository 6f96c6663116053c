#include "aggregator/report/report.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "aggregator/page/assets.h"
#include "aggregator/report/curve_svg.h"
#include "aggregator/report/figures.h"
#include "aggregator/report/report_data.h"
#include "aggregator/report/report_tables.h"

namespace allot {
namespace {

using nlohmann::json;

// --- the documents ---

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json policyJson(const json& view) {
  return {{"experiment", viewField(view, "experiment")},
          {"run_id", viewField(view, "run_id")},
          {"version", viewField(view, "updates")},
          {"total_budget", viewField(view, "total_budget")},
          {"layers", viewField(view, "layers")},
          {"probabilities", viewField(view, "policy_probabilities")},
          {"learned_schedule", viewField(view, "learned_schedule")}};
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

Status ioError(const std::string& path, int error) {
  return fail(ErrorCode::kIo, "cannot write " + path + ": " +
                                  std::error_code(error, std::generic_category()).message());
}

// Writes and syncs; 0 or the errno.
int writeAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(descriptor) == 0 ? 0 : errno;
}

// A reader sees the old file or the new one, also after a power cut.
Status writeFile(const std::string& dir, const std::string& name, std::string_view text) {
  const std::string path = dir + "/" + name;
  const std::string temporary = fmt::format("{}/.{}.{}", dir, name, ::getpid());
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) return ioError(path, errno);
  int error = writeAll(descriptor, text);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return ioError(path, error);
  }
  return {};
}

Status syncFolder(const std::string& dir) {
  const int descriptor = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ioError(dir, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error == 0 ? Status() : ioError(dir, error);
}

Status writeFiles(const std::string& dir, const json& view) {
  ALLOT_ASSIGN(const std::string html, reportHtml(view));
  std::error_code made;
  std::filesystem::create_directories(dir, made);
  if (made) return ioError(dir, made.value());
  const auto curve = newestCompletePerSchedule(evaluationPoints(view));
  const auto fidelity = fidelityPoints(view);
  ALLOT_TRY(writeFile(dir, "report.html", html));
  ALLOT_TRY(writeFile(dir, "curve.csv", curveCsv(curve)));
  ALLOT_TRY(writeFile(dir, "curve.svg", curveSvg(viewText(view, "experiment"), curve)));
  ALLOT_TRY(writeFile(dir, "policy.json", dump(policyJson(view), 2) + "\n"));
  ALLOT_TRY(writeFile(dir, "summary.json", dump(summaryJson(view), 2) + "\n"));
  if (!fidelity.empty()) ALLOT_TRY(writeFile(dir, "fidelity.csv", fidelityCsv(fidelity)));
  return syncFolder(dir);
}

}  // namespace

Result<std::string> reportHtml(const json& view) {
  // Inside <script> only "<" can start something else (</script, <!--); JSON may write it as an
  // escape, as it stands in strings alone.
  std::string data;
  for (const char c : dump(view, -1)) {
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

Status writeReport(const std::string& dir, const json& view) {
  try {
    return writeFiles(dir, view);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, "cannot write the report into " + dir + ": " + e.what());
  }
}

}  // namespace allot
