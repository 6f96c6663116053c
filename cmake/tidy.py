#!/usr/bin/env python3
"""clang-tidy over a build folder's sources, except those that passed before as they are now.

    tidy.py BUILD FILE...

A file has passed before if clang-tidy, its settings, the compile command, the file and every header
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
import subprocess
import sys

COMMAND = ["clang-tidy", "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
NEEDS_CUDA_TORCH = re.compile(r'#include (<c10/cuda/|"model/cuda_model.h")|TEST.*DecoderCuda')
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


class Sources:
    def __init__(self, build):
        self.root = os.getcwd()
        headers = recorded_headers(build)
        self.made_of = {}  # file -> (compile command, files)
        commands = json.loads(pathlib.Path(build, "compile_commands.json").read_text())
        self.built = {entry["file"] for entry in commands}
        for entry in commands:
            output = re.search(r" -o (\S+)", entry["command"])
            if output and output[1] in headers:
                # Relative ones, which ccache may make of them, are so to the build folder.
                files = [os.path.normpath(os.path.join(entry["directory"], path))
                         for path in headers[output[1]]]
                self.made_of[entry["file"]] = (entry["command"], files)
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        self.settings = version + pathlib.Path(".clang-tidy").read_bytes()

    def left_out(self, file):
        if os.path.join(self.root, file) in self.built:
            return False
        return NEEDS_CUDA_TORCH.search(pathlib.Path(file).read_text()) is not None

    def key(self, file):
        """None: unknown what the file is made of."""
        command, files = self.made_of.get(os.path.join(self.root, file), (None, None))
        if command is None:
            return None
        total = hashlib.sha256(self.settings)
        total.update(command.replace(self.root, "").encode())
        try:
            for path in files:
                total.update(f"{path.replace(self.root, '')} {digest(path)}\n".encode())
        except OSError:
            return None
        return total.hexdigest()


def tidy(build, file):
    done = subprocess.run([*COMMAND, "-p", build, file], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, [line for line in lines if not NOISE.search(line)]


def main():
    build, files = sys.argv[1], sys.argv[2:]
    sources = Sources(build)
    absent = [file for file in files if sources.left_out(file)]
    if absent:
        print(f"left out, since this LibTorch has no CUDA: {' '.join(absent)}", flush=True)
    files = [file for file in files if file not in absent]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    passes = pathlib.Path(home, "allot", "tidy")
    passes.mkdir(parents=True, exist_ok=True)
    keys = {file: sources.key(file) for file in files}
    due = [file for file in files if not keys[file] or not (passes / keys[file]).exists()]
    print(f"{len(files) - len(due)} passed before as they are, {len(due)} to do", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(tidy, build, file): file for file in due}
        for done, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            status, lines = job.result()
            if lines:
                print("\n".join(lines), flush=True)
            if status != 0:
                failed += 1
            elif keys[jobs[job]] and not lines:
                (passes / keys[jobs[job]]).touch()
            if done % 20 == 0:
                print(f"{done} of {len(due)}", flush=True)
    if failed:
        sys.exit(f"./run: clang-tidy found errors in {failed} files")


if __name__ == "__main__":
    main()
