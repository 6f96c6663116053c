#include "aggregator/page/page.h"

#include <nlohmann/json.hpp>

namespace allot {

HttpReply serveHistoryPage(const std::string& path) {
  if (path == "/") return {200, "text/html; charset=utf-8", std::string(page::kHistoryHtml)};
  if (path == "/history.js") {
    return {200, "text/javascript; charset=utf-8", std::string(page::kHistoryJs)};
  }
  for (const std::string_view part : {"/page.css", "/chart.js", "/icon.svg"}) {
    if (path == part) return servePage(path, "");
  }
  return plainText(404, "There is no such page here: the list of runs is at /.");
}

std::string servedView(const std::string& view_json, uint64_t now_unix_ms,
                       const std::string& away) {
  const std::string more = nlohmann::json({{"served_unix_ms", now_unix_ms}, {"away", away}})
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const size_t end = view_json.rfind('}');
  if (end == std::string::npos || view_json.size() <= 2) return more;
  // The view is not parsed: it may be large, and is requested often.
  return view_json.substr(0, end) + "," + more.substr(1);
}

HttpReply servePage(const std::string& path, const std::string& view_json) {
  const auto asset = [](const char* type, std::string_view text) {
    return HttpReply{200, type, std::string(text)};
  };
  if (path == "/") return asset("text/html; charset=utf-8", page::kIndexHtml);
  if (path == "/page.css") return asset("text/css; charset=utf-8", page::kPageCss);
  if (path == "/page.js") return asset("text/javascript; charset=utf-8", page::kPageJs);
  if (path == "/chart.js") return asset("text/javascript; charset=utf-8", page::kChartJs);
  if (path == "/icon.svg") return asset("image/svg+xml", page::kIconSvg);
  if (path == kViewPath) return {200, "application/json", view_json};
  return plainText(404, "There is no such page here: the run's page is at /.");
}

}  // namespace allot
