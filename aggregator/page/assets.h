#pragma once
// The files of the page, embedded at build time (embed.cmake). The program needs no files, and the
// page no network. Constants, any thread.
#include <string_view>

namespace allot::page {

extern const std::string_view kIndexHtml;
extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
extern const std::string_view kChartJs;  // Chart.js, MIT license
extern const std::string_view kIconSvg;
extern const std::string_view kHistoryHtml;  // the page of many runs
extern const std::string_view kHistoryJs;

}  // namespace allot::page
