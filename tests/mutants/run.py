#!/usr/bin/env python3
"""Plants one fault at a time and demands that a test fails: what ./run mutants calls.

Each *.patch beside this file is one fault. Its first lines say what to build and to run:
  # What:  Adam without bias correction
  # Build: core_test                      targets
  # Run:   core_test --gtest_filter=...   at least one such line has to fail; {bin} is not needed
  # Quick: yes                            in the part that every CI run does

  run.py [--quick] [--today N] [PATTERN...]   those whose name holds one of the patterns

The tree is copied to build/mutants/tree and built there, in its own build/release, without CUDA: a
fault never stands in the repository. A patch that does not apply, or a fault that does not compile,
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
    def __init__(self, path):
        self.path = path
        self.name = path.stem
        fields = {"What": [], "Build": [], "Run": [], "Quick": []}
        self.files = []
        for line in path.read_text().splitlines():
            key, _, value = line.removeprefix("# ").partition(":")
            if line.startswith("# ") and key in fields:
                fields[key].append(value.strip())
            if line.startswith("+++ b/"):
                self.files.append(line.removeprefix("+++ b/").split("\t")[0])
        self.what = " ".join(fields["What"])
        self.targets = " ".join(fields["Build"]).split()
        self.tests = fields["Run"]
        self.quick = fields["Quick"] == ["yes"]
        if not (self.what and self.targets and self.tests and self.files):
            sys.exit(f"{path}: needs the lines '# What:', '# Build:', '# Run:' and a patch")


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
        applied = run(["git", "apply", "-C1", str(mutant.path)])
        if applied.returncode != 0:
            return "DOES NOT APPLY", applied.stdout.strip(), 0, 0
        trouble = build(mutant.targets)
        if trouble:
            return "DOES NOT COMPILE", trouble, 0, 0
        built = time.monotonic()
        failure = first_failure(mutant.tests)
        seconds = built - start, time.monotonic() - built
        return ("killed", killer(failure), *seconds) if failure else ("SURVIVED", "", *seconds)
    finally:
        for name in mutant.files:
            restore(name)


def killer(failure):
    test, done = failure
    if done == "time-out":
        return f"{test}: time-out"
    failed = [line.split()[3 if line.startswith("[  FAILED  ]") else 0].rstrip(",") for line in done.stdout.splitlines()
              if line.startswith("[  FAILED  ]") and "." in line]
    return failed[0] if failed else f"{test.split()[0]}: exit code {done.returncode}"


def chosen(options):
    mutants = [Mutant(path) for path in sorted(HERE.glob("*.patch"))]
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


main()
