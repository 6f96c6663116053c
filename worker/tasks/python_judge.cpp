#include "worker/tasks/python_judge.h"

#include <string>

namespace allot {
namespace {

// Of both programs. The descriptors are kPeerInFd and kPeerOutFd.
constexpr const char* kPeer = R"py(
import builtins, collections.abc, importlib, json, os, sys

getattr(sys, "set_int_max_str_digits", int)(0)
incoming, outgoing = os.fdopen(5, "rb"), os.fdopen(6, "wb")
LONGEST_LINE = 1 << 24
# Classes of plain data that are rebuilt from the arguments that their __reduce__ gives.
PLAIN = {
    "builtins.bytearray", "builtins.frozenset", "builtins.range", "builtins.set",
    "collections.Counter", "datetime.date", "datetime.datetime", "datetime.time",
    "datetime.timedelta", "decimal.Decimal", "fractions.Fraction",
}
shared = []  # objects that the other process may name
serving = 0  # questions of the other process that this one is answering


def pack(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(one) for one in value]}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    kind = type(value)
    name = f"{getattr(kind, '__module__', '')}.{kind.__qualname__}"
    if name in PLAIN:
        return {name: pack(list(value.__reduce__()[1]))}
    if isinstance(value, dict):
        return {"dict": [[pack(key), pack(one)] for key, one in value.items()]}
    if isinstance(value, collections.abc.MappingView) or hasattr(kind, "__next__"):
        return {"iterator": [pack(one) for one in value]}
    return {"yours": value._number} if kind is Remote else share(value)


def unpack(value):
    if isinstance(value, list):
        return [unpack(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(tag, of)] = value.items()
    if tag in names_of:
        return names_of[tag](of)
    of = unpack(of)
    if tag in PLAIN:
        module, name = tag.split(".")
        return getattr(importlib.import_module(module), name)(*of)
    return {"tuple": tuple, "dict": dict, "iterator": iter, "complex": lambda of: complex(*of)}[tag](of)


# An object of the other process. It has no comparison: == is identity. The rest, except calls, is
# barred unless the prompt ends with a class: an object could have the methods of the text or list
# that tests expect.
class Remote:
    barred = False

    def __init__(self, number):
        self._number = number

    def __call__(self, *args, **named):
        return ask("call", self, args, named)

    def __bool__(self):
        return True

    def __getattr__(self, name):
        if Remote.barred:
            raise AttributeError(f"{name}: an object of the answer is no plain value")
        return ask("attribute", self, name)

    def __getitem__(self, at):
        return self.__getattr__("__getitem__")(at)

    def __len__(self):
        return self.__getattr__("__len__")()

    def __iter__(self):
        return self.__getattr__("__iter__")()

    def __str__(self):
        return self.__getattr__("__str__")()
names_of = {"bytes": lambda of: of.encode("latin-1"), "yours": shared.__getitem__, "object": Remote}


def send(message):
    outgoing.write(json.dumps(message).encode() + b"\n")
    outgoing.flush()


def receive():
    line = incoming.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise EOFError("the other process sent no whole line")
    return json.loads(line)


# Puts what a function made of its argument into the caller's object.
def restore(old, new):
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)


# Returns the exception of the first class that is a builtin. A StopIteration would end map() and the
# like in silence.
def exception(names, args):
    kinds = [getattr(builtins, name, None) for name in names]
    kind = next(one for one in kinds if isinstance(one, type) and issubclass(one, BaseException))
    if issubclass(kind, (StopIteration, StopAsyncIteration)):
        kind = RuntimeError
    raised = kind.__new__(kind)
    raised.args = tuple(args)
    return raised


# Asks the other process. A reply that is none ends this one.
def ask(what, *of):
    number = os.urandom(16).hex()
    send([number, what, *map(pack, of)])
    try:
        while (reply := receive())[0] != number:
            serve(*reply)
        names, value, args = map(unpack, reply[1:])
        raised = exception(names, value) if names else None
        if args is not None:
            for old, new in zip(of[1], args):
                restore(old, new)
    except BaseException as broken:
        print("no reply:", repr(broken), file=sys.stderr, flush=True)
        os._exit(1)
    if raised is not None:
        raise raised
    return value


def serve(number, what, *packed):
    global serving
    serving += 1
    names, args = None, None
    try:
        of = [unpack(one) for one in packed]
        value = pack(ACTIONS[what](*of))
        if what == "call" and (after := pack(of[1])) != packed[1]:
            args = after
    except BaseException as error:
        names = [one.__name__ for one in type(error).__mro__]
        value = arguments(error)
    serving -= 1
    send([number, names, value, args])


def call(function, args, named):
    return function(*args, **named)
)py";

constexpr const char* kAnswer = R"py(

def share(value):
    shared.append(value)
    return {"object": len(shared) - 1}


def arguments(error):
    return pack(list(error.args))


def look_up(name):
    if isinstance(names[name], type(os)):
        raise ImportError(name)
    return names[name]


# Fails if the answer left processes behind.
def end():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
    raise RuntimeError("processes are left")


ACTIONS = {"call": call, "attribute": getattr, "name": look_up, "end": end}
names_of["builtin"] = lambda name: getattr(builtins, name)
program = sys.stdin.buffer.read().decode("utf-8", "replace")
send("ready")
receive()  # the judge has begun: whatever the answer does now is the answer's
names = {}
exec(program, names)
while True:
    serve(*receive())
)py";

constexpr const char* kJudge = R"py(

def refuse(why):
    print("they", why, flush=True)
    os._exit(3)


sharing = True  # functions may cross


# Tests may hand builtins and functions to the answer, which may call them and no more. Another
# object is a fault of the tests only if no act of the answer brought it here.
def share(value):
    name = getattr(value, "__name__", "")
    if getattr(builtins, name, None) is value:
        return {"builtin": name}
    if not sharing or not callable(value):
        why = f"hand the answer an object of class {type(value).__name__}, which is no plain value"
        if serving or Names.imported:
            raise TypeError(f"the tests {why}")
        refuse(why)
    shared.append(value)
    return {"object": len(shared) - 1}


# Packs the arguments of an exception, objects as texts: an error of this process itself may hold
# a class that no test handed over.
def arguments(error):
    global sharing
    sharing, packed = False, []
    for one in error.args:
        try:
            packed.append(pack(one))
        except TypeError:
            packed.append(str(one))
    sharing = True
    return packed


def attribute(value, name):
    raise AttributeError(name)


# The names of the tests. What they do not define themselves, and is no builtin, is the answer's.
class Names(dict):
    asked = False
    imported = False  # a module, because the answer said that a name is one's

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        Names.asked = True
        try:
            return ask("name", name)
        except ImportError:
            Names.imported = True
            return importlib.import_module(name)


# Returns the text before its last function or class, which the answer completes. Bars objects unless
# that is a class.
def own_part(text):
    lines = text.split("\n")
    heads = [at for at, line in enumerate(lines) if line.startswith(("def ", "class ", "async ", "@"))]
    for end in reversed([0] + (heads or [len(lines)])):
        Remote.barred = not any(line.startswith("class ") for line in lines[end:])
        try:
            return compile("\n".join(lines[:end]), "prompt", "exec")
        except SyntaxError:
            pass


ACTIONS = {"call": call, "attribute": attribute}
size, text = sys.stdin.buffer.read().split(b"\n", 1)
before, tests = (part.decode("utf-8", "replace") for part in (text[:int(size)], text[int(size):]))
try:
    receive()  # the answer's process is ready
except EOFError:
    os._exit(1)
os.write(1, b"began\n")
send("go")
status = 1
try:
    names = Names()
    exec(own_part(before), names)
    exec(compile(tests, "tests", "exec"), names)
    ask("end")
    status = 0
except BaseException:
    sys.excepthook(*sys.exc_info())
if not Names.asked:
    refuse("name nothing of the answer (a function that is tested cannot have a builtin's name)")
os._exit(status)
)py";

}  // namespace

std::string answerProgram() { return std::string(kPeer) + kAnswer; }
std::string judgeProgram() { return std::string(kPeer) + kJudge; }

}  // namespace allot
