// Answers that try to pass their tests without being right, and right ones that must pass the same
// tests.
#include "tests/results.h"
#include "tests/worker/sandbox_fixture.h"

namespace allot {
namespace {

struct Forgery {
  const char* name;
  std::string body;  // of a function; it does not know what the tests expect
  std::vector<std::string> references = answer42();
  std::string right = "    return 42";
};

// The answer's process has `number`, the name of the question that it is asked, and may write what
// it likes to the judge.
const std::string kNumber = R"py(
    import __main__, json, os, sys
    frame = sys._getframe()
    while "number" not in frame.f_locals:
        frame = frame.f_back
    number = frame.f_locals["number"]
    def reply(value, names=None, args=None):
        os.write(6, json.dumps([number, names, value, args]).encode() + b"\n")
    def call(function, *args):
        os.write(6, json.dumps(["x", "call", function, {"tuple": args}, {"dict": []}]).encode() + b"\n")
        return __main__.receive()
)py";

// Of a grader whose verdict is a secret word in the interpreter that runs answer and tests.
std::vector<Forgery> forgeriesOfOneInterpreter() {
  return {
      {"TheWordFromStandardInput",
       "    import os\n    os.lseek(0, 0, 0); os.write(1, os.read(0, 32)); os._exit(0)"},
      {"TheWordFromTheModule",
       "    import __main__, os; os.write(__main__.verdict, __main__.word); os._exit(0)"},
      {"TheWordByAProcessLeftBehind", R"py(
    import __main__, os
    if os.fork() == 0:
        os.setsid()
        os.write(__main__.verdict, __main__.word)
    os._exit(0)
)py"},
      {"TheWordAndAnotherProgram", R"py(
    import __main__, os
    os.write(__main__.verdict, __main__.word)
    os.execv("/usr/bin/true", ["true"])
)py"},
      {"TheWordAtExit", R"py(
    import __main__, atexit, os
    atexit.register(lambda: (os.write(__main__.verdict, __main__.word), os._exit(0)))
    return 7
)py"},
      {"TheWordFromTheCollector", R"py(
    import gc, os
    for one in gc.get_objects():
        if isinstance(one, dict) and "word" in one and "verdict" in one:
            os.write(one["verdict"], one["word"])
            os._exit(0)
)py"},
      {"AnObjectThatEqualsAll", "    return type('A', (), {'__eq__': lambda s, o: True})()"},
      {"ANumberThatEqualsAll", "    return type('A', (int,), {'__eq__': lambda s, o: True})(7)"},
      {"TheCallersConstants", R"py(
    import sys
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name == "check":
            return [one for one in frame.f_code.co_consts if isinstance(one, int)][0]
        frame = frame.f_back
)py"},
      {"TheInterpretersOwnNumber", R"py(
    import ctypes
    x = 40 + 2
    ctypes.c_uint32.from_address(id(x) + 24).value = 7
    return 7
)py"},
      {"AHookOfExceptions", "    import os, sys\n    sys.excepthook = lambda *a: os._exit(0)\n"},
      {"AnotherAssertionError",
       "    import builtins\n    builtins.AssertionError = type('A', (BaseException,), {})\n"},
      {"TheWrongFrame", "    import sys\n    return sys._getframe(1).f_code.co_consts[-1]"},
      {"ATraceFunction", R"py(
    import os, sys
    sys.settrace(lambda *a: os._exit(0))
    sys._getframe(1).f_trace = lambda *a: os._exit(0)
)py"},
      {"AProfileFunction", "    import os, sys\n    sys.setprofile(lambda *a: os._exit(0))\n"},
      {"TheWordAndAHang", R"py(
    import os, time
    for fd in (1, 2, 6):
        os.write(fd, b"began\n")
    time.sleep(1000)
)py"},
      {"TheWordAndACrash", R"py(
    import ctypes, os
    for fd in (1, 2, 6):
        os.write(fd, b"began\n")
    ctypes.string_at(0)
)py"},
  };
}

// With tests of their own, which an honest answer passes.
std::vector<Forgery> forgeriesOfOtherTests() {
  const std::vector<std::string> truth = {"def f(x=0):\n", "\nassert all(map(f, [1, 2, 3]))"};
  const std::vector<std::string> helped = {
      "def twice(x):\n    return 2 * x\n\ndef half(x):\n    \"\"\" twice(half(x)) == x\n    "
      "\"\"\"\n",
      "\ndef check(candidate):\n    for x in (3, 50, 8):\n        assert twice(candidate(x)) == x\n"
      "check(half)"};
  const std::vector<std::string> drawn = {
      "def f():\n", "\nimport random\nassert f() == random.Random(7).randrange(10 ** 9)\n"};
  const std::vector<std::string> listed = {"def f(xs):\n",
                                           "\nassert f([1, 2]) == [1, {'a': (2, 42)}]\n"};
  const std::vector<std::string> called = {
      "def f(g):\n", "\nsecret = 1234567\nassert f(lambda: secret // 2) * 2 + 1 == secret"};
  const std::vector<std::string> text = {"def f():\n", "\nassert f().startswith('a')\n"};
  const std::vector<std::string> sized = {"def f():\n",
                                          "\ngot = f()\nassert len(got) == 3 and list(got)\n"};
  const std::string draw = "    import random\n    return random.Random(7).randrange(10 ** 9)";
  return {
      {"EndsAnIteration", "    raise StopIteration", truth, "    return x"},
      {"ANewHelper",
       "    global twice\n    twice = lambda x: type('A', (int,), {'__eq__': "
       "lambda s, o: True})()\n    return x",
       helped, "    return x / 2"},
      {"AHelperThatDoesNothing", "    return x\ntwice = lambda x: x\n", helped, "    return x / 2"},
      {"AModuleInTheFolder", R"py(
    open("/tmp/random.py", "w").write("Random = lambda x: type('', (), {'randrange': lambda s, n: 5})()")
    return 5
)py",
       drawn, draw},
      {"AModuleInTheTable", R"py(
    import sys
    sys.modules["random"] = type("", (), {"Random": lambda x: type("", (), {"randrange": lambda s, n: 5})()})
    return 5
)py",
       drawn, draw},
      {"AMethodOfAText", "    return type('A', (), {'startswith': lambda s, x: True})()", text,
       "    return 'abc'"},
      {"ALengthAndItems",
       "    return type('A', (), {'__len__': lambda s: 3, '__iter__': lambda s: iter('abc')})()",
       sized, "    return 'abc'"},
      {"NewBuiltins", "    return 0\nimport builtins\nbuiltins.all = all = lambda *a: True\n",
       truth, "    return x"},
      {"LiarsInAList", R"py(
    class Liar:
        __hash__ = None
        def __eq__(self, other): return True
    return [1, {"a": (2, Liar())}]
)py",
       listed, "    return [1, {'a': (2, 42)}]"},
      {"AListThatEqualsAll",
       "    return type('A', (list,), {'__eq__': lambda s, o: True, '__ne__': lambda s, o: "
       "False})()",
       listed, "    return [1, {'a': (2, 42)}]"},
      {"TheGlobalsOfATestsFunction", "    return g.__globals__['secret'] // 2", called,
       "    return g()"},
      {"TheConstantsOfATestsFunction", kNumber + R"py(
    found = __main__.ask("attribute", g, "__code__")
    return found.co_consts[0]
)py",
       called, "    return g()"},
  };
}

std::vector<Forgery> forgeriesOfTheProtocol() {
  return {
      {"EndsWell", "    raise SystemExit(0)"},
      {"EndsAsUnfit", "    import os\n    os._exit(3)"},
      {"SaysThatItIsReadyAgain",
       "    import os\n    os.write(6, b'\"ready\"\\n')\n    os._exit(0)"},
      {"SaysNothingAndEnds", "    import os\n    os.closerange(0, 64)\n    os._exit(0)"},
      {"AnEmptyReply", kNumber + "    reply(None)\n    os._exit(0)"},
      {"AReplyAndTheEnd", kNumber + "    reply(7)\n    reply(None)\n    reply(None)\n    return 7"},
      {"RepliesWithoutEnd", kNumber + "    while True:\n        reply(7)\n"},
      {"AReplyToAnotherQuestion", kNumber + "    number = '0' * 32\n    reply(None)\n    return 7"},
      {"AClassOfTheJudge",
       kNumber + "    reply({'builtins.eval': ['__import__(\"os\")._exit(0)']})"},
      {"AFunctionOfTheJudge", kNumber + "    reply({'os._exit': [0]})"},
      {"ABuiltinOfTheJudge", kNumber + "    reply({'builtin': 'exit'})"},
      {"AnObjectOfTheJudge", kNumber + "    reply({'yours': -1})"},
      {"ACallInTheJudge", kNumber +
                              "    os.write(6, json.dumps(['x', 'call', {'builtins.eval': ['1']}, "
                              "{'tuple': [0]}, {'dict': []}]).encode() + b'\\n')\n    return 7"},
      {"ANameOfTheJudge", kNumber + "    return __main__.ask('name', 'check')"},
      {"AnExceptionThatEnds", kNumber + "    reply([0], ['SystemExit'])"},
      {"AnExceptionThatIsNone", kNumber + "    reply([0], ['print', 'int'])"},
      {"AClassOfAnotherName", R"py(
    class Liar:
        def __reduce__(self): return (int, ("__import__('os')._exit(0)",))
        def __eq__(self, other): return True
    Liar.__module__, Liar.__qualname__ = "builtins", "eval"
    return Liar()
)py"},
      {"NestedWithoutEnd", kNumber + "    os.write(6, b'[' * (1 << 20) + b'\\n')\n    os._exit(0)"},
      {"ALineWithoutEnd", kNumber + "    while True:\n        os.write(6, b' ' * (1 << 16))\n"},
      {"AnObjectThatIsANumber", R"py(
    class Liar:
        def __init__(self): self.__class__ = Liar
        def __index__(self): return 7
        def __len__(self): return 7
        def __iter__(self): return iter([7])
        def __getattr__(self, name): return lambda *a: True
    return Liar()
)py"},
      {"ANewGlobal",
       "    global check, candidate, AssertionError\n    check = candidate = "
       "AssertionError = lambda *a: None\n    return 7"},
      {"TheJudgesMemory", R"py(
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    text = ctypes.create_string_buffer(b"began", 8)
    part = Part(ctypes.addressof(text), 8)
    there = Part(id(f), 8)
    for pid in range(1, 3000):
        if pid != os.getpid() and libc.process_vm_readv(pid, ctypes.byref(part), 1, ctypes.byref(there), 1, 0) == 8:
            return 42
    return 7
)py"},
      {"TheJudgesDescriptors", R"py(
    import os
    for pid in range(1, 3000):
        if pid == os.getpid():
            continue
        try:
            os.pidfd_open(pid)
            return 42
        except OSError:
            pass
    return 42 if os.path.exists("/proc/self/fd") or os.path.exists("/dev/fd") else 7
)py"},
      {"TheJudgesFolder", R"py(
    import os, time
    os.mkfifo("/tmp/x")
    for root, folders, files in os.walk("/tmp"):
        if set(folders + files) - {"x"}:
            return 42
    return 7
)py"},
      {"ThePipesOtherEnds", R"py(
    import fcntl, os
    for fd in (5, 6):
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    try:
        os.write(5, b"x")
        return 42
    except OSError:
        pass
    try:
        os.read(6, 1)
        return 42
    except OSError:
        return 7
)py"},
      {"AThreadThatRepliesLater", kNumber + R"py(
    import threading
    def later():
        while True:
            reply(None)
    threading.Thread(target=later).start()
    return 7
)py"},
      {"AProcessThatServes", kNumber + R"py(
    if os.fork() == 0:
        while True:
            __main__.serve(*__main__.receive())
    return 7
)py"},
  };
}

// Answers that try to have the judge say that the tests cannot be judged, which would end the run.
std::vector<Forgery> forgeriesOfUnfitTests() {
  const std::vector<std::string> compiled = {"def f(g):\n",
                                             "\nimport re\nassert f(re.compile) == 42"};
  const std::vector<std::string> replaced = {"def f(g):\n", "\nimport re\nassert f(re.sub) == 42"};
  const std::vector<std::string> applied = {"assert apply(select, 3) == 4"};
  return {
      {"AClassOfAnErrorOfTheJudge", kNumber + R"py(
    call({"decimal.Decimal": ["abc"]})
    call({"yours": 0})
    return 7
)py"},
      {"AnObjectThatATestsFunctionReturns", "    g('x')\n    return 42", compiled},
      {"AnObjectThatATestsFunctionHandsOver", "    g('x', lambda m: '', 'x')\n    return 42",
       replaced},
      {"AModuleInPlaceOfAFunction", "import select\napply = lambda g, x: 4", applied,
       "select = lambda x: x + 1\napply = lambda g, x: g(x)"},
  };
}

TEST_F(Sandbox, ForgedVerdictsFail) {
  std::vector<Forgery> all = forgeriesOfOneInterpreter();
  ASSERT_EQ(all.size(), 17u);
  for (const auto& more :
       {forgeriesOfOtherTests(), forgeriesOfTheProtocol(), forgeriesOfUnfitTests()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  ASSERT_GE(all.size(), 17u + 25u);
  std::vector<TestProgram> forged, right;
  for (const Forgery& one : all) {
    forged.push_back(testProgram(one.references, one.body));
    right.push_back(testProgram(one.references, one.right));
  }
  const auto scores = valueOf(runPrograms(forged, goOn));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(scores[i], 0) << all[i].name;
  const auto controls = valueOf(runPrograms(right, goOn));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(controls[i], 1) << all[i].name;
}

// An error of the judge's own Python crosses as text: its arguments may be classes.
TEST_F(Sandbox, NothingOfTheJudgeIsHandedOver) {
  const std::string body = kNumber + R"py(
    return repr(call({"decimal.Decimal": ["abc"]})), repr(call({"yours": 0}))
)py";
  const std::string tests = R"py(
raised, called = f()
assert "ConversionSyntax" in raised and "{'object'" not in raised, raised
assert "IndexError" in called, called
)py";
  EXPECT_THAT(valueOf(runPrograms({{"def f():\n", body, tests}}, goOn)), ElementsAre(1));
}

// What an honest answer returns, raises, changes and calls is what its tests see.
TEST_F(Sandbox, ValuesCrossAsTheyAre) {
  const std::string answer = R"py(
import collections, datetime, decimal, fractions, math
count = 0
def same(x): return x
def kind(x): return type(x).__name__
def each(*all, **named): return [*all, *named.items()]
def items(d): return d.items()
def steps(n): yield from range(n)
def fail(kind, *args): raise kind(*args)
class Own(ValueError): pass
def own(): raise Own("own", 3)
def sort(xs, d, s): xs.sort(); d["x"] = (1,); s.discard(1); return None
def apply(g, x): return g(g(x))
def caught(g):
    try: g()
    except KeyError as error: return error.args
def made(g): return g()()
def told(g):
    try: g()
    except ValueError as error: return error.args
def tally():
    global count
    count += 1
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
def sums(pairs): return [pair.a + pair.b for pair in pairs]
)py";
  const std::string tests = R"py(
import collections, datetime, decimal, fractions
values = [None, True, 1, -1.5, 10 ** 5000, "\ud800 \n\"", b"\xff\x00", 2j, [], (), {}, set(), [[1], (2, (3,))],
          {(1, 2): {"a": [b"x"]}, 3: None}, {1, 2}, frozenset({3}), range(1, 9, 2), bytearray(b"ab"),
          collections.Counter("aab"), fractions.Fraction(1, 3), decimal.Decimal("1.10"),
          datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 1), datetime.timedelta(3), float("inf")]
for value in values:
    back = same(value)
    assert back == value and type(back) is type(value), value
    assert kind(value) == type(value).__name__
assert repr(same([0.1, -0.0, float("nan")])) == "[0.1, -0.0, nan]"
assert same(True) is True and same((1,)) != [1] and str(same(decimal.Decimal("1.10"))) == "1.10"
assert each(1, [2], a=3) == [1, [2], ("a", 3)]
assert sorted(items({"b": 1, "a": 2})) == [("a", 2), ("b", 1)] and list(steps(3)) == [0, 1, 2]
assert same(iter([1])) != [1]
for error in (ValueError, KeyError, ZeroDivisionError, RecursionError, SystemExit):
    try:
        fail(error, "why", 7)
        assert False
    except error as raised:
        assert type(raised) is error and raised.args == ("why", 7)
try:
    own()
    assert False
except ValueError as raised:
    assert raised.args == ("own", 3)
try:
    next(same(iter([])))
    assert False
except StopIteration:
    pass
xs, d, s = [3, 1, 2], {}, {1, 2}
kept = xs
assert sort(xs, d, s) is None and kept == [1, 2, 3] and d == {"x": (1,)} and s == {2}
assert apply(lambda x: x * 3, 2) == 18 and apply(str.upper.__call__, "a") == "A"
assert caught(lambda: {}["key"]) == ("key",) and each(len, int)[0]("abc") == 3
assert caught(lambda: {}[(1, 2)]) == ((1, 2),) and made(lambda: lambda: 5) == 5
class Shown:
    def __str__(self): return "shown"
def fails(): raise ValueError("why", 7, Shown())
assert told(fails) == ("why", 7, "shown")
assert count == 0
tally()
assert count == 1 and math.isclose(2.0, 2.0)
assert sums([Pair(1, 2), Pair(b=3, a=4)]) == [3, 7]
)py";
  const std::string stack = R"py(
    def __init__(self, *items): self.items = list(items)
    def push(self, x): self.items.append(x); return self
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, at): return self.items[at]
    def __str__(self): return " ".join(map(str, self.items))
)py";
  const std::string of_stacks = R"py(
stack = Stack(1)
assert len(stack.push(5)) == 2 and stack[0] == 1 and stack.items == [1, 5] and list(stack) == [1, 5]
assert str(stack) == "1 5" and 5 in stack and 7 not in stack
)py";
  EXPECT_THAT(
      valueOf(runPrograms({{"", answer, tests}, {"class Stack:\n", stack, of_stacks}}, goOn)),
      ElementsAre(1, 1));
}

// Tests that need more than values are no reason for a 0.
TEST_F(Sandbox, TestsThatCannotBeJudgedAreAnError) {
  EXPECT_THAT(
      runPrograms({{"", "def f(x): return 1\n", "class A: pass\nassert f(A()) == 1"}}, goOn),
      isError(ErrorCode::kData, AllOf(HasSubstr("class A: pass?assert f(A()) == 1"),
                                      HasSubstr("they hand the answer an object of class A"))));
  EXPECT_THAT(runPrograms({{"", "def sum(a, b): return a + b\n", "assert sum(1, 2) == 3"}}, goOn),
              isError(ErrorCode::kData,
                      HasSubstr("a function that is tested cannot have a builtin's name")));
}

}  // namespace
}  // namespace allot
