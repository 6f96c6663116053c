#!/usr/bin/env python3
"""Plants one fault at a time and demands that a test fails: what ./run mutants calls.

The tables beside this file, *.txt, hold the faults of one folder of code each. A row is one fault:
  mutant core_adam_without_bias_correction
  what: Adam without bias correction
  build: core_test                      targets
  run: core_test --gtest_filter=...     at least one such line has to fail; {bin} is not needed
  quick: yes                            in the part that every CI run does
  file: core/learning/gradient.cpp
  -      the old lines, each after a '-'
  +      the new lines, each after a '+'; lines that stay begin with a blank
Old lines and those that stay are one block, which the file must hold exactly once. A fault of several
places has several parts that begin with 'file:'. An empty line ends the row.

  run.py [--quick] [--today N] [PATTERN...]   those whose name holds one of the patterns

The tree is copied to build/mutants/tree and built there, in its own build/release, without CUDA: a
fault never stands in the repository. A row that does not apply, or a fault that does not compile,
is an error, as is a test that fails without any fault.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TREE = ROOT / "build/mutants/tree"
BUILD = TREE / "build/release"
TEST_SECONDS = 300  # a test that hangs has noticed, too
ENVIRONMENT = {
    **os.environ,
    "CCACHE_BASEDIR": str(TREE),
    "CCACHE_NOHASHDIR": "1",
    # Else git would take the copy for a part of this repository and skip what it ignores.
    "GIT_CEILING_DIRECTORIES": str(TREE.parent),
}


class Mutant:
    def __init__(self, table, name):
        self.table = table
        self.name = name
        self.what = ""
        self.targets = []
        self.tests = []
        self.quick = False
        self.changes = []  # (file, old lines, new lines)

    def add(self, line):
        """Takes one line of the row; False if it is none."""
        key, _, value = line.partition(": ")
        if line[0] in " -+" and self.changes:
            _, old, new = self.changes[-1]
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])
        elif key == "what":
            self.what = value
        elif key == "build":
            self.targets = value.split()
        elif key == "run":
            self.tests.append(value)
        elif line == "quick: yes":
            self.quick = True
        elif key == "file":
            self.changes.append((value, [], []))
        else:
            return False
        return True

    def whole(self):
        return self.what and self.targets and self.tests and self.changes and all(
            old and old != new for _, old, new in self.changes)

    def apply(self):
        """Plants the fault in TREE; what hinders it, else None."""
        for name, old, new in self.changes:
            path = TREE / name
            lines = path.read_text().split("\n") if path.is_file() else []
            places = [at for at in range(len(lines) - len(old) + 1) if lines[at:at + len(old)] == old]
            if len(places) != 1:
                return (f"{self.table.name}: {self.name}: {name} holds the old lines {len(places)} times, not once:\n"
                        + "\n".join(old))
            lines[places[0]:places[0] + len(old)] = new
            path.write_text("\n".join(lines))
        return None


def read_table(path):
    mutants, mutant = [], None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("mutant ") and mutant is None:
            mutant = Mutant(path, line.removeprefix("mutant "))
            mutants.append(mutant)
        elif not line:
            mutant = None
        elif mutant is None or not mutant.add(line):
            sys.exit(f"{path}:{number}: not a line of a row: {line}")
    for mutant in mutants:
        if not mutant.whole():
            sys.exit(f"{path}: {mutant.name}: needs 'what:', 'build:', 'run:', 'file:' and lines that change")
    return mutants


def read_tables():
    mutants = sorted((m for path in HERE.glob("*.txt") for m in read_table(path)), key=lambda m: m.name)
    for one, other in zip(mutants, mutants[1:]):
        if one.name == other.name:
            sys.exit(f"mutants: {one.table.name} and {other.table.name} both have {one.name}")
    return mutants


def run(command, **options):
    return subprocess.run(command, cwd=TREE, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **options)


def copy_tree():
    """What git tracks or would track; a file that is the same keeps its time, so little is built."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for folder, folders, files in os.walk(TREE):
        if pathlib.Path(folder) == TREE and "build" in folders:
            folders.remove("build")
        for file in files:
            path = pathlib.Path(folder, file)
            if str(path.relative_to(TREE)) not in wanted:
                path.unlink()
    for name in wanted:
        restore(name)


def restore(name):
    source, target = ROOT / name, TREE / name
    content = source.read_bytes()
    if target.is_file() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    shutil.copymode(source, target)


def configure():
    BUILD.mkdir(parents=True, exist_ok=True)
    if (BUILD / "build.ninja").is_file():
        return
    configured = run(["cmake", "--preset", "release", "-DALLOT_CUDA=OFF", "-DALLOT_UNITY=OFF",
                      "-DALLOT_WERROR=OFF"])
    if configured.returncode != 0:
        sys.exit(configured.stdout + "\nmutants: the tree cannot be configured")


def build(targets):
    built = run(["ninja", "-C", str(BUILD), *sorted(targets)])
    return None if built.returncode == 0 else built.stdout[-4000:]


def first_failure(tests):
    """The first command that fails, with its exit code; None if all pass."""
    for test in tests:
        try:
            done = run(["bash", "-c", test], timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return test, "time-out"
        if done.returncode != 0:
            return test, done
    return None


def try_mutant(mutant):
    """(verdict, what killed it, seconds to build, seconds to test)."""
    start = time.monotonic()
    try:
        trouble = mutant.apply()
        if trouble:
            return "DOES NOT APPLY", trouble, 0, 0
        trouble = build(mutant.targets)
        if trouble:
            return "DOES NOT COMPILE", trouble, 0, 0
        built = time.monotonic()
        failure = first_failure(mutant.tests)
        seconds = built - start, time.monotonic() - built
        return ("killed", killer(failure), *seconds) if failure else ("SURVIVED", "", *seconds)
    finally:
        for name in {name for name, _, _ in mutant.changes}:
            if (ROOT / name).is_file():
                restore(name)


def killer(failure):
    test, done = failure
    if done == "time-out":
        return f"{test}: time-out"
    failed = [line.split()[3 if line.startswith("[  FAILED  ]") else 0].rstrip(",") for line in done.stdout.splitlines()
              if line.startswith("[  FAILED  ]") and "." in line]
    return failed[0] if failed else f"{test.split()[0]}: exit code {done.returncode}"


def chosen(options):
    mutants = read_tables()
    if options.quick:
        mutants = [mutant for mutant in mutants if mutant.quick]
    if options.patterns:
        mutants = [m for m in mutants if any(pattern in m.name for pattern in options.patterns)]
    if options.today:
        first = int(time.time()) // 86400 * options.today % len(mutants)
        mutants = (mutants + mutants)[first:first + min(options.today, len(mutants))]
    if not mutants:
        sys.exit("mutants: none has such a name; tests/mutants has them")
    return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only those of the quick part")
    parser.add_argument("--today", type=int, metavar="N", help="only N of them, the next ones tomorrow")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="part of a name")
    mutants = chosen(parser.parse_args())

    copy_tree()
    configure()
    ENVIRONMENT["PATH"] = f"{BUILD / 'bin'}:{os.environ['PATH']}"
    trouble = build({target for mutant in mutants for target in mutant.targets})
    if trouble:
        sys.exit(trouble + "\nmutants: the tree does not build without any fault")
    failure = first_failure(sorted({test for mutant in mutants for test in mutant.tests}))
    if failure:
        sys.exit(f"mutants: fails without any fault: {failure[0]}")

    width = max(len(mutant.name) for mutant in mutants)
    bad = 0
    print(f"{'mutant':{width}}  build   test  outcome")
    for mutant in mutants:
        verdict, why, build_seconds, test_seconds = try_mutant(mutant)
        bad += verdict != "killed"
        outcome = f"killed by {why}" if verdict == "killed" else f"{verdict}: {mutant.what}\n{why}".rstrip()
        print(f"{mutant.name:{width}}  {build_seconds:4.0f} s {test_seconds:4.0f} s  {outcome}", flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} killed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
