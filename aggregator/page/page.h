#pragma once
// The run's page: the replies to its paths. Pure functions, any thread.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/telemetry/http_server.h"

namespace allot {

// The files of the pages, embedded at build time (embed.cmake).
namespace page {

extern const std::string_view kIndexHtml;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
extern const std::string_view kChartJs;  // Chart.js, MIT license
extern const std::string_view kIconSvg;
extern const std::string_view kHistoryHtml;  // the page of many runs
extern const std::string_view kHistoryJs;

}  // namespace page

// Serves the page of many runs (a list, and the curves of the chosen ones) at /, and its scripts
// and styles; 404 for other paths. In the browser the page reads /api/runs, and below /run/ID/ the
// status and the view of a run.
HttpReply serveHistoryPage(const std::string& path);

// Adds two members to the view: served_unix_ms, and away, the reason why the view is not current
// ("": it is).
std::string servedView(const std::string& view_json, uint64_t now_unix_ms, const std::string& away);

inline constexpr char kViewPath[] = "/api/run";

inline constexpr char kStatusPath[] = "/api/status";

// Serves the page at /, its scripts and styles, and `view_json` at /api/run; 404 for other paths.
HttpReply servePage(const std::string& path, const std::string& view_json);

}  // namespace allot
