#!/usr/bin/env python3
"""clang-tidy over a build folder's sources, except those that passed before as they are now.

    tidy.py [--analyzer] BUILD FILE...

Sources that the build compiles as one (ALLOT_UNITY) are checked as one. With --analyzer each is
checked by itself, by clang's static analyzer as well: three times the work, for every night.

A source has passed before if clang-tidy, its settings, the compile command, the file and every header
that it includes (as ninja recorded them) are the same to the byte. Passes are remembered outside
the tree, in $XDG_CACHE_HOME/allot/tidy, so that a fresh clone has them, too. Files that are built
with LibTorch's CUDA alone are left out where the build has none.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

# Options of g++ alone are no mistake.
COMMAND = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option",
           "--extra-arg=-Wno-unused-command-line-argument"]
ANALYZER = "--checks=clang-analyzer-core.*,clang-analyzer-cplusplus.*"
NEEDS_CUDA_TORCH = re.compile(r'#include (<c10/cuda/|"worker/model/cuda_(model|prompt).h")|TEST.*DecoderCuda')
INCLUDED_SOURCE = re.compile(r'^#include "(.+\.cpp)"$', re.MULTILINE)
NOISE = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed|^Use -header-filter|^$")


@functools.lru_cache(maxsize=None)
def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def recorded_headers(build):
    """Object file -> what it was made of, as ninja knows it."""
    headers, current = {}, None
    listing = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                             check=True).stdout
    for line in listing.splitlines():
        if line.startswith("    "):
            current.append(line.strip())
        elif ": #deps" in line:
            name, rest = line.split(": #deps", 1)
            current = headers.setdefault(name, []) if "(VALID)" in rest else []
    return headers


class Unit:
    """What the compiler compiles at once: a source, or one of the build's that includes several."""

    def __init__(self, entry, headers):
        self.file, self.folder, self.command = entry["file"], entry["directory"], entry["command"]
        output = re.search(r" -o (\S+)", self.command)
        made_of = headers.get(output[1]) if output else None
        # Relative ones, which ccache may make of them, are so to the build folder. None: unknown.
        self.made_of = made_of and [os.path.normpath(os.path.join(self.folder, path))
                                    for path in made_of]

    def sources(self, root, build):
        if not self.file.startswith(os.path.join(os.path.abspath(build), "")):
            return [self.file]
        try:
            text = pathlib.Path(self.file).read_text()
        except OSError:  # not generated yet
            return []
        return [os.path.join(root, path) for path in INCLUDED_SOURCE.findall(text)]


class Job:
    """One call of clang-tidy."""

    def __init__(self, file, unit, analyzer):
        self.file, self.unit, self.analyzer = file, unit, analyzer

    def command(self, build):
        options = [*COMMAND, ANALYZER] if self.analyzer else COMMAND
        if not self.unit or self.unit.file == self.file:
            return [*options, "-p", build, self.file]
        words = shlex.split(self.unit.command)
        first = next(i for i, word in enumerate(words) if word.startswith("-"))
        flags = [word for word in words[first:] if word != self.unit.file]
        return [*options, self.file, "--", *flags]

    def key(self, settings, root):
        """None: unknown what it is made of."""
        if not self.unit or not self.unit.made_of:
            return None
        total = hashlib.sha256(settings)
        total.update(f"{self.analyzer} {self.file} {self.unit.command}".replace(root, "").encode())
        try:
            for path in self.unit.made_of:
                total.update(f"{path.replace(root, '')} {digest(path)}\n".encode())
        except OSError:
            return None
        return total.hexdigest()

    def run(self, build):
        done = subprocess.run(self.command(build), capture_output=True, text=True,
                              cwd=self.unit.folder if self.unit else None)
        lines = (done.stdout + done.stderr).splitlines()
        return done.returncode, [line for line in lines if not NOISE.search(line)]


def jobs_for(build, files, analyzer):
    root = os.getcwd()
    headers = recorded_headers(build)
    unit_of = {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        unit = Unit(entry, headers)
        for source in unit.sources(root, build):
            unit_of.setdefault(source, unit)
    jobs, absent = {}, []
    for file in files:
        path = os.path.join(root, file)
        unit = unit_of.get(path)
        if not unit and NEEDS_CUDA_TORCH.search(pathlib.Path(file).read_text()):
            absent.append(file)
            continue
        at_once = unit.file if unit and not analyzer else path
        jobs.setdefault(at_once, Job(at_once, unit, analyzer))
    if absent:
        print(f"left out, since this LibTorch has no CUDA: {' '.join(absent)}", flush=True)
    return list(jobs.values())


def main():
    analyzer = sys.argv[1] == "--analyzer"
    build, files = os.path.abspath(sys.argv[1 + analyzer]), sys.argv[2 + analyzer:]
    jobs = jobs_for(build, files, analyzer)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    passes = pathlib.Path(home, "allot", "tidy")
    passes.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([COMMAND[0], "--version"], capture_output=True, check=True).stdout
    settings = version + pathlib.Path(".clang-tidy").read_bytes()
    keys = {job: job.key(settings, os.getcwd()) for job in jobs}
    due = [job for job in jobs if not keys[job] or not (passes / keys[job]).exists()]
    # The largest first, so that no core idles at the end.
    due.sort(key=lambda job: -len(job.unit.made_of or []) if job.unit else 0)
    print(f"{len(jobs) - len(due)} passed before as they are, {len(due)} to do", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(job.run, build): job for job in due}
        for done, each in enumerate(concurrent.futures.as_completed(running), 1):
            status, lines = each.result()
            if lines:
                print("\n".join(lines), flush=True)
            key = keys[running[each]]
            if status != 0:
                failed += 1
            elif key and not lines:
                (passes / key).touch()
            if done % 20 == 0:
                print(f"{done} of {len(due)}", flush=True)
    if failed:
        sys.exit(f"./run: clang-tidy found errors in {failed} files")


if __name__ == "__main__":
    main()
