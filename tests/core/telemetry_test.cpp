// Health, logs, last words, the target file, and the server that tells of a process.
#include "core/telemetry/telemetry.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/digest.h"
#include "core/telemetry/process.h"
#include "tests/http_get.h"
#include "tests/results.h"
#include "tests/temp_folder.h"

namespace allot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::httpGet;

class TelemetryTest : public testing::Test {
 protected:
  TempFolder temp_;
  const std::string folder_ = temp_.path();
};

class HealthTest : public testing::Test {
 protected:
  void after(uint64_t ms) { now_ += ms; }
  uint64_t now_ = 1'000'000;
  Health health_{[this] { return now_; }};
};

TEST_F(HealthTest, LoadingIsAliveHoweverLongAndNotReady) {
  after(10 * Health::kStuckMs);
  EXPECT_TRUE(health_.live().good);
  EXPECT_FALSE(health_.readiness().good);
  health_.loading("the model is being loaded");
  after(10 * Health::kStuckMs);
  EXPECT_TRUE(health_.live().good);
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("the model is being loaded"));
}

TEST_F(HealthTest, IsStartedOnceItHasLoadedOrWaitsForOthers) {
  EXPECT_FALSE(health_.started().good);
  health_.waiting("it waits for its run");
  after(10 * Health::kStuckMs);
  EXPECT_TRUE(health_.started().good);
  EXPECT_TRUE(health_.live().good);
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("it waits for its run"));
  health_.loading("the model is being loaded");
  EXPECT_FALSE(health_.started().good);
  EXPECT_THAT(health_.started().sentence, HasSubstr("the model is being loaded"));
  EXPECT_TRUE(health_.live().good);
  health_.progress();
  EXPECT_TRUE(health_.started().good);
  after(10 * Health::kStuckMs);  // which is not its matter
  EXPECT_TRUE(health_.started().good);
  EXPECT_FALSE(health_.live().good);
}

TEST_F(HealthTest, IsDeadOnceTheLoopHasBeenSilentForTwoMinutes) {
  health_.progress();
  after(Health::kStuckMs - 1);
  EXPECT_TRUE(health_.live().good);
  after(1);
  EXPECT_FALSE(health_.live().good);
  EXPECT_THAT(health_.live().sentence, HasSubstr("no progress for 120 s"));
  health_.progress();
  EXPECT_TRUE(health_.live().good);
  health_.loading("another model");  // which takes as long as it takes
  after(Health::kStuckMs);
  EXPECT_TRUE(health_.live().good);
}

TEST_F(HealthTest, IsReadyWithAStoreThatAnswers) {
  health_.progress();
  health_.ready();
  EXPECT_FALSE(health_.readiness().good);
  health_.storeAnswered();
  EXPECT_TRUE(health_.readiness().good);
  // A long episode in which nobody asks the store.
  after(10 * Health::kStoreAwayMs);
  EXPECT_TRUE(health_.readiness().good);
  health_.unready("it waits for the lease");
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("it waits for the lease"));
}

TEST_F(HealthTest, AStoreThatIsAwayMakesItUnreadyNotDead) {
  health_.progress();
  health_.ready();
  health_.storeAnswered();
  after(Health::kStoreAwayMs - 1);
  health_.storeDidNotAnswer();
  EXPECT_TRUE(health_.readiness().good);
  after(1);
  EXPECT_FALSE(health_.readiness().good);
  EXPECT_THAT(health_.readiness().sentence, HasSubstr("not answered for 15 s"));
  for (int minute = 0; minute < 60; ++minute) {
    after(60'000);
    health_.progress();
    health_.storeDidNotAnswer();
    EXPECT_TRUE(health_.live().good);
    EXPECT_FALSE(health_.readiness().good);
  }
  health_.storeAnswered();
  EXPECT_TRUE(health_.readiness().good);
}

// What `call` writes to standard error.
template <typename Call>
std::string standardError(const Call& call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

const std::string kHostile = "a\nb\x1b[31m\"}\\\xff {\"level\":\"info\"}\xc2\x9b\r";

TEST(Log, EachLineIsJsonWhateverTheMessageHolds) {
  const std::string text = standardError([] {
    setUpLog(LogFormat::kJson);
    setLogRun("", "");
    spdlog::info("begins");
    setLogRun("01ABC", "recall");
    spdlog::warn("{}", kHostile);
    spdlog::error("{}", std::string(1 << 20, 'x'));
    logLastWords("allot-worker", "it\nends");
  });
  std::istringstream lines(text);
  std::vector<json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["message"], "begins");
  EXPECT_EQ(events[0]["run_id"], "");
  EXPECT_EQ(events[1]["level"], "warning");
  EXPECT_EQ(events[1]["run_id"], "01ABC");
  EXPECT_EQ(events[1]["experiment"], "recall");
  EXPECT_THAT(events[1]["time"].get<std::string>(), MatchesRegex("20..-..-..T..:..:..\\....Z"));
  EXPECT_THAT(events[1]["message"].get<std::string>(), HasSubstr("a\nb\x1b[31m\"}\\"));
  EXPECT_EQ(events[1].size(), 5u);
  EXPECT_LT(events[2]["message"].get<std::string>().size(), 20'000u);
  EXPECT_EQ(events[3]["message"], "it\nends");
  EXPECT_EQ(events[3]["level"], "critical");
}

TEST(Log, ATextLineIsOneLine) {
  const std::string text = standardError([] {
    setUpLog(LogFormat::kText);
    setLogRun("", "recall");
    spdlog::info("waits");
    setLogRun("01ABC", "recall");
    spdlog::warn("{}", kHostile);
    logLastWords("allot-worker", "no\nmodel");
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("Z info [recall] waits\n"));
  EXPECT_THAT(text,
              HasSubstr("Z warning [recall 01ABC] a\\nb\\x1b[31m\"}\\\xff {\"level\":\"info\"}"
                        "\\x9b\\x0d\n"));
  EXPECT_THAT(text, EndsWith("\nallot-worker: no\\nmodel\n"));
}

TEST_F(TelemetryTest, LastWordsGoToTheTerminationFile) {
  const std::string file = folder_ + "/termination";
  std::ofstream(file) << std::string(9000, 'o') << "ld";
  ASSERT_EQ(setenv("ALLOT_TERMINATION_LOG", file.c_str(), 1), 0);
  const std::string shown = standardError([&] {
    setUpLog(LogFormat::kText);
    EXPECT_EQ(endProcess("allot-worker", badInput("there is no model")), 64);
  });
  EXPECT_EQ(shown, "allot-worker: there is no model\n");
  EXPECT_EQ(readFile(file), "there is no model");
  EXPECT_EQ(endProcess("allot-worker", {}), 0);
  EXPECT_EQ(readFile(file), "there is no model");
  // Bounded, and not cut within a character.
  std::string words = "x";
  while (words.size() < 5000) words += "\u00e9";
  writeTermination(words);
  EXPECT_EQ(readFile(file), words.substr(0, 4095));
  // Best effort.
  ASSERT_EQ(setenv("ALLOT_TERMINATION_LOG", (folder_ + "/no/such/folder").c_str(), 1), 0);
  writeTermination("x");
  ASSERT_EQ(unsetenv("ALLOT_TERMINATION_LOG"), 0);
  writeTermination("x");
  EXPECT_EQ(readFile(file), words.substr(0, 4095));
}

TEST_F(TelemetryTest, TheTargetFileLivesAsLongAsTheServer) {
  const std::string path = folder_ + "/worker-1.json";
  {
    const auto file = TargetFile::write(path, "0.0.0.0", 9464);
    ASSERT_TRUE(file);
    EXPECT_EQ(json::parse(readFile(path)),
              json::parse(R"([{"targets": ["127.0.0.1:9464"], "labels": {}}])"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(TargetFile::write(folder_ + "/none/x.json", "127.0.0.1", 1),
              isError(ErrorCode::kIo, AllOf(HasSubstr("cannot write " + folder_ + "/none/x.json: "),
                                            HasSubstr("--target-file"))));
  EXPECT_EQ(reachableAt("::", 1), "[::1]:1");
  EXPECT_EQ(reachableAt("10.1.2.3", 80), "10.1.2.3:80");
}

TEST_F(TelemetryTest, ServesMetricsAndHealth) {
  const std::string target = folder_ + "/t.json";
  const auto started = valueOf(Telemetry::start({.port = 0, .target_file = target},
                                                [](const std::string& path) -> HttpReply {
                                                  return {200, "text/plain", "other " + path};
                                                }));
  Telemetry& telemetry = *started;
  const std::string at = json::parse(readFile(target))[0]["targets"][0];
  EXPECT_EQ(telemetry.url(), "http://" + at + "/");
  const auto port = static_cast<uint16_t>(std::stoi(at.substr(at.find(':') + 1)));

  EXPECT_EQ(httpGet(port, "/metrics").status, 503);  // of what experiment?
  telemetry.setRun("01ABC", "recall");
  const auto metrics = httpGet(port, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_THAT(metrics.body,
              HasSubstr("\nallot_build_info{experiment=\"recall\",run_id=\"01ABC\",compiler="));
  EXPECT_THAT(metrics.body, HasSubstr("\nallot_process_start_timestamp_seconds{"));

  const auto open = httpGet(port, "/metrics", "Accept: application/openmetrics-text\r\n");
  EXPECT_THAT(open.head, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0; "
                                   "charset=utf-8"));
  EXPECT_TRUE(open.body.ends_with("# EOF\n"));

  EXPECT_EQ(httpGet(port, "/livez").status, 200);
  const auto early = httpGet(port, "/readyz");
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(early.body, "not ready: it starts\n");
  telemetry.health().progress();
  telemetry.health().ready();
  telemetry.health().storeAnswered();
  EXPECT_EQ(httpGet(port, "/readyz").body, "ready\n");
  EXPECT_EQ(httpGet(port, "/else").body, "other /else");
}

TEST_F(TelemetryTest, APasswordIsForAllButProbes) {
  const std::string file = folder_ + "/password";
  std::ofstream(file) << "open sesame\n";
  const auto telemetry = valueOf(Telemetry::start({.port = 0, .password_file = file},
                                                  [](const std::string& path) -> HttpReply {
                                                    return {200, "text/plain", "other " + path};
                                                  }));
  telemetry->setRun("01ABC", "recall");
  telemetry->health().progress();
  telemetry->health().ready();
  telemetry->health().storeAnswered();
  const std::string url = telemetry->url();
  const auto port = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  for (const char* probe : {"/startedz", "/livez", "/readyz"}) {
    EXPECT_EQ(httpGet(port, probe).status, 200) << probe;
  }
  const std::string right = "Authorization: Basic " + toBase64("allot:open sesame") + "\r\n";
  for (const char* path : {"/", "/metrics", "/api/run", "/readyz/"}) {
    EXPECT_EQ(httpGet(port, path, right).status, 200) << path;
    for (const std::string& wrong :
         {std::string(), std::string("Authorization:\r\n"), std::string("Authorization: Basic\r\n"),
          "Authorization: Basic " + toBase64("allot:open sesam") + "\r\n",
          "Authorization: Basic " + toBase64("root:open sesame") + "\r\n",
          "Authorization: Basic " + toBase64("allot:open sesame\n") + "\r\n"}) {
      const auto refused = httpGet(port, path, wrong);
      EXPECT_EQ(refused.status, 401) << path << " " << wrong;
      EXPECT_THAT(refused.head, HasSubstr("\r\nWWW-Authenticate: Basic realm=\"allot\""));
      EXPECT_THAT(refused.body, HasSubstr("user allot and the password"));
    }
  }
  EXPECT_THAT(Telemetry::start({.password_file = file}), isError(HasSubstr("--port")));
  std::ofstream(file) << "\n";
  EXPECT_THAT(Telemetry::start({.port = 0, .password_file = file}),
              isError(ErrorCode::kUsage, HasSubstr("password is empty: let it hold a password")));
  EXPECT_THAT(Telemetry::start({.port = 0, .password_file = folder_ + "/none"}),
              isError(ErrorCode::kUsage, HasSubstr("--page-password-file: ")));
}

TEST_F(TelemetryTest, NeedsNoServer) {
  const auto quiet = valueOf(Telemetry::start({}));
  EXPECT_EQ(quiet->url(), "");
  EXPECT_THAT(Telemetry::start({.target_file = folder_ + "/t.json"}), isError(HasSubstr("--port")));
  const auto first = valueOf(Telemetry::start({.port = 0}));
  const std::string url = first->url();
  const auto port = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  EXPECT_FALSE(Telemetry::start({.port = port}));
  EXPECT_TRUE(Telemetry::start({.port = port, .any_port = true}));
  EXPECT_EQ(httpGet(port, "/").status, 404);
}

}  // namespace
}  // namespace allot
