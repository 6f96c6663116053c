// The files of an archive: exact numbers, hostile content, CSV.
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "allot/v1/archive.pb.h"
#include "core/evaluation/answers.h"
#include "store/archive/archive_csv.h"
#include "tests/store/archive_fixture.h"

namespace allot::test {
namespace {

namespace fs = std::filesystem;

TEST(ExactJson, EveryDoubleComesBack) {
  v1::PolicySnapshot policy;
  using Limits = std::numeric_limits<double>;
  const double third = 1.0 / 3;
  for (const double special : {-0.0,
                               0.0,
                               third,
                               -third,
                               0.1,
                               1e22,
                               1e23,
                               1e300,
                               5e-324,
                               -5e-324,
                               2.2250738585072011e-308,
                               2.2250738585072014e-308,
                               Limits::max(),
                               Limits::lowest(),
                               Limits::epsilon(),
                               9007199254740993.0,
                               -9223372036854775808.0,
                               18446744073709551616.0,
                               123456789012345680.0,
                               Limits::infinity()}) {
    policy.add_logits(special);
  }
  std::mt19937_64 random(7);
  while (policy.logits_size() < 20'000) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) policy.add_logits(value);
  }
  const auto json = valueOf(exactJson(policy));
  EXPECT_EQ(json.find('\n'), std::string::npos);
  v1::PolicySnapshot back;
  ASSERT_TRUE(parseExactJson(json, &back));
  ASSERT_EQ(back.logits_size(), policy.logits_size());
  for (int i = 0; i < policy.logits_size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>(policy.logits(i)), std::bit_cast<uint64_t>(back.logits(i)))
        << policy.logits(i);
  }
}

TEST(ExactJson, EveryStringComesBack) {
  v1::WorkerBeat beat;
  for (const std::string& text :
       {std::string("[-0,-0]"), std::string("\"-0}"), std::string("\\\"-0,"), std::string("\\"),
        std::string("a\0b\x01\x1f\x7f\r\n\t", 9), std::string("\u2028é\U0001F600<script>")}) {
    beat.set_worker(text);
    const auto json = valueOf(exactJson(beat));
    EXPECT_EQ(json.find('\n'), std::string::npos);
    v1::WorkerBeat back;
    ASSERT_TRUE(parseExactJson(json, &back)) << json;
    EXPECT_EQ(back.worker(), text);
  }
}

TEST(ExactJson, RefusesWhatIsSomethingElse) {
  v1::PolicySnapshot policy;
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\x1b[31m\n\n"),
        std::string("{\"version\":-1}"), std::string("{\"logits\":[\"x\"]}"),
        std::string("{\"logits\":[1e999]}"), std::string("{\"unknown\":1}"),
        std::string(100'000, '['), "{\"logits\":" + std::string(100'000, '{')}) {
    const Status parsed = parseExactJson(text, &policy);
    ASSERT_FALSE(parsed) << text.substr(0, 40);
    EXPECT_EQ(parsed.error().code, ErrorCode::kData);
    EXPECT_LT(parsed.error().message.size(), 300u);
    EXPECT_EQ(parsed.error().message.find_first_of("\n\x1b"), std::string::npos);
  }
}

constexpr const char* kNames[] = {"export.json", "history.jsonl", "evaluations.jsonl"};

class HostileArchive : public testing::Test {
 protected:
  void SetUp() override {
    auto store = openMemoryStore(std::make_shared<MemoryServer>([] { return uint64_t{1}; }));
    SmallRun run(store.get());
    run.evaluate(3);
    run.update(4);
    StoreSource source(store.get(), "01M7YCD2AZVZVPGCPCSFDWQWNZ");
    ASSERT_TRUE(exportRun(&source, folder_ + "/out"));
    for (const char* name : kNames) {
      good_[name] = readFile(path(name));
    }
  }
  std::string path(const std::string& name) const { return folder_ + "/out/" + name; }
  Status verify() const {
    auto reader = ArchiveReader::open(folder_ + "/out");
    if (!reader) return tl::unexpected(reader.error());
    const auto verified = verifyRun(reader->get());
    if (!verified) return tl::unexpected(verified.error());
    return {};
  }
  // What verify says when the file holds `text`.
  std::string with(const std::string& name, const std::string& text) {
    write(path(name), text);
    const Status verified = verify();
    write(path(name), good_[name]);
    if (verified) return "verified";
    // A damaged name of the arithmetic is that of another build.
    const bool is_other_build =
        verified.error().message.find(" was computed by arithmetic ") != std::string::npos;
    EXPECT_EQ(verified.error().code, is_other_build ? ErrorCode::kUsage : ErrorCode::kData)
        << verified.error().message;
    return verified.error().message;
  }
  std::string replaced(const std::string& name, const std::string& from, const std::string& to) {
    std::string text = good_[name];
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return with(name, text.replace(at, from.size(), to));
  }

  const TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::map<std::string, std::string> good_;
};

TEST_F(HostileArchive, EveryLineIsChecked) {
  ASSERT_TRUE(verify());
  const std::string& history = good_["history.jsonl"];
  const size_t second = history.find('\n') + 1;
  const std::string first = history.substr(0, second);
  EXPECT_THAT(with("history.jsonl", "garbage\n" + history), HasSubstr("history.jsonl: line 1: is"));
  EXPECT_THAT(with("history.jsonl", first + "\n"), HasSubstr("history.jsonl: line 2: is no"));
  EXPECT_THAT(with("history.jsonl", first + first),
              HasSubstr("line 2: holds update 1 where update 2 belongs"));
  EXPECT_THAT(with("history.jsonl", ""), HasSubstr("ends with update 0"));
  EXPECT_THAT(with("history.jsonl", history.substr(0, history.size() - 1)),
              HasSubstr("ends with update 3"));  // the last line is unfinished
  const size_t reward = history.find("\"reward\":") + 9;
  EXPECT_THAT(with("history.jsonl", history.substr(0, reward) + "\"NaN\"" +
                                        history.substr(history.find(',', reward))),
              HasSubstr("update 1"));
  // Which of the two counts is the reader's affair: protobuf takes both names for one field.
  for (const char* name : {"policy_version", "policyVersion"}) {
    const std::string twice = "\"" + std::string(name) + "\":\"0\",\"policy_version\":";
    EXPECT_THAT(replaced("history.jsonl", "\"policy_version\":", twice),
                HasSubstr("line 1: is no IterationRecord: \"policy_version\" stands twice"));
    EXPECT_THAT(replaced("evaluations.jsonl", "\"policy_version\":", twice),
                HasSubstr("line 1: is no EvaluationResult: \"policy_version\" stands twice"));
  }
  EXPECT_THAT(replaced("history.jsonl", "\"ticket\":\"0\"", "\"ticket\":-1"),
              HasSubstr("line 1: is no IterationRecord"));
  EXPECT_THAT(replaced("history.jsonl", "\"schedule\":[", "\"schedule\":[4294967295,4294967295,"),
              HasSubstr("update 1: result"));
  const std::string& evaluations = good_["evaluations.jsonl"];
  const std::string line = evaluations.substr(0, evaluations.find('\n') + 1);
  EXPECT_THAT(with("evaluations.jsonl", line + evaluations), HasSubstr("recorded twice"));
  EXPECT_THAT(with("evaluations.jsonl", evaluations.substr(0, evaluations.size() - 2)),
              HasSubstr("lacks 1 evaluations"));
  EXPECT_THAT(replaced("evaluations.jsonl", "\"score\":1", "\"score\":7"),
              HasSubstr("evaluations.jsonl: line 1: has scores that cannot be"));
  EXPECT_THAT(replaced("evaluations.jsonl", "\"answers\":[{\"question\":0,",
                       "\"answers\":[{\"question\":39,"),
              HasSubstr("evaluations.jsonl: line 1: has answers that cannot be"));
  EXPECT_THAT(replaced("evaluations.jsonl", "\"prompt_end\":\"\"",
                       "\"prompt_end\":\"" + std::string(kLargestAnswers, 'x') + "\""),
              HasSubstr("evaluations.jsonl: line 1: has answers that cannot be"));
  EXPECT_THAT(
      replaced("evaluations.jsonl", "\"unit_id\":\"v000000", "\"unit_id\":\"\",\"chunk\":\""),
      HasSubstr("evaluations.jsonl: line 1"));
}

TEST_F(HostileArchive, TheHeadIsChecked) {
  const std::string name = "export.json";
  EXPECT_THAT(with(name, ""), HasSubstr("export.json: is no RunExport"));
  EXPECT_THAT(with(name, "{\"schema\": 1}"), HasSubstr("its format is 0"));
  EXPECT_THAT(replaced(name, "\"format\":1", "\"format\":2"), HasSubstr("reads format 1"));
  EXPECT_THAT(replaced(name, "\"run_id\":\"01M7", "\"run_id\":\"{x} 1M7"), HasSubstr("run"));
  EXPECT_THAT(replaced(name, "\"total_budget\":8", "\"total_budget\":0"),
              HasSubstr("experiment is no experiment: "));
  EXPECT_THAT(replaced(name, "\"seed\":\"3\"", "\"seed\":\"4\""),
              HasSubstr("experiment_sha256 is not the experiment's"));
  EXPECT_THAT(replaced(name, "\"desired\":\"running\"", "\"desired\":\"burning\""),
              HasSubstr("desired is none of"));
  EXPECT_THAT(replaced(name, "\"layers\":3", "\"layers\":4294967295"), HasSubstr("layers"));
  EXPECT_THAT(replaced(name, "\"layers\":3", "\"layers\":0"), HasSubstr("layers"));
  EXPECT_THAT(replaced(name, "\"second_moment\":[", "\"second_moment\":[\"NaN\","),
              HasSubstr("layers"));
  EXPECT_THAT(replaced(name, "\"episodes\":\"12\"", "\"episodes\":\"13\""),
              HasSubstr("episodes differs"));
  v1::RunExport exported;
  ASSERT_TRUE(parseExactJson(good_[name], &exported));
  exported.mutable_experiment_in_force()->mutable_spec()->mutable_policy()->set_total_budget(16);
  EXPECT_THAT(with(name, *exactJson(exported)), HasSubstr("experiment_in_force is another"));
  fs::remove(path("history.jsonl"));
  EXPECT_EQ(verify().error().code, ErrorCode::kUsage);
  write(path("history.jsonl"), good_["history.jsonl"]);
  fs::remove(path(name));
  EXPECT_THAT(verify().error().message, HasSubstr("holds no exported run"));
}

TEST_F(HostileArchive, DeepJsonIsRefusedInEveryFile) {
  const std::string deep =
      "{\"deep\": " + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  for (const char* name : kNames) {
    EXPECT_THAT(with(name, deep + "\n"),
                AllOf(HasSubstr(name), HasSubstr("\"deep\" is nested deeper than 64 levels")));
  }
}

// Names and digests of an export are anybody's.
TEST_F(HostileArchive, WhatIsSaidHasNothingThatATerminalObeys) {
  EXPECT_THAT(replaced("history.jsonl", "},\"policy_sha256\":\"", "},\"policy_sha256\":\"\\u001b["),
              HasSubstr(" \\x1b["));
}

// Whatever bytes there are, the answer is one of the errors or a verified run.
TEST_F(HostileArchive, BytesAtRandomAreNoTrouble) {
  std::mt19937_64 random(11);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  size_t refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const char* name = kNames[i % 3];
    std::string text = good_[name];
    const size_t at = below(text.size());
    const size_t what = below(4);
    if (what == 0) text[at] = static_cast<char>(random());
    if (what == 1) text[at] = "0123456789-.eE\"{}[],:\n"[below(22)];
    if (what == 2) text.erase(at, 1 + below(20));
    if (what == 3) text.insert(at, text.substr(below(text.size()), 1 + below(200)));
    refused += with(name, text) != "verified";
  }
  EXPECT_GT(refused, 750u);
  ASSERT_TRUE(verify());
}

// Rows of a CSV file, read as RFC 4180 says.
std::vector<std::vector<std::string>> parseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\n') {
      rows.push_back({""});
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();
  return rows;
}

TEST(Csv, TextFromElsewhereIsNoFormulaAndOneCell) {
  for (const auto& [text, cell] : std::map<std::string, std::string>{
           {"", ""},
           {"worker-1", "worker-1"},
           {"a,b", "a,b"},
           {"say \"hi\"", "say \"hi\""},
           {"=1+1", "'=1+1"},
           {"+1", "'+1"},
           {"-1", "'-1"},
           {"@x", "'@x"},
           {"\t=1", "' =1"},
           {"\r\n=1", "'  =1"},
           {"=HYPERLINK(\"http://x\",\"y\")", "'=HYPERLINK(\"http://x\",\"y\")"},
           {"a\nb\x1b", "a b "}}) {
    const auto rows = parseCsv(archive::csvCell(text) + ",end\n");
    ASSERT_EQ(rows.size(), 1u) << text;
    ASSERT_EQ(rows[0].size(), 2u) << text;
    EXPECT_EQ(rows[0][0], cell);
  }
}

TEST_F(HostileArchive, TablesAreWhole) {
  const auto updates = parseCsv(readFile(path("updates.csv")));
  ASSERT_EQ(updates.size(), 5u);
  for (const auto& row : updates) ASSERT_EQ(row.size(), 12u);
  EXPECT_EQ(updates[0][9], "probability_0");
  EXPECT_EQ(updates[4][0], "4");
  EXPECT_EQ(updates[1][8], "2030-03-17T17:46:40.000Z");
  double sum = 0;
  for (size_t l = 9; l < 12; ++l) sum += std::stod(updates[4][l]);
  EXPECT_NEAR(sum, 1, 1e-15);
  const auto episodes = parseCsv(readFile(path("episodes.csv")));
  ASSERT_EQ(episodes.size(), 13u);
  for (const auto& row : episodes) ASSERT_EQ(row.size(), 12u);
  EXPECT_EQ(episodes[1][0], "0");
  EXPECT_EQ(episodes[5][4], "1");  // ticket 4 used the policy before
  EXPECT_EQ(episodes[2][9], "'=HYPERLINK(\"http://x\"),a");
  const auto evaluations = parseCsv(readFile(path("evaluations.csv")));
  ASSERT_EQ(evaluations.size(), 4u);
  for (const auto& row : evaluations) ASSERT_EQ(row.size(), 17u);
}

}  // namespace
}  // namespace allot::test
