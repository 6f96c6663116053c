// What commands read: a run's folder, and what other programs answer.
#include <stdlib.h>
#include <sys/stat.h>

#include "cli/child_process.h"
#include "cli/cluster.h"
#include "cli/run_folder.h"
#include "cli/run_report.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

// Deep enough to end the stack of whatever copies it by recursion.
std::string deepJson() { return std::string(450'000, '[') + std::string(450'000, ']'); }

TEST(RunNote, DeepOrOtherJsonIsRefused) {
  const TempFolder folder;
  const std::string id = R"({"run_id": "01M7YCD2AZVZVPGCPCSFDWQWNZ", "set": )";
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.write("run.json", text);
    const auto note = readRunNote(folder.path());
    if (note) return std::string("taken");
    EXPECT_EQ(note.error().code, ErrorCode::kUsage);
    EXPECT_THAT(note.error().message, HasSubstr(path));
    return note.error().message;
  };
  EXPECT_EQ(refusal(id + R"(["spec.seed=2", 3]})"), "taken");
  EXPECT_THAT(refusal(id + deepJson() + "}"), HasSubstr("\"set\" is nested deeper than 64 levels"));
  EXPECT_THAT(refusal(id), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("does not name a run"));
  EXPECT_THAT(refusal(std::string(2 << 20, ' ')), HasSubstr("has more than 1048576 bytes"));
}

TEST(RunFolder, DataWithoutItsListIsRefused) {
  const TempFolder folder;
  EXPECT_THAT(checkData(folder.path()), succeeds());
  std::filesystem::create_directory(folder.path() + "/appendonlydir");
  EXPECT_THAT(checkData(folder.path()), succeeds());
  folder.write("appendonlydir/appendonly.aof.1.incr.aof", "");
  EXPECT_THAT(
      checkData(folder.path()),
      isError(ErrorCode::kUsage, HasSubstr("/appendonlydir lacks appendonly.aof.manifest")));
  folder.write("appendonlydir/appendonly.aof.manifest", "");
  EXPECT_THAT(checkData(folder.path()), succeeds());
}

TEST(RunReport, ASummaryThatIsNoneIsASentence) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& text) {
    folder.write("summary.json", text);
    const Status printed = printReport(folder.path());
    if (printed) return std::string("printed");
    EXPECT_THAT(printed.error().exitCode(), AnyOf(64, 65));
    EXPECT_THAT(printed.error().message, HasSubstr("/summary.json: "));
    return printed.error().message;
  };
  EXPECT_EQ(refusal(R"({"evaluations": []})"), "printed");
  EXPECT_THAT(refusal(R"({"evaluations": )" + deepJson() + "}"),
              HasSubstr("\"evaluations\" is nested deeper than 64 levels"));
  for (const char* text :
       {"[]", "{}", R"({"evaluations": 3})", R"({"evaluations": [3]})", R"({"evaluations": [{}]})",
        R"({"evaluations": [{"schedule": "dense", "method": 3}]})",
        R"({"evaluations": [], "updates": "many"})",
        R"({"evaluations": [], "fidelity": [{"method": "a", "schedule": "uniform"}]})"}) {
    EXPECT_THAT(refusal(text), HasSubstr("is no summary of a run")) << text;
  }
  EXPECT_THAT(refusal("{"), HasSubstr("is not JSON"));
}

TEST(Capture, EndsAProgramThatWritesWithoutEnd) {
  EXPECT_THAT(capture({"sh", {"-c", "exec cat /dev/zero"}, {}}),
              isError(ErrorCode::kData, "sh was ended: it wrote more than 64 MiB"));
  EXPECT_EQ(capture({"sh", {"-c", "echo a; echo b >&2; exit 3"}, {}})->status, 3);
}

TEST(Cluster, DeepJsonFromKubectlIsRefused) {
  const TempFolder folder;
  folder.write("deep.json", R"({"items": [{"metadata": )" + deepJson() + "}]}");
  const std::string kubectl =
      folder.write("kubectl", "#!/bin/sh\nexec cat \"" + folder.path() + "/deep.json\"\n");
  ASSERT_EQ(chmod(kubectl.c_str(), 0755), 0);
  const std::string path = getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  const auto store =
      ClusterStore::open({.context = "current", .name_space = "recall", .experiment = "recall"},
                         StoreAccount::kReader);
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(store, isError("kubectl's answer: \"items\" is nested deeper than 64 levels"));
}

}  // namespace
}  // namespace allot
