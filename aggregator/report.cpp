#include "aggregator/report.h"

#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>

#include "aggregator/page/assets.h"

namespace allot {
namespace {

using nlohmann::json;

// --- reading the view, which workers' words have gone into ---

const json& field(const json& object, const char* key) {
  static const json kNothing;
  if (!object.is_object()) return kNothing;
  const auto it = object.find(key);
  return it == object.end() ? kNothing : *it;
}

std::string text(const json& object, const char* key) {
  const json& value = field(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::optional<double> number(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// A count that a double holds exactly.
std::optional<uint64_t> count(const json& value) {
  const auto real = number(value);
  if (!real || *real < 0 || *real > 9007199254740992.0) return std::nullopt;
  return static_cast<uint64_t>(*real);
}

std::optional<CurvePoint> evaluationPoint(const json& row) {
  const auto accuracy = number(field(row, "accuracy"));
  const auto budget = count(field(row, "total_budget"));
  const auto n = count(field(row, "n"));
  if (!accuracy || *accuracy < 0 || *accuracy > 1 || !budget || !n || *n == 0) return std::nullopt;
  CurvePoint point;
  point.method = text(row, "method");
  point.schedule = text(row, "schedule");
  point.version = count(field(row, "version")).value_or(0);
  point.total_budget = *budget;
  point.n = *n;
  point.accuracy = point.low = point.high = *accuracy;
  const json& interval = field(row, "ci95");
  if (interval.is_array() && interval.size() == 2) {
    point.low = std::clamp(number(interval[0]).value_or(*accuracy), 0.0, *accuracy);
    point.high = std::clamp(number(interval[1]).value_or(*accuracy), *accuracy, 1.0);
  }
  return point;
}

uint64_t fullCount(const std::vector<CurvePoint>& points) {
  uint64_t full = 0;
  for (const auto& point : points) full = std::max(full, point.n);
  return full;
}

// --- the documents ---

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json evaluationsJson(const std::vector<CurvePoint>& points) {
  json rows = json::array();
  for (const auto& point : points) {
    rows.push_back({{"method", point.method},
                    {"schedule", point.schedule},
                    {"total_budget", point.total_budget},
                    {"n", point.n},
                    {"accuracy", point.accuracy},
                    {"ci95", {point.low, point.high}},
                    {"version", point.version}});
  }
  return rows;
}

json summaryJson(const json& view, const std::vector<CurvePoint>& points) {
  json summary = json::object();
  for (const char* key :
       {"run_id", "experiment", "state", "synchronous", "started_unix_ms", "updates", "max_updates",
        "episodes", "wall_seconds", "episodes_per_second", "total_budget", "layers",
        "learned_schedule", "model"}) {
    summary[key] = field(view, key);
  }
  summary["evaluations"] = evaluationsJson(newestCompletePerCell(points));
  return summary;
}

json policyJson(const json& view) {
  return {{"experiment", field(view, "experiment")},
          {"run_id", field(view, "run_id")},
          {"version", field(view, "updates")},
          {"total_budget", field(view, "total_budget")},
          {"layers", field(view, "layers")},
          {"probabilities", field(view, "policy_probabilities")},
          {"learned_schedule", field(view, "learned_schedule")}};
}

std::string csvField(const std::string& value) {
  if (value.find_first_of(",\"\r\n") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
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
  const auto points = evaluationPoints(view);
  const auto curve = newestCompletePerSchedule(points);
  ALLOT_TRY(writeFile(dir, "report.html", html));
  ALLOT_TRY(writeFile(dir, "curve.csv", curveCsv(curve)));
  ALLOT_TRY(writeFile(dir, "curve.svg", curveSvg(text(view, "experiment"), curve)));
  ALLOT_TRY(writeFile(dir, "policy.json", dump(policyJson(view), 2) + "\n"));
  ALLOT_TRY(writeFile(dir, "summary.json", dump(summaryJson(view, points), 2) + "\n"));
  return syncFolder(dir);
}

}  // namespace

std::vector<CurvePoint> evaluationPoints(const json& view) {
  std::vector<CurvePoint> points;
  const json& rows = field(view, "evaluations");
  if (!rows.is_array()) return points;
  for (const json& row : rows) {
    if (auto point = evaluationPoint(row)) points.push_back(std::move(*point));
  }
  return points;
}

std::vector<CurvePoint> newestCompletePerSchedule(const std::vector<CurvePoint>& points) {
  using Line = std::pair<std::string, std::string>;
  using Row = std::map<uint64_t, const CurvePoint*>;  // by budget
  const uint64_t full = fullCount(points);
  std::map<Line, std::map<uint64_t, Row>> lines;  // by version
  for (const auto& point : points) {
    lines[{point.method, point.schedule}][point.version][point.total_budget] = &point;
  }
  std::vector<CurvePoint> chosen;
  for (const auto& [line, versions] : lines) {
    const Row* best = nullptr;
    std::pair<size_t, size_t> best_rank;
    for (const auto& [version, row] : versions) {  // ascending: the newest of equals wins
      const auto complete = static_cast<size_t>(std::count_if(
          row.begin(), row.end(), [&](const auto& cell) { return cell.second->n == full; }));
      const std::pair rank(complete, row.size());
      if (best == nullptr || rank >= best_rank) {
        best = &row;
        best_rank = rank;
      }
    }
    for (const auto& [budget, point] : *best) chosen.push_back(*point);
  }
  return chosen;
}

std::vector<CurvePoint> newestCompletePerCell(const std::vector<CurvePoint>& points) {
  const uint64_t full = fullCount(points);
  std::map<std::tuple<std::string, std::string, uint64_t>, const CurvePoint*> cells;
  for (const auto& point : points) {
    const auto rank = [&](const CurvePoint& p) { return std::pair(p.n == full, p.version); };
    auto& cell = cells[{point.method, point.schedule, point.total_budget}];
    if (cell == nullptr || rank(point) >= rank(*cell)) cell = &point;
  }
  std::vector<CurvePoint> chosen;
  for (const auto& [key, point] : cells) chosen.push_back(*point);
  return chosen;
}

std::string curveCsv(const std::vector<CurvePoint>& points) {
  std::string csv = "method,schedule,total_budget,n,accuracy,ci_low,ci_high,version\n";
  for (const auto& p : points) {
    csv += fmt::format("{},{},{},{},{},{},{},{}\n", csvField(p.method), csvField(p.schedule),
                       p.total_budget, p.n, p.accuracy, p.low, p.high, p.version);
  }
  return csv;
}

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
  ALLOT_TRY(put(html, "<link rel=\"icon\" href=\"icon.svg\">",
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"));
  ALLOT_TRY(put(html, "<link rel=\"stylesheet\" href=\"page.css\">",
                element("<style>", page::kPageCss, "</style>")));
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
