#!/usr/bin/env python3
"""Runs the commands that README.md and docs/ show in blocks of code.

    commands.py SOURCE BIN           runs them with the programs in BIN
    commands.py SOURCE --list        prints each command with what is done with it

A command that needs something which a bare machine lacks is named with what it needs, and counted. Every
other one is run as it stands, in a folder with the files that documents name: my.yaml, a finished run
runs/a, a run that goes on at runs/latest, an export. A command without a rule is a failure: it would be
neither run nor counted.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = ("allot ", "build/", "./run", "kubectl", "cmake", "python", "pip", "export ", "source ", "mlflow",
            "CMAKE_PREFIX_PATH=", "docker", "ALLOT_")
# What a command needs, by the first pattern that it matches. Everything else is run.
NEEDS = (
    ("a registry", r"--registry|\./run images"),
    ("a cluster", r"kubectl|--context|redis://redis:|--component"),
    ("a GPU", r"build/cuda|--preset cuda|build/cuda|h200\.json"),
    ("the network", r"pip install|python3? -m venv|mlflow|\./run smollm2"),
    ("files of one's own", r"Llama-3\.1|--tokens 8192,|HumanEval|models/Llama|dense\.jsonl|samples_a|backup/models"),
    ("the whole test suite", r"\./run (test|check|demo|fuzz|mutants|python|bench|monitor)"),
    ("a shell's own file", r"source <\(|~/\."),
    ("a build of the source tree", r"cmake --preset"),
)
# Commands that end with another code, or not by themselves, by a pattern.
SERVES = r"allot serve"
FAILS = {r"allot set spec\.policy\.totalBudget=16": 64,
         # This run has finished.
         r"allot (resume|stop) runs/a": 64}
# What is done before a command, in place of starting the run that goes on.
BEFORE = {r"allot (run --resume|wait)$": "allot run my.yaml",
          r"--for goal": "allot run my.yaml --set spec.stop.goal=0.01 --set spec.evaluation.everyUpdates=5",
          r"allot export --out backup/recall": "rm -r backup/recall"}
# Long ones in small: the option that is added.
SMALL = ((r"allot run experiments/\S+|allot run my\.yaml --(dir|workers)(?!.*--resume)",
          " --set spec.update.maxUpdates=2 --set spec.task.heldOutQuestions=8 --set spec.evaluation.repeats=1"),
         (r"allot bench kernels$", " --keys 1024 --methods dense"),
         (r"calibrate sample-attention \S+$",
          " --questions 2 --alpha-columns 0.9 --alpha-slashes 0.9 --chunks 1 --dir $(mktemp -d)/runs"),
         (r"calibrate sample-attention .*--alpha-columns 0.9,0.95", " --questions 2 --dir $(mktemp -d)/runs"))
SMALLER = (r"(allot bench kernels) --keys 32768", r"\1 --keys 1024")
MY_YAML = """apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {name: my}
spec:
  model: {path: experiments/models/recall-7m, dtype: float32, device: cpu}
  task: {suite: recall, tasks: [niah], contextTokens: 128, trainQuestions: 20, heldOutQuestions: 20, maxNewTokens: 8}
  attention: {prefill: dense, decode: s2anta-sys}
  policy: {totalBudget: 8}
  rollout: {questionsPerEpisode: 1}
  update: {learner: reinforce, episodesPerUpdate: 2, maxUpdates: 120}
  evaluation: {everyUpdates: 0, repeats: 1, schedules: [uniform, learned], methods: [dense, s2anta-sys]}
"""
Command = collections.namedtuple("Command", "document line text needs")


def blocks(text):
    """(line, body) of each block of code without a language, or of a shell's."""
    inside, start, language = None, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"^```(\w*)", line)
        if mark and inside is None:
            inside, start, language = [], number + 1, mark.group(1)
        elif mark:
            if language in ("", "sh", "bash", "console"):
                yield start, inside
            inside = None
        elif inside is not None:
            inside.append(line)


def commands_of(lines):
    """(offset, command): what follows "$ " where a block has such lines, else every line if the first
    one is a command. A line that ends with a backslash goes on; a synopsis' second line is left out."""
    prompts = any(line.startswith("$ ") for line in lines)
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    if not prompts and not first.startswith(PROGRAMS):
        return
    pending = ""
    for offset, line in enumerate(lines):
        if prompts:
            if not line.startswith("$ "):
                continue
            line = line[2:]
        elif not pending and (not line.strip() or line.startswith(("#", " "))):
            continue
        line = pending + line
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        pending = ""
        yield offset, re.sub(r"\s+# .*$", "", line).strip()


def commands(root):
    documents = ["README.md"] + sorted(str(file.relative_to(root)) for file in (root / "docs").rglob("*.md"))
    for document in documents:
        for start, lines in blocks((root / document).read_text()):
            for offset, text in commands_of(lines):
                needs = next((name for name, pattern in NEEDS if re.search(pattern, text)), "")
                yield Command(document, start + offset, text, needs)


class Place:
    """A folder like a checkout, with a built tree and the runs that documents speak of."""

    def __init__(self, root, programs):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="allot-commands-"))
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                            "HOME": str(self.folder)}
        shutil.copytree(root / "experiments", self.folder / "experiments")
        (self.folder / "my.yaml").write_text(MY_YAML)
        (self.folder / "team").mkdir()
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/bin").symlink_to(programs)
        self.live, self.live_folder = None, None

    def prepare(self):
        for command in ("allot run my.yaml --dir runs/a", "allot export runs/a --out backup/recall"):
            done = self.run(command, 300)
            if done.returncode:
                sys.exit(f"commands.py: {command}: {done.stdout[-2000:]}")
        self.start_live()

    def start_live(self):
        """Keeps a run going at runs/latest for the commands that control one."""
        latest = (self.folder / "runs/latest").resolve()
        if self.live and self.live.poll() is None and latest == self.live_folder:
            return
        self.stop_live()
        self.live = subprocess.Popen(
            ["allot", "run", "my.yaml", "--workers", "1", "--set", "spec.update.maxUpdates=900000"],
            cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            here = (self.folder / "runs/latest").resolve()
            done = self.run("allot status -o json", 60)
            version = json.loads(done.stdout)["version"] if done.returncode == 0 else 0
            if here != latest and version >= 101:
                self.live_folder = here
                return
            time.sleep(0.5)
        sys.exit(f"commands.py: the run at runs/latest does not get on: {done.stdout[-1000:]}")

    def run(self, text, limit):
        try:
            return subprocess.run(["bash", "-c", text], cwd=self.folder, env=self.environment, timeout=limit,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace")
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(text, 124, (late.stdout or b"").decode(errors="replace"), "")

    def serves(self, text):
        """Whether it still runs after three seconds, and ends well when it is told to."""
        with subprocess.Popen(text.split(), cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            time.sleep(3)
            running = process.poll() is None
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(text, 0 if running and process.returncode in (0, 130) else 1, out)

    def stop_live(self):
        if self.live:
            self.live.send_signal(signal.SIGINT)
            try:
                self.live.wait(60)
            except subprocess.TimeoutExpired:
                self.live.kill()

    def close(self):
        self.stop_live()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_all(root, programs):
    place, faults, done, seen = Place(root, programs), 0, 0, set()
    try:
        place.prepare()
        for command in commands(root):
            if command.needs or command.text in seen:
                continue
            seen.add(command.text)
            before = next((before for pattern, before in BEFORE.items() if re.search(pattern, command.text)), None)
            if before:
                done_before = place.run(before, 300)
                if done_before.returncode:
                    sys.exit(f"commands.py: {before}: {done_before.stdout[-2000:]}")
            else:
                place.start_live()
            text = re.sub(*SMALLER, command.text)
            for pattern, option in SMALL:
                if re.search(pattern, text):
                    text += option
            began = time.monotonic()
            result = place.serves(text) if re.search(SERVES, text) else place.run(text, 900)
            expected = next((code for pattern, code in FAILS.items() if re.search(pattern, text)), 0)
            done += 1
            print(f"{time.monotonic() - began:6.1f} s  {command.document}:{command.line}: {command.text}", flush=True)
            if result.returncode != expected:
                faults += 1
                print(f"FAILED: exit code {result.returncode}, not {expected}:\n{result.stdout[-1500:]}", flush=True)
    finally:
        place.close()
    return done, faults


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    every = list(commands(root))
    left = collections.Counter(command.needs for command in every if command.needs)
    if sys.argv[2] == "--list":
        for command in every:
            print(f"{command.document}:{command.line}: {command.needs or 'run'}: {command.text}")
    else:
        done, faults = run_all(root, pathlib.Path(sys.argv[2]).resolve())
        if faults:
            sys.exit(f"{faults} of {done} commands failed")
        print(f"{done} commands run")
    print("not run, since they need " + "; ".join(f"{need}: {count}" for need, count in sorted(left.items())))


if __name__ == "__main__":
    main()
