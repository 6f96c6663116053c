#!/usr/bin/env python3
"""Holds allot's interpreter of chat templates to jinja2 on templates made at random.

    jinja_random_test.py JINJA_LINES [--seed N] [--count N]

Both get the same template and the same messages. They give the same text, or both fail for the same kind of reason. The
environment is that of transformers (utils/chat_template_utils.py). What the interpreter refuses by name is counted, and may
be no more than 2 % of all.
"""

import argparse
import collections
import concurrent.futures
import datetime
import json
import random
import subprocess
import sys

try:
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit("python3-jinja2 is missing (Debian: apt-get install python3-jinja2)")


class Generation(Extension):
    """Blocks {% generation %}, which transformers' extension passes through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    return made


def kind_of(error):
    for kind, types in (
        ("syntax", TemplateSyntaxError), ("undefined", UndefinedError), ("forbidden", SecurityError),
    ):
        if isinstance(error, types):
            return kind
    return "raised" if type(error) is TemplateError else "error"


WORDS = ["user", "system", "assistant", "a", "b ", " Ab c", "x-y z", "", "\n", " \n\t q", "éü", "漢字", "</think>", "1", "-7",
         "2.50", "A<b>&'\"", "one\ntwo\n\nthree\r\nfour", "a,b,,c", "\\n{}", "aXbXc"]
# Refused where a list of them is printed, since they may need an escape.
ODD_WORDS = ["é\u00a0ü", "漢字 🙂"]
# What a template sets: of the first two the variables have values, too.
SET_NAMES = ["v", "w", "x", "y"]
SET_OF_VARIABLES = {"str": "bos_token", "bool": "flag", "int": "number", "list": "things", "dict": "table"}


class Maker:
    """Makes a template and its variables. Each expression has a type that it usually has."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.macros = []
        self.known = [{"messages": "messages", "bos_token": "str", "flag": "bool", "tools": "none", "number": "int",
                       "things": "list", "table": "dict"}]
        self.loops = 0
        self.in_macro = False

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, share):
        return self.random.random() < share

    # Values of the variables.
    def value(self, depth=0):
        kinds = ["str", "str", "int", "bool", "none"] + (["list", "dict"] if depth < 3 else [])
        kind = self.random.choice(kinds)
        if kind == "list":
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if kind == "dict":
            return {self.pick("a", "b", "type", "items", "text", "x y"): self.value(depth + 1) for _ in range(self.random.randrange(4))}
        return {"str": self.random.choice(WORDS), "int": self.random.randrange(-20, 100), "none": None,
                "bool": self.chance(0.5)}[kind]

    def variables(self):
        messages = [] if self.chance(0.05) else None
        if messages is None:
            messages = [{"role": "system", "content": self.random.choice(WORDS)}] if self.chance(0.5) else []
            for _ in range(self.random.randrange(1, 4)):
                content = self.random.choice(WORDS) if self.chance(0.85) else [{"type": "text", "text": self.random.choice(WORDS)}]
                messages.append({"role": self.pick("user", "assistant", "tool"), "content": content})
                if self.chance(0.2):
                    messages[-1][self.pick("name", "tool_calls", "reasoning")] = self.value()
        return {"messages": messages, "tools": None, "bos_token": "<s>", "v": "V", "w": 7, "flag": self.chance(0.5), "add_generation_prompt": True,
                "number": self.random.randrange(-3, 12), "things": [self.value(1) for _ in range(self.random.randrange(5))],
                "table": {k: self.value(1) for k in self.random.sample(["a", "b", "c", "items", "Z"], self.random.randrange(4))}}

    # Expressions.
    def names_of(self, kind):
        return [name for scope in self.known for name, k in scope.items() if k == kind]

    def quoted(self, text=None):
        text = self.random.choice(WORDS + ODD_WORDS) if text is None else text
        quote = self.pick("'", '"')
        text = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
        return quote + (text if self.chance(0.3) else text.replace("\n", "\\n").replace("\t", "\\t")) + quote

    def expression(self, kind=None, depth=0):
        if kind is None or self.chance(0.03):
            kind = self.pick("str", "str", "int", "bool", "list", "dict", "any")
        if depth > 3:
            return self.leaf(kind)
        made = getattr(self, "make_" + kind)(depth + 1)
        return f"({made})" if self.chance(0.25) else made

    def leaf(self, kind):
        names = self.names_of(kind)
        if names and self.chance(0.6):
            return self.random.choice(names)
        return {"str": self.quoted(), "int": str(self.random.randrange(12)), "bool": self.pick("true", "false", "flag", "True"),
                "list": self.pick("[]", "things", "[1, 2]", "['b', 'a', 'C']"), "dict": self.pick("{}", "table", "{'a': 1, 'b': 'x'}"),
                "messages": "messages", "message": "messages[0]", "none": "none",
                "any": self.pick("none", "missing", "tools", "things[0]", "(1, 'a')")}[kind]

    def message(self, depth):
        names = self.names_of("message")
        if names and self.chance(0.7):
            return self.random.choice(names)
        return self.pick("messages[0]", "messages[-1]", "(messages | list)[0]", "messages[1]")

    def make_str(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(18)
        if choice < 3:
            return self.leaf("str")
        if choice < 6:
            return f"{self.message(depth)}" + self.pick(".content", "['content']", ".role", "['role']", ".get('name', 'none')", ".role ~ ''", ".role.upper()")
        if choice < 8:
            return f"{e('str')} {self.pick('+', '~', '~', '+')} {e('str')}"
        if choice == 8:
            return f"{e(self.pick('int', 'any', 'list', 'dict', 'bool'))} ~ {e('str')}"
        if choice < 11:
            method = self.pick("strip()", "lstrip()", "rstrip()", f"strip({self.quoted()})", "lstrip('\\n')", "lower()",
                               f"replace({self.quoted('a')}, {self.quoted()})", f"replace('X', {e('str')})", f"split({self.quoted('X')})[-1]",
                               f"rstrip({self.quoted(' abc')})", f"split(',', 1)[{self.pick('0', '1', '-1')}]", f"split({self.quoted('</think>')})[0]")
            if self.chance(0.1):
                return f"'<{{}}>{{}}'.format({e('str')}, {e(None)})"
            return f"({e('str')}).{method}"
        if choice < 14:
            chosen = self.pick("trim", "lower", "string", "tojson", f"replace({self.quoted('a')}, {self.quoted()})", "trim | length",
                               f"default({self.quoted()})",
                               f"default({self.quoted()}, true)", f"trim({self.quoted(' a')})")
            return f"{e('str')} | {chosen}"
        if choice == 14:
            a, b = (self.pick("", "", str(self.random.randrange(-4, 6)), e("int")) for _ in range(2))
            # A slice of constants is folded by jinja2, which makes an undefined value of its errors.
            return f"(bos_token ~ {e('str')})" + ("[::-1]" if self.chance(0.2) else f"[{a}:{b}]")
        if choice == 15:
            return f"{e('str')} if {e('bool')}" + (f" else {e('str')}" if self.chance(0.85) else "")
        if choice == 16:
            chosen = self.pick("join", "tojson", "length", f"join({self.quoted()})", "string", "tojson(ensure_ascii=false)")
            return f"{e(self.pick('list', 'messages', 'dict'))} | {chosen}"
        if self.macros and self.chance(0.8):
            name, count = self.random.choice(self.macros)
            given = [e(None) for _ in range(self.random.randrange(count + 1 + self.chance(0.05)))]
            if self.chance(0.2):
                given.append(f"{self.pick('p0', 'p1', 'q')}={e('str')}")
            return f"{name}({', '.join(given)})"
        if self.chance(0.3):
            return f"{self.message(depth)}.role | upper"
        return f"strftime_now({self.pick(repr('%d %b %Y'), repr('%Y-%m-%d'), repr('%B'))})"

    def make_int(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(8)
        if choice < 3:
            return self.leaf("int")
        if choice == 3:
            return f"{e('int')} {self.pick('+', '-', '*', '%', '+')} {e('int')}"
        if choice < 6:
            return f"{e(self.pick('str', 'list', 'messages', 'dict'))} | length" if self.chance(0.8) else e("int") + " | int"
        if choice == 6 and self.loops:
            return "loop." + self.pick("index", "index0", "first", "last", "previtem", "nextitem")
        return f"-{self.leaf('int')}"

    def make_bool(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(12)
        if choice < 2:
            return self.leaf("bool")
        if choice < 4:
            return f"{self.message(depth)}.role {self.pick('==', '!=')} {self.quoted(self.pick('user', 'system', 'assistant'))}"
        if choice == 4:
            kind = self.pick("int", "str", "int", "str", "any")
            return f"{e(kind)} {self.pick('==', '!=')} {e(kind)}" if self.chance(0.5) else f"{e('int')} {self.pick('<', '<=', '>', '>=')} {e('int')}"
        if choice == 5:
            return f"{e('str')} {self.pick('in', 'not in')} {e(self.pick('str', 'list', 'dict', 'messages'))}"
        if choice == 6:
            return f"{e('bool')} {self.pick('and', 'or')} {e('bool')}"
        if choice == 7:
            return f"not {e('bool')}"
        if choice < 10:
            test = self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "boolean", "true", "false",
                             "equalto('a')")
            what = self.pick(e("any"), e("str"), e("int"), e("list"), "missing", "tools", f"{self.message(depth)}.reasoning", f"{self.message(depth)}.tool_calls")
            return f"{what} is {'not ' if self.chance(0.3) else ''}{test}"
        if choice == 10:
            return f"({e('str')}).{self.pick('startswith', 'endswith')}({self.quoted()})"
        return "loop." + self.pick("first", "last") if self.loops else self.leaf("bool")

    def make_list(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(11)
        if choice < 3:
            return self.leaf("list")
        if choice == 3:
            return "[" + ", ".join(e(None) for _ in range(self.random.randrange(4))) + self.pick("]", "]", "]")
        if choice == 4:
            return f"({e('str')}).split({self.quoted(self.pick('X', 'X', ',', chr(10), ' ', '' if self.chance(0.1) else 'a'))})"
        if choice == 5:
            return f"{e('list')} + {e('list')}"
        if choice == 6:
            return f"({e(self.pick('list', 'messages'))} | list)[{self.pick('1:', ':-1', '::-1', ':2', '1:2', '-1:')}]"
        if choice == 7:
            chosen = self.pick("selectattr('role', 'equalto', 'user')", "rejectattr('name')",
                               "selectattr('content', 'defined')", "rejectattr('role', 'equalto', 'system')", "selectattr('content', 'string')")
            return f"{e(self.pick('list', 'messages'))} | {chosen}" + (" | list" if self.chance(0.9) else "")
        if choice == 8:
            return f"{e('list')} | list"
        if choice == 9:
            return self.pick("{2: 'b', 1: 'a'} | dictsort", f"{e('dict')}" + self.pick(".items()", " | list", ".items() | list"))
        return f"range({', '.join(self.pick(str(self.random.randrange(-2, 6)), 'number') for _ in range(self.random.randrange(1, 4)))}) | list"

    def make_dict(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(4)
        if choice < 2:
            return self.leaf("dict")
        if choice == 2:
            return "{" + ", ".join(f"{e('str')} ~ '': {e(None)}" for _ in range(self.random.randrange(3))) + "}"
        return self.message(depth)

    def make_messages(self, depth):
        return self.leaf("messages") if self.chance(0.6) else self.pick("messages[1:]", "messages[:-1]", "messages | list", "messages[::-1]",
                                                                          "messages | rejectattr('role', 'equalto', 'system') | list")

    def make_message(self, depth):
        return self.message(depth)

    def make_any(self, depth):
        e = lambda kind: self.expression(kind, depth)  # noqa: E731
        choice = self.random.randrange(7)
        if choice < 3:
            return self.leaf("any")
        if choice == 3:
            return f"({e('dict')})" + self.pick(".a", "['b']", ".get('a')", ".get('zz', 1)", ".get('items')", "['b']", ".missing", ".missing.deeper")
        if choice == 4:
            return f"({e('list')})[{e('int')}]"
        if choice == 5:
            return f"{e('any')} | {self.pick('default', 'default', 'string', 'tojson', 'list')}".replace("default", f"default({e('str')})")
        return f"({e(None)}, {e(None)})[{self.random.randrange(3)}]" if self.chance(0.5) else f"ns.{self.pick('a', 'b')}"

    make_none = make_any

    # Statements.
    def tag(self, inner):
        return "{%" + self.pick("", "-", "-", "" if self.chance(0.9) else "+") + " " + inner + " " + self.pick("", "-", "-", "" if self.chance(0.9) else "+") + "%}"

    def space(self):
        return self.pick("", "", "\n", "\n  ", "\n\n", "  ", " \t", "\r\n")

    def text(self):
        return self.random.choice(["<|im_start|>", "<|im_end|>\n", "  a ", "b\n", "\n", "", " ", "é ", "{ } % #", "c\n    "])

    def body(self, depth, count=None):
        self.known.append({})
        made = self.space()
        for _ in range(self.random.randrange(1, 4) if count is None else count):
            made += self.statement(depth) + self.space()
        self.known.pop()
        return made

    def printed(self):
        return "{{" + self.pick("", "-", "- ", " ") + " " + self.expression(self.pick("str", "str", "str", None)) + self.pick(" ", " -", "-") + "}}"

    def statement(self, depth=0):
        choice = self.random.randrange(26)
        if choice < 5:
            return self.text()
        if choice >= 24:
            return self.early()
        if choice < 13 or depth > 3:
            return self.printed()
        if choice < 15:
            made = self.tag("if " + self.expression("bool")) + self.body(depth + 1)
            if self.chance(0.3):
                made += self.tag("elif " + self.expression("bool")) + self.body(depth + 1)
            if self.chance(0.4):
                made += self.tag("else") + self.body(depth + 1)
            return made + self.tag("endif")
        if choice < 18:
            return self.loop(depth)
        if choice < 20:
            return self.set(depth)
        if choice == 20 and not self.in_macro and depth < 2:
            return self.macro(depth)
        if choice == 21:
            return "{#" + self.pick("", "-") + " note {{ x }} " + self.pick("", "-") + "#}"
        if choice == 22:
            loops, self.loops = self.loops, 0
            made = self.tag("generation") + self.body(depth + 1) + self.tag("endgeneration")
            self.loops = loops
            return made
        if self.loops and self.chance(0.8):
            return self.tag(f"if {self.expression('bool')}") + self.tag(self.pick("break", "continue")) + self.tag("endif")
        return self.tag(f"if {self.expression('bool')} and {self.expression('bool')}") + "{{ raise_exception(" + self.expression("str") + ") }}" + self.tag("endif")

    def loop(self, depth):
        over, target, kinds = self.pick(
            ("messages", "m", {"m": "message"}), ("messages", "m", {"m": "message"}), ("list", "item", {"item": "any"}), ("str", "k", {"k": "str"}),
            ("pairs", "k, v", {"k": "str", "v": "any"}), ("any", "i", {"i": "any"}))
        iterable = f"({self.expression('dict', 2)}).items()" if over == "pairs" else self.expression(over, 1)
        if " if " in iterable:
            iterable = f"({iterable})"
        self.known.append(kinds)
        condition = " if " + ("loop.first" if self.chance(0.02) else self.expression("bool", 2)) if self.chance(0.2) else ""
        self.loops += 1
        made = self.tag(f"for {target} in {iterable}{condition}") + self.body(depth + 1)
        self.loops -= 1
        self.known.pop()
        return made + self.tag("endfor")

    def early(self):
        """Reads a name in a block before the set of it, or where there is none."""
        kind, name = self.pick(("str", "v"), ("int", "w"), ("any", "x"), *SET_OF_VARIABLES.items())
        read = "{{ " + name + self.pick("", " is defined", " | default('d')") + " }}" + (self.printed() if self.chance(0.3) else "")
        head, end = self.pick(
            ("for i in [1, 2]", "endfor"), (f"for i in [1, 2] if {name}", "endfor"), ("set y", "endset"), ("generation", "endgeneration"),
            ("if true", "endif"), ("macro g(q)", "endmacro"), (f"macro g(q={name})", "endmacro"))
        if self.chance(0.3):
            read = self.tag("for j in 'a'") + read + self.tag("endfor")
        made = self.tag(head) + read + self.tag(end)
        made += {"set y": "{{ y }}"}.get(head, "{{ g() }}" if "macro" in head else "")
        if self.chance(0.7):
            made += self.tag(f"set {name} = {self.expression(kind, 2)}")
        return made + "{{ g() }}" * ("macro" in head) + (self.printed() if self.chance(0.3) else "")

    def set(self, depth):
        kind = self.pick("str", "str", "int", "bool", "list", "dict", "any", "message")
        name = SET_OF_VARIABLES.get(kind) if self.chance(0.2) else None
        name = name or self.pick(*SET_NAMES)
        choice = self.random.randrange(6)
        if choice == 0:
            made = self.tag("set " + name) + self.body(depth + 2) + self.tag("endset")
            self.known[-1][name] = "str"
            return made
        if choice == 1:
            return self.tag(f"set ns.{self.pick('a', 'b')} = {self.expression()}")
        made = self.tag(f"set {name} = {self.expression(kind)}")
        self.known[-1][name] = kind
        return made

    def macro(self, depth):
        count = self.random.randrange(3)
        name = f"f{len(self.macros)}"
        defaults = self.random.randrange(count + 1)
        standard = lambda: self.pick("p0", "p1") if self.chance(0.2) else self.expression("str", 2)  # noqa: E731
        names = [f"p{i}" + (f"={standard()}" if i >= count - defaults else "") for i in range(count)]
        self.known.append({f"p{i}": "str" for i in range(count)})
        loops, self.loops, self.in_macro = self.loops, 0, True
        made = self.tag(f"macro {name}({', '.join(names)})") + self.body(depth + 1) + self.tag("endmacro")
        self.loops, self.in_macro = loops, False
        self.known.pop()
        self.macros.append((name, count))
        return made

    def template(self):
        made = self.tag(f"set ns = namespace(a={self.expression('str', 3)}, b=1)")
        for _ in range(self.random.randrange(1, 5)):
            made += self.statement() + self.space()
        if self.chance(0.02):
            at = self.random.randrange(len(made))
            made = made[:at] + made[at + 1:]
        return made


def options_of():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments.add_argument("--count", type=int, default=10_000)
    return arguments.parse_args()


def compare(options, numbers):
    """Returns outcomes, refusals and the templates that differ."""
    jinja = environment()
    program = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    outcomes, refused, bad = collections.Counter(), collections.Counter(), []
    for number in numbers:
        maker = Maker(f"{options.seed} {number}")
        template, variables = maker.template(), maker.variables()
        program.stdin.write(json.dumps({"template": template, "variables": variables}) + "\n")
        program.stdin.flush()
        try:
            expected = ("text", jinja.from_string(template).render(**variables))
        except Exception as error:  # noqa: BLE001: each kind is an outcome
            expected = (kind_of(error), f"{type(error).__name__}: {error}")
        answer = json.loads(program.stdout.readline() or '{"failure": "crash", "message": "the program ended"}')
        if "No filter named" in expected[1] or "No test named" in expected[1]:
            continue  # allot tells it when the name is reached
        found = ("text", answer["text"]) if "text" in answer else (answer["failure"], answer["message"])
        if found[0] in ("unsupported", "limit") or (found[0] == "syntax" and expected[0] != "syntax"):
            outcomes["unsupported"] += 1
            refused[found[1]] += 1
            continue
        outcomes[expected[0]] += 1
        if found[0] != expected[0] or (found[0] == "text" and found[1] != expected[1]):
            bad.append(f"--- number {number} (--seed {options.seed})\n{template}\n{json.dumps(variables, ensure_ascii=False)}\n"
                       f"jinja2: {expected!r}\nallot:  {found!r}")
        if found[0] == "crash":
            break
    program.stdin.close()
    program.wait()
    return outcomes, refused, bad


def main():
    options = options_of()
    print(f"seed {options.seed}", flush=True)
    outcomes, refused, bad = collections.Counter(), collections.Counter(), []
    halves = [range(begin, options.count, 2) for begin in (0, 1)]
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for part in pool.map(compare, [options] * 2, halves):
            outcomes += part[0]
            refused += part[1]
            bad += part[2]
    print("\n".join(bad[:10]))
    print(", ".join(f"{count} {kind}" for kind, count in outcomes.most_common()))
    for message, count in refused.most_common(12):
        print(f"  refused {count} times: {message}")
    if bad or sum(refused.values()) > options.count * 0.02 or outcomes["text"] < options.count * 0.4:
        sys.exit(f"{len(bad)} of {options.count} templates differ")


if __name__ == "__main__":
    main()
