// Peers over the real interface: what they say, and what becomes of those that do not answer as
// README.md of kernels/bench has it. Peers are small scripts here.
#include "kernels/bench/peer.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace allot::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kExample = ALLOT_SOURCE_DIR "/kernels/bench/example_peer.py";
const std::string kHello = R"(echo '{"version": "fake 1"}')";

PeerQuestion smallQuestion(PeerQuestion::Phase phase = PeerQuestion::Phase::kDecode) {
  PeerQuestion question;
  question.phase = phase;
  question.rows = 2, question.keys = 64, question.heads = 8, question.kv_heads = 2;
  question.dim = 64, question.page_size = 16, question.warm_up = 1, question.samples = 3;
  return question;
}

// A peer in the shell that runs these lines.
class ShellPeer {
 public:
  explicit ShellPeer(const std::string& lines, PeerLimits limits = {})
      : path_(folder_.write("fake", "#!/bin/sh\n" + lines + "\n")) {
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    peer_ = std::make_unique<Peer>(path_, "python3", limits);
  }
  Peer* operator->() { return peer_.get(); }
  std::string error() { return peer_->ask(smallQuestion()).value("error", "none"); }

 private:
  TempFolder folder_;
  std::string path_;
  std::unique_ptr<Peer> peer_;
};

TEST(Peers, TheExampleAnswersSteps) {
  Peer peer(kExample, "python3");
  EXPECT_EQ(peer.absence(), "");
  EXPECT_EQ(peer.label(), "example_peer");
  EXPECT_EQ(peer.version(), "a copy in the host's memory");
  for (int i = 0; i < 3; ++i) {
    const auto answer = peer.ask(smallQuestion());
    EXPECT_GT(answer.value("ms", 0.0), 0) << answer;
    EXPECT_EQ(answer.value("way", ""), "bytes()");
    EXPECT_FALSE(answer.value("graph", true));
  }
  const auto prompt = peer.ask(smallQuestion(PeerQuestion::Phase::kPrefill));
  EXPECT_EQ(prompt.dump(), R"({"error":"it measures decode alone"})");
  EXPECT_TRUE(peer.ask(smallQuestion()).contains("ms"));
}

TEST(Peers, AreAskedForBothPhasesAlike) {
  TempFolder folder;
  const std::string asked = folder.path() + "/asked";
  ShellPeer peer(kHello + "\nwhile read line; do echo \"$line\" >>" + asked +
                 "; echo '{\"ms\": 0.25, \"graph\": true, \"own\": [1]}'; done");
  const auto answer = peer->ask(smallQuestion());
  EXPECT_EQ(answer.value("ms", 0.0), 0.25);
  EXPECT_TRUE(answer.value("graph", false));
  EXPECT_EQ(answer["own"].dump(), "[1]");
  peer->ask(smallQuestion(PeerQuestion::Phase::kPrefill));
  const std::string rest =
      R"("dim":64,"element":"bf16","flush_bytes":0,"heads":8,"keys":64,"kv_heads":2,"page_size":16,)";
  const std::string end = R"(,"rows":2,"samples":3,"warm_up":1})";
  EXPECT_EQ(readFile(asked), "{" + rest + R"("phase":"decode")" + end + "\n{" + rest +
                                 R"("phase":"prefill")" + end + "\n");
}

TEST(Peers, MayPrintWhateverElse) {
  ShellPeer peer("echo loading; echo; echo 3\n" + kHello +
                 "\nread line; echo '[1]'; echo 'half a line {'; printf '{\"ms\"'; sleep 0.1; "
                 "echo ': 2}'; read line");
  EXPECT_EQ(peer->version(), "fake 1");
  EXPECT_EQ(peer->ask(smallQuestion()).value("ms", 0.0), 2);
}

TEST(Peers, ThatAreNotThereAreLeftOutWithASentence) {
  EXPECT_EQ(ShellPeer(R"(echo '{"unavailable": "no GPU"}')")->absence().substr(0, 5), "/tmp/");
  EXPECT_THAT(ShellPeer(R"(echo '{"unavailable": "no GPU"}')")->absence(), HasSubstr(": no GPU"));
  EXPECT_THAT(ShellPeer("exit 3")->absence(), HasSubstr("its process has ended with 3"));
  EXPECT_THAT(ShellPeer("true")->absence(), HasSubstr("its process has ended"));
  EXPECT_THAT(ShellPeer("kill -9 $$")->absence(), HasSubstr("by signal 9"));
  EXPECT_THAT(ShellPeer("echo no module named x")->absence(),
              HasSubstr("its last line was no JSON object: no module named x"));
  for (const char* hello : {R"({"version": 3})", R"({"version": ""})", "{}", R"({"ms": 1})"}) {
    EXPECT_THAT(ShellPeer("echo '" + std::string(hello) + "'; read line")->absence(),
                HasSubstr("its first line has neither version nor unavailable: "))
        << hello;
  }
  PeerLimits short_limits;
  short_limits.start = std::chrono::seconds(1);
  ShellPeer silent("echo waiting; exec sleep 60", short_limits);
  EXPECT_THAT(silent->absence(), HasSubstr("did not answer within 1 s; its last line was no JSON"));
  EXPECT_EQ(silent->version(), "");
  Peer nowhere(kExample, "/nowhere/python3");
  EXPECT_THAT(nowhere.absence(), HasSubstr("/nowhere/python3 was not run"));
  EXPECT_EQ(nowhere.ask(smallQuestion()), nlohmann::json({{"error", nowhere.absence()}}));
}

TEST(Peers, ThatEndInTheMiddleAreNotAskedAgain) {
  ShellPeer peer(kHello + "\nread line; echo '{\"ms\": 1}'; read line; exit 4");
  EXPECT_EQ(peer->ask(smallQuestion()).value("ms", 0.0), 1);
  EXPECT_EQ(peer.error(), "its process has ended with 4");
  EXPECT_EQ(peer.error(), "its process has ended with 4");
  EXPECT_EQ(peer->version(), "fake 1");
  ShellPeer broken(kHello + "\nread line; printf '{\"ms\": 1'; kill -11 $$");
  EXPECT_THAT(broken.error(),
              AllOf(HasSubstr("by signal 11"), HasSubstr("no JSON object: {\"ms\": 1")));
  PeerLimits short_limits;
  short_limits.answer = std::chrono::seconds(1);
  ShellPeer silent(kHello + "\nread line; exec sleep 60", short_limits);
  EXPECT_THAT(silent.error(), HasSubstr("did not answer within 1 s"));
}

TEST(Peers, ThatAnswerOtherwiseAreSaidTo) {
  const auto said = [](const std::string& answer) {
    // Not by echo, which has escapes of its own.
    return ShellPeer(kHello + "\nread line; printf '%s\\n' '" + answer + "'; read line").error();
  };
  for (const char* answer :
       {R"({"ms": "3"})", R"({"ms": -1})", R"({"ms": 0})", R"({"ms": null})", R"({"ms": [1, 2]})",
        R"({"time": 3})", R"({"error": 5})", "{}", R"({"error": ""})"}) {
    EXPECT_THAT(said(answer), HasSubstr("its answer needs \"ms\" (a number above 0) or \"error\""))
        << answer;
  }
  EXPECT_EQ(said(R"({"error": "dim 64 alone"})"), "dim 64 alone");
  EXPECT_EQ(said(R"({"error": "a\u0000b\u001b[31m\tc"})"), "a b [31m c");
  EXPECT_LT(said(R"({"error": ")" + std::string(5000, 'x') + R"("})").size(), 300u);
  ShellPeer endless(kHello + "\nread line; head -c 3000000 /dev/zero | tr '\\0' x; read line");
  EXPECT_THAT(endless.error(), HasSubstr("a line of more than a mebibyte"));
  // A text and a truth of another type are passed over: the time is what counts.
  ShellPeer odd(kHello +
                "\nread line; echo '{\"ms\": 1, \"way\": 5, \"graph\": \"yes\"}'; read line");
  const auto answer = odd->ask(smallQuestion());
  EXPECT_EQ(answer.value("way", "?"), "");
  EXPECT_FALSE(answer.value("graph", true));
}

// peer.py's serve(), with as much of a torch as it asks for.
TEST(Peers, InPythonHaveTheirTimingFromTheRepository) {
  TempFolder folder;
  const std::string path = folder.write("mine.py", R"(
import types

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(
    is_available=lambda: True, get_device_name=lambda device: "none", empty_cache=lambda: None)
torch.no_grad = nullcontext
sys.modules["torch"] = torch

def measure(torch, want):
    if want["keys"] > 100:
        raise KeyError("too long")
    return {"ms": copies_for(want) / 8}

serve(lambda torch: ("mine 2", measure), phases=("decode",))
)");
  Peer peer(path, "python3");
  EXPECT_EQ(peer.version(), "mine 2") << peer.absence();
  PeerQuestion question = smallQuestion();
  EXPECT_EQ(peer.ask(question).value("ms", 0.0), 1 / 8.0);
  question.flush_bytes = 3 * int64_t{2} * 2 * 2 * 64 * 64 * 2;
  EXPECT_EQ(peer.ask(question).value("ms", 0.0), 4 / 8.0);
  question.keys = 101;
  EXPECT_THAT(peer.ask(question).value("error", ""), HasSubstr("too long"));
  EXPECT_EQ(peer.ask(smallQuestion(PeerQuestion::Phase::kPrefill)).value("error", ""),
            "it measures no prefill");
  const std::string broken = folder.write("broken.py", "serve(lambda torch: torch.nothing)\n");
  EXPECT_FALSE(Peer(broken, "python3").absence().empty());
}

// FlashInfer's script, with as much of torch and of FlashInfer as it asks for: shapes of tensors,
// and a time for each kernel, which a replayed graph has again.
TEST(Peers, FlashInferReadsPromptsInItsFastestWay) {
  TempFolder folder;
  folder.write("torch.py", R"(
import contextlib, math, sys, types

class Tensor:
    def __init__(self, *shape):
        self.shape = shape
    def view(self, *shape):
        rest = math.prod(self.shape) // math.prod(n for n in shape if n != -1)
        return Tensor(*(rest if n == -1 else n for n in shape))
    def __getitem__(self, at):
        if isinstance(at, int):
            return Tensor(*self.shape[1:])
        return Tensor(self.shape[0], at[1].stop, *self.shape[2:])
    def to(self, kind):
        return self

class Graph:
    def capture_begin(self):
        pass
    def capture_end(self):
        self.ms = cuda.now
    def replay(self):
        cuda.now = self.ms

def stream(*ignored):
    return types.SimpleNamespace(wait_stream=lambda other: None)

def nothing(*ignored):
    pass

float16 = bfloat16 = int32 = uint8 = None
no_grad = contextlib.nullcontext
randn = empty = lambda *shape, **options: Tensor(*shape)
empty_like = lambda like: Tensor(*like.shape)
randperm = lambda count, **options: Tensor(count)
tensor = lambda numbers, **options: Tensor(len(numbers))
cuda = types.SimpleNamespace(
    now=0, is_available=lambda: True, get_device_name=lambda device: "none",
    get_device_capability=lambda: (9, 0), empty_cache=nothing, synchronize=nothing, _sleep=nothing,
    Stream=stream, current_stream=stream, stream=lambda side: contextlib.nullcontext(),
    CUDAGraph=Graph, Event=lambda **options: types.SimpleNamespace(
        record=nothing, synchronize=nothing, elapsed_time=lambda end: cuda.now))
)");
  folder.write("flashinfer.py", R"(
import torch
__version__ = "0"

def expect(made, *wanted):
    if made != wanted:
        raise KeyError(f"{made}, not {wanted}")

def single_prefill_with_kv_cache(q, k, v, causal, backend):
    expect((q.shape, k.shape, v.shape, causal, backend),
           (70, 8, 64), (70, 2, 64), (70, 2, 64), True, "fa3")
    torch.cuda.now = 3

class BatchPrefillWithRaggedKVCacheWrapper:
    def __init__(self, workspace, layout, backend):
        expect((layout, backend), "NHD", "fa3")
    def plan(self, queries, keys, heads, kv_heads, dim, causal, **types):
        expect((queries.shape, keys.shape, heads, kv_heads, dim, causal), (2,), (2,), 8, 2, 64, True)
    def run(self, q, k, v, out):
        expect((q.shape, k.shape, v.shape, out.shape),
               (70, 8, 64), (70, 2, 64), (70, 2, 64), (70, 8, 64))
        torch.cuda.now = 2.5

class BatchPrefillWithPagedKVCacheWrapper:
    def __init__(self, workspace, layout, backend):
        self.layout = layout
        expect((backend,), "fa3")
    def plan(self, queries, pages, places, last, heads, kv_heads, dim, page, causal, **types):
        expect((queries.shape, pages.shape, places.shape, last.shape, heads, kv_heads, dim, page,
                causal), (2,), (2,), (5,), (1,), 8, 2, 64, 16, True)
    def run(self, q, cache, out):
        if self.layout == "HND":
            raise RuntimeError("no such layout")
        expect((cache[0].shape, cache[1].shape), (5, 16, 2, 64), (5, 16, 2, 64))
        torch.cuda.now = 2
)");
  setenv("PYTHONPATH", folder.path().c_str(), 1);
  Peer peer("flashinfer", "python3");
  unsetenv("PYTHONPATH");
  EXPECT_EQ(peer.version(), "FlashInfer 0") << peer.absence();
  PeerQuestion question = smallQuestion(PeerQuestion::Phase::kPrefill);
  question.rows = 1, question.keys = 70;
  const auto answer = peer.ask(question);
  EXPECT_EQ(answer.value("way", ""), "paged NHD fa3") << answer;
  EXPECT_EQ(answer.value("ms", 0.0), 2);
  EXPECT_TRUE(answer.value("graph", false));
  EXPECT_EQ(
      answer["ways"].dump(),
      R"({"paged HND fa3":"no such layout","paged NHD fa3":2,"ragged fa3":2.5,"single fa3":3})");
}

TEST(Peers, ThatLackAModuleSayHowToGetIt) {
  TempFolder folder;
  folder.write("torch.py", "");
  const std::string path =
      folder.write("mine.py", "serve(lambda torch: __import__('allot_nothing'))\n");
  setenv("PYTHONPATH", folder.path().c_str(), 1);
  const Peer peer(path, "python3");
  unsetenv("PYTHONPATH");
  EXPECT_THAT(peer.absence(), HasSubstr("No module named 'allot_nothing': pip install "
                                        "allot_nothing, or --python with one that has it"));
}

TEST(Peers, AreNamedByWhatIsThere) {
  TempFolder folder;
  const std::string text = folder.write("text", "x"), python = folder.write("mine.py", "x");
  EXPECT_EQ(wrongPeers({"torch", "flashinfer", kExample, python}), "");
  EXPECT_THAT(wrongPeers({"vllm"}), HasSubstr("there is no file vllm"));
  EXPECT_THAT(wrongPeers({folder.path()}), HasSubstr("there is no file"));
  EXPECT_THAT(wrongPeers({text}), HasSubstr("is no program that can be run"));
  EXPECT_EQ(wrongPeers({python, "torch", python}), "two peers are called mine");
  EXPECT_EQ(peerLabel("torch"), "torch");
  EXPECT_EQ(peerLabel("./some/kernel.v2.py"), "kernel.v2");
}

TEST(Peers, CanBeTriedAlone) {
  TempFolder folder;
  const std::string broken = folder.write("broken.py", "raise SystemExit(2)\n");
  testing::internal::CaptureStdout();
  EXPECT_TRUE(tryPeers({kExample}, "python3", {smallQuestion(), smallQuestion()}));
  const std::string good = testing::internal::GetCapturedStdout();
  EXPECT_THAT(good, HasSubstr("example_peer: a copy in the host's memory\n"));
  EXPECT_THAT(good, HasSubstr("\"phase\":\"decode\""));
  EXPECT_THAT(good, HasSubstr("\"ms\":"));
  testing::internal::CaptureStdout();
  EXPECT_FALSE(
      tryPeers({kExample, broken}, "python3", {smallQuestion(PeerQuestion::Phase::kPrefill)}));
  const std::string bad = testing::internal::GetCapturedStdout();
  EXPECT_THAT(bad, HasSubstr("it measures decode alone"));
  EXPECT_THAT(bad, HasSubstr("broken: left out, its process has ended with 2"));
}

}  // namespace
}  // namespace allot::bench
