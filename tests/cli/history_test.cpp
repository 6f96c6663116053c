// What `allot serve` makes of run files.
#include "cli/history.h"

#include <filesystem>
#include <fstream>

#include "core/ulid.h"
#include "store/archive/archive.h"
#include "store/memory/memory_store.h"
#include "tests/results.h"
#include "tests/store/small_run.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The export of a small run of three updates, the last of them evaluated in part.
const std::string& exported() {
  static const TempFolder temp;
  static const std::string folder = [] {
    const auto store = openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
    test::SmallRun run(store.get());
    run.update(3);
    run.planEvaluation();
    run.evaluate(4);
    StoreSource source(store.get(), makeUlid(1'795'000'000'000, 1, 2));
    EXPECT_THAT(exportRun(&source, temp.path() + "/run"), succeeds());
    return temp.path() + "/run";
  }();
  return folder;
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() : folder_(temp_.path()) {}

  void copyTo(const std::string& name) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    fs::copy(exported(), folder_ + "/" + name, fs::copy_options::recursive);
  }
  std::string get(const std::string& path, unsigned status = 200) {
    const HttpReply reply = history().answer({path});
    EXPECT_EQ(reply.status, status) << path << ": " << reply.body.substr(0, 200);
    return reply.body;
  }
  json ask(const std::string& path) { return json::parse(get(path)); }
  RunHistory& history() {
    if (!history_) history_.emplace(folder_);
    return *history_;
  }

  TempFolder temp_;
  const std::string folder_;
  std::optional<RunHistory> history_;
};

TEST_F(HistoryTest, FindsRunsInFoldersAndSaysWhatIsWrongWithTheOthers) {
  copyTo("a");
  copyTo("team/b/c");
  copyTo("too/deep/for/us");
  fs::create_directory_symlink("a", folder_ + "/latest");
  fs::create_directories(folder_ + "/going-on");
  std::ofstream(folder_ + "/going-on/run.json") << "{}";
  copyTo("broken");
  std::ofstream(folder_ + "/broken/export.json") << "{\"format\": 1, \"x\": \"\x1b[2J\xff\"}";
  const json rows = ask("/api/runs")["runs"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["folder"], "a");
  EXPECT_EQ(rows[0]["experiment"], "small");
  EXPECT_EQ(rows[0]["version"], 3);
  EXPECT_EQ(rows[0]["problem"], "");
  EXPECT_EQ(rows[1]["folder"], "broken");
  EXPECT_THAT(rows[1]["problem"].get<std::string>(), HasSubstr("export.json"));
  EXPECT_EQ(rows[1]["problem"].get<std::string>().find('\x1b'), std::string::npos);
  EXPECT_EQ(rows[2]["folder"], "going-on");
  EXPECT_THAT(rows[2]["problem"].get<std::string>(), HasSubstr("allot export"));
  EXPECT_EQ(rows[3]["folder"], "team/b/c");
  EXPECT_NE(rows[0]["id"], rows[3]["id"]);  // one run in two places
  EXPECT_EQ(rows[0]["run_id"], rows[3]["run_id"]);
  // The folder may be the run itself.
  EXPECT_EQ(RunHistory(folder_ + "/a").find().size(), 1u);
}

TEST_F(HistoryTest, ServesEachRunAsItsAggregatorDid) {
  copyTo("a");
  const std::string run = "/run/" + ask("/api/runs")["runs"][0]["id"].get<std::string>();
  EXPECT_THAT(get(run + "/"), HasSubstr("<canvas"));
  EXPECT_EQ(get(run + "/page.css"), get("/page.css"));
  const json view = ask(run + "/api/run");
  EXPECT_EQ(view["updates"], 3);
  EXPECT_EQ(view["history"].size(), 3u);
  EXPECT_FALSE(view["evaluations"].empty());
  const json status = ask(run + "/api/status");
  EXPECT_EQ(status["kind"], "Status");
  EXPECT_EQ(status["version"], 3);
  EXPECT_EQ(status["state"], view["state"]);
  get(run + "/report/report.html", 404);  // none was written
  std::ofstream(folder_ + "/a/report.html") << "the report";
  EXPECT_EQ(get(run + "/report/report.html"), "the report");
  // Files that change are read again.
  for (const char* file : {"evaluations.jsonl", "history.jsonl"}) {
    std::ofstream(folder_ + "/a/" + file) << "";
  }
  fs::copy_file(folder_ + "/a/export.json", folder_ + "/new");
  fs::rename(folder_ + "/new", folder_ + "/a/export.json");
  EXPECT_THAT(get(run + "/api/run", 500), HasSubstr("history.jsonl"));
}

TEST_F(HistoryTest, HostileNamesStayTextAndNoPathLeavesTheRun) {
  const std::string name = "<img src=x onerror=alert(1)>\"'&\x1b\xff";
  copyTo(name);
  const json row = ask("/api/runs")["runs"][0];
  EXPECT_THAT(row["id"].get<std::string>(), MatchesRegex("[0-9a-f]{16}"));
  EXPECT_THAT(get("/api/runs"), Not(HasSubstr("\x1b")));
  const std::string run = "/run/" + row["id"].get<std::string>();
  for (const std::string& path : std::vector<std::string>{
           "/run/", "/run/x", "/run/../x/", "/api/run", "/api/runs/", "/etc/passwd", "//", "",
           "/run/0000000000000000/", "/../" + folder_}) {
    get(path, 404);
  }
  for (const char* inside : {"/report/../export.json", "/export.json", "/report/history.jsonl",
                             "/../../etc/passwd", "/api/runs"}) {
    get(run + inside, 404);
  }
  // Every address that the script makes is of an id; what is shown is set as text.
  const std::string script = get("/history.js");
  for (const char* bad :
       {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(script, Not(HasSubstr(bad)));
  }
}

}  // namespace
}  // namespace allot
