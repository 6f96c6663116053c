#include "aggregator/page/history_page.h"

#include <string_view>

#include "aggregator/page/assets.h"
#include "aggregator/page/page.h"

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

}  // namespace allot
