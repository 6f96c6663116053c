// allot's command line as a person and a shell meet it: help, mistakes, completion, and what goes
// to stdout. Real processes.
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "tests/e2e/programs.h"
#include "tests/readme.h"

namespace allot {
namespace {

constexpr char kSmall[] = R"(
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: small}
spec:
  task: {suite: recall, tasks: [niah], contextTokens: 128, trainQuestions: 16, heldOutQuestions: 16}
  model: {path: experiments/models/recall-7m}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 4}
  update: {episodesPerUpdate: 4, maxUpdates: 3}
  evaluation: {everyUpdates: 0, budgets: [8], schedules: [learned], methods: [s2anta-sys]}
)";

class CommandLine : public FolderTest {
 protected:
  Output allot(std::vector<std::string> arguments) const { return run(kAllot, arguments); }
  static Output run(const std::string& program, std::vector<std::string> arguments) {
    return valueOf(capture({program, std::move(arguments), {{"COLUMNS", "100"}}}));
  }
  std::string said(const std::vector<std::string>& arguments) const {
    const Output output = allot(arguments);
    EXPECT_EQ(output.status, 0) << arguments[0] << ": " << output.err;
    return output.out;
  }
  // Nothing on stdout, one sentence on stderr, exit code 64.
  std::string refused(const std::vector<std::string>& arguments) const {
    const Output output = allot(arguments);
    EXPECT_EQ(output.status, 64) << output.out << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    return output.err;
  }
  // Every command that help lists, as words.
  std::vector<std::vector<std::string>> commands() const {
    std::vector<std::vector<std::string>> found;
    std::istringstream lines(said({"help", "-o", "markdown"}));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("### allot ") && !line.starts_with("#### allot ")) continue;
      std::istringstream words(line.substr(line.find("allot ") + 6));
      found.emplace_back();
      for (std::string word; words >> word;) found.back().push_back(word);
    }
    return found;
  }
};

TEST_F(CommandLine, HelpIsInGroups) {
  const std::string help = said({"help"});
  size_t last = 0;
  for (const char* group : {"\nRun:\n", "\nWatch:\n", "\nSteer:\n", "\nKeep:\n", "\nLook up:\n"}) {
    const size_t at = help.find(group);
    ASSERT_NE(at, std::string::npos) << group;
    EXPECT_GT(at, last);
    last = at;
  }
  EXPECT_THAT(help, Not(HasSubstr("Subcommands:")));  // a command without a group
  EXPECT_EQ(run(kAllot, {}).out, help);
  EXPECT_EQ(said({"--help"}), help);
}

TEST_F(CommandLine, EveryCommandHasExamplesAndExitCodes) {
  const auto all = commands();
  EXPECT_GE(all.size(), 27u);
  for (const auto& words : all) {
    std::vector<std::string> arguments = {"help"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const std::string help = said(arguments);
    EXPECT_THAT(help, HasSubstr("Exit codes: 0 done, 64 ")) << words.back();
    const bool passed_on =
        words.back() == "kernels" || words.back() == "sale" || words.back() == "kv";
    if (passed_on) continue;  // to a program with a --help of its own
    EXPECT_THAT(help, HasSubstr("Example")) << words.back();
    arguments = words;
    arguments.emplace_back("--help");
    EXPECT_EQ(said(arguments), help);
  }
}

TEST_F(CommandLine, MistakesAreOneSentence) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"frobnicate", "allot: no command 'frobnicate': `allot help` lists them\n"},
      {"statsu", "allot: no command 'statsu' (did you mean status?)\n"},
      {"metods", "allot: no command 'metods' (did you mean methods?)\n"},
      {"help forc", "allot: no command 'forc' (did you mean fork?)\n"},
      {"show", "allot show: say what: question\n"},
      {"export", "allot: say where to: --out FOLDER, or --hub FOLDER\n"},
      {"export runs/a --mlflow b",
       "allot export: the Python package writes MLflow: `python3 -m allot.mlflow_export RUN`, for "
       "the folder of a run or of an export\n"},
      {"export --ot a", "allot export: no option '--ot' (did you mean --out?)\n"},
      {"crd -o json", "allot crd: no option '-o': `allot crd --help` lists them\n"},
      {"show questoin 3", "allot show: no command 'questoin' (did you mean question?)\n"},
      {"--bogus", "allot: no option '--bogus': `allot help` lists them\n"},
      {"run x.yaml --worker 3", "allot run: no option '--worker' (did you mean --workers?)\n"},
      {"run --worker 3", "allot run: no option '--worker' (did you mean --workers?)\n"},
      {"run", "allot run: FILE is required: `allot run --help` has examples\n"},
      {"run x.yaml --context c",
       "allot run: it takes no --context: it works on this machine; in a cluster `kubectl apply` "
       "starts an experiment\n"},
      {"explain --redis x",
       "allot explain: it takes no --redis: it is not about a run in a store or a cluster\n"},
      {"status a b", "allot status: 'b' is an argument too many\n"},
      {"list -o xml",
       "allot list: --output: xml not in {json,yaml,table}: `allot list --help` has "
       "examples\n"},
      {"list a --redis unix:b", "allot: name either folders, --redis URL or --context CTX\n"},
      {"list nowhere", "allot: nowhere is no folder: name the folder of a run\n"},
      {"new --model nowhere",
       "allot: --model nowhere: there is no folder or .gguf file of that "
       "name\n"},
  };
  for (const auto& [line, sentence] : cases) {
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    EXPECT_EQ(refused(arguments), sentence) << line;
  }
  EXPECT_THAT(refused({"wrong\x1b[2J"}), Not(HasSubstr("\x1b")));
}

TEST_F(CommandLine, OutputThatCannotBeWrittenIsNoSuccess) {
  for (const char* line : {"methods", "tasks -o json", "help", "run --help", "--version"}) {
    const Output output = run("sh", {"-c", "\"$0\" " + std::string(line) + " >/dev/full", kAllot});
    EXPECT_EQ(output.status, 74) << line;
    EXPECT_EQ(output.err, "allot: the output could not be written whole: is the disk full?\n")
        << line;
  }
  const Output worker = run("sh", {"-c", "\"$0\" --check \"$1\" >/dev/full", kBin + "/allot-worker",
                                   kSource + "/experiments/recall-layer-budget/experiment.yaml"});
  EXPECT_EQ(worker.status, 74);
  EXPECT_THAT(worker.err, HasSubstr("the output could not be written whole: is the disk full?"));
  // Whoever reads no further has what was wanted.
  const Output piped = run("bash", {"-c", "\"$0\" tasks | head -n 1", kAllot});
  EXPECT_EQ(piped.err, "");
}

TEST_F(CommandLine, TheDocumentOfCommandsIsTheirHelp) {
  const std::string now = said({"help", "-o", "markdown"});
  // `allot help -o markdown` prints what stands between its marks.
  EXPECT_EQ(between(readSource("docs/reference/commands.md"), "<!-- commands: begin -->\n",
                    "<!-- commands: end -->"),
            now);
  std::istringstream lines(now);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 160u) << line;
}

TEST_F(CommandLine, EveryProgramSaysVersionAndCommit) {
  const std::string version = said({"--version"});
  EXPECT_THAT(version, MatchesRegex("allot [0-9.]+ \\((commit [0-9a-f]{10,}(-dirty)?|unknown "
                                    "commit), .*\\)\n"));
  for (const char* program : {"allot-worker", "allot-aggregator", "allot-calibrate"}) {
    const Output output = run(kBin + "/" + program, {"--version"});
    EXPECT_EQ(output.status, 0) << program;
    EXPECT_EQ(output.out, version) << program;
  }
}

// CLI11 2.4 refuses to start with a name that has a space or one of =:{ in it; 2.1 does not.
TEST_F(CommandLine, NamesOfArgumentsAreOneWord) {
  int arguments = 0;
  std::istringstream lines(said({"help", "-o", "markdown"}));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("- `") || line.starts_with("- `-")) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    EXPECT_EQ(name.find_first_of(" =:{"), std::string::npos) << line;
    ++arguments;
  }
  EXPECT_GE(arguments, 20);
}

// What bash offers for a line, of which the last word is being typed.
TEST_F(CommandLine, BashCompletesWhatThereIs) {
  const std::string script = temp_.write("allot.bash", said({"completion", "bash"}));
  const auto offered = [&](const std::string& line) {
    const Output output =
        run("bash", {"-c",
                     "source \"$0\"; COMP_WORDS=($1); [[ $1 == *' ' ]] && COMP_WORDS+=(''); "
                     "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _allot; echo \"${COMPREPLY[*]}\"",
                     script, line});
    EXPECT_EQ(output.err, "");
    return output.out;
  };
  EXPECT_EQ(offered("allot sta"), "status\n");
  EXPECT_EQ(offered("allot run --work"), "--workers\n");
  EXPECT_EQ(offered("allot show q"), "question\n");
  EXPECT_EQ(offered("allot show question --bud"), "--budget\n");
  EXPECT_EQ(offered("allot status -o "), "json yaml table\n");
  EXPECT_EQ(offered("allot list --output y"), "yaml\n");
  EXPECT_EQ(offered("allot export --ou"), "--output --out\n");
  EXPECT_EQ(offered("allot run x"), "\n");  // names of files are bash's own
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = said({"completion", shell});
    for (const auto& words : commands()) EXPECT_THAT(text, HasSubstr(words.back())) << shell;
  }
}

TEST_F(CommandLine, FromANewFileToAListOfRuns) {
  const std::string file = temp_.write("small.yaml", kSmall);
  const std::string model = kModel;
  const std::string folder = temp_.path() + "/runs";

  const std::string fresh = temp_.path() + "/my.yaml";
  EXPECT_EQ(said({"new", fresh, "--model", model}), "wrote " + fresh + "\n");
  EXPECT_THAT(refused({"new", fresh, "--model", model}), HasSubstr("is there already"));
  EXPECT_THAT(said({"check", fresh}), HasSubstr("ruler (niah_single_1, vt)"));
  const json check = json::parse(said({"check", file, "--model", model, "-o", "json"}));
  EXPECT_EQ(check["kind"], "Check");
  EXPECT_EQ(check["model"]["layers"], 8);
  EXPECT_EQ(check["learning"]["updates"], 3);
  EXPECT_THAT(refused({"check", file, "--model", model, "--set", "spec.policy.totalBudget=0"}),
              HasSubstr("spec.policy.totalBudget: 0 is out of range"));

  // Somebody waits for a run that somebody else is about to start.
  auto waiting = ChildProcess::start({kAllot, {"wait", folder + "/a", "--timeout", "2m"}, {}},
                                     temp_.path() + "/wait.log");
  const Output output =
      allot({"run", file, "--model", model, "--workers", "1", "--dir", folder + "/a"});
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("learned"));
  EXPECT_THAT(output.out, Not(HasSubstr("page:")));
  EXPECT_THAT(output.err, HasSubstr("folder: "));
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->waitFor(std::chrono::seconds(60)).value_or(-1), 0)
      << readFile(temp_.path() + "/wait.log");
  EXPECT_THAT(readFile(temp_.path() + "/wait.log"), HasSubstr("finished: run "));

  EXPECT_EQ(allot({"wait", folder + "/a", "--for", "update=9"}).status, 1);
  EXPECT_EQ(allot({"status", folder + "/a", "--exit-code"}).status, 0);
  said({"export", folder + "/a", "--out", folder + "/copy"});
  const json verified = json::parse(said({"verify", folder + "/copy", "-o", "json"}));
  EXPECT_EQ(verified["result"], "equal");
  EXPECT_EQ(verified["updates"], 3);
  said({"export", folder + "/copy", "--out", temp_.path() + "/of/{run}"});
  const std::string id = verified["run_id"];
  EXPECT_TRUE(fs::exists(temp_.path() + "/of/" + id + "/export.json"));
  EXPECT_THAT(refused({"export", folder + "/a", "--out", folder}), HasSubstr("holds runs"));

  // A folder for a model hub, of the run or of its export; and what another model's worker says.
  const std::string hub = temp_.path() + "/hub";
  const Output published = allot({"export", folder + "/a", "--hub", hub});
  ASSERT_EQ(published.status, 0) << published.err;
  const std::string card = readFile(hub + "/README.md");
  const YAML::Node front = YAML::Load(card.substr(4, card.find("\n---\n") - 4));
  EXPECT_EQ(front["library_name"].as<std::string>(), "allot");
  EXPECT_THAT(card, HasSubstr("| learned |"));
  json policy = json::parse(readFile(hub + "/policy.json"));
  EXPECT_EQ(policy["model"]["layers"], 8);
  EXPECT_EQ(policy["model"]["weights_sha256"].get<std::string>().size(), 64u);
  const auto answer = [&](const std::string& flag) {
    return run("sh", {"-c",
                      "echo '{\"policy\": \"'\"$3\"'\", \"heldOut\": true}' | \"$0\" --schedules "
                      "\"$1\" --model \"$2\" $4",
                      kBin + "/allot-worker", file, model, hub, flag});
  };
  const Output fits = answer("");
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("\"reward\":"));
  policy["model"]["weights_sha256"] = std::string(64, '0');
  std::ofstream(hub + "/policy.json") << policy;
  const Output other = answer("");
  EXPECT_EQ(other.status, 64);
  EXPECT_THAT(other.err, HasSubstr("was made for another model: the SHA-256 of its weights is"));
  EXPECT_EQ(answer("--any-model").out, fits.out);

  // The run beside its export, and beside a version that it has not measured.
  const json same = json::parse(
      said({"compare", folder + "/a", folder + "/copy", "--margin", "0.5", "-o", "json"}));
  EXPECT_EQ(same["kind"], "Comparison");
  for (const json& row : same["rows"]) {
    EXPECT_EQ(row["b_over_a"]["mean"], 0);
    EXPECT_EQ(row["b_over_a"]["test"], "mcnemar");
  }
  EXPECT_THAT(refused({"compare", folder + "/a", folder + "/copy@99"}),
              HasSubstr("has no complete evaluation of version 99"));
  EXPECT_THAT(refused({"compare", folder + "/a", file}), HasSubstr("name two runs, or two files"));
  EXPECT_THAT(refused({"top", folder + "/a", "--margin", "2"}), HasSubstr("0.02 for 2 points"));
  std::string measures = kSmall;
  measures.erase(measures.find("  update:"),
                 measures.find("  evaluation:") - measures.find("  update:"));
  measures.replace(measures.find("[learned]"), 9, "[uniform]");
  measures.replace(measures.find("[s2anta-sys]"), 12, "[dense, s2anta-sys]");
  const std::string sweep = temp_.write("sweep.yaml", measures);
  said({"run", sweep, "--model", model, "--workers", "1", "--dir", temp_.path() + "/sweep"});
  EXPECT_THAT(said({"top", temp_.path() + "/sweep", "--margin", "0.02"}),
              HasSubstr("as good as dense to within 2 points:\n  s2anta-sys, uniform: "));
  EXPECT_THAT(refused({"fork", "--from", temp_.path() + "/sweep", file, "--model", model}),
              HasSubstr("only measures"));
  EXPECT_FALSE(fs::exists(folder + "/export.json"));
  const std::string picture = readFile(folder + "/copy/curve.svg");
  const size_t from = picture.find("<title>") + 7;
  EXPECT_EQ(said({"plot", folder + "/copy/curve.csv", "--title",
                  picture.substr(from, picture.find("</title>") - from)}),
            picture);
  EXPECT_THAT(said({"plot", folder + "/copy/policy.json"}), HasSubstr("<rect class=\"f0\""));
  const Output damaged = allot({"plot", file});
  EXPECT_EQ(damaged.status, 65);
  EXPECT_THAT(damaged.err, HasSubstr(file + ", line 2: "));
  for (const char* name : {"report.html", "curve.csv", "experiment.yaml"}) {
    EXPECT_TRUE(fs::exists(folder + "/copy/" + name)) << name;
    EXPECT_TRUE(fs::exists(folder + "/a/" + name)) << name;
  }

  fs::create_directory(folder + "/broken");
  std::ofstream(folder + "/broken/run.json") << "{}";
  const Output listed = allot({"list", folder, "-o", "json"});
  EXPECT_EQ(listed.status, 0);
  EXPECT_THAT(listed.err, HasSubstr("does not name a run"));
  const json runs = json::parse(listed.out)["runs"];
  ASSERT_EQ(runs.size(), 3u) << listed.out;
  for (const json& one : runs) {
    const std::string name = fs::path(one["where"].get<std::string>()).filename();
    EXPECT_EQ(one["state"], name == "broken" ? "unreadable" : "finished");
    if (name == "broken") continue;
    EXPECT_EQ(one["experiment"], "small");
    EXPECT_EQ(one["version"], 3);
    EXPECT_TRUE(one["accuracy"].is_number());
    EXPECT_GT(one["bytes"], 1000);
  }
  // A time-out, of a run that is not going to be there.
  auto paused = allot({"wait", folder + "/none", "--timeout", "1s"});
  EXPECT_EQ(paused.status, 75) << paused.err;
}

TEST_F(CommandLine, InstalledProgramsFindEachOther) {
  const std::string prefix = temp_.path() + "/with a blank";
  const Output output = run(kSource + "/run", {"install", "--from", kBin, "--prefix", prefix});
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("installed " + prefix + "/bin/allot\n"));
  EXPECT_THAT(output.out, HasSubstr(prefix + "/bin is not on your PATH"));
  const Output check =
      run(prefix + "/bin/allot", {"check", temp_.write("small.yaml", kSmall), "--model", kModel});
  EXPECT_EQ(check.status, 0) << check.err;
  // Again, over the ones that are there.
  EXPECT_EQ(run(kSource + "/run", {"install", "--from", kBin, "--prefix", prefix}).status, 0);
  EXPECT_EQ(run(kSource + "/run", {"install", "--from", temp_.path()}).status, 64);
  EXPECT_EQ(run(kSource + "/run", {"install", "--bogus"}).status, 64);
}

}  // namespace
}  // namespace allot
