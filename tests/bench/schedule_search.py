#!/usr/bin/env python3
"""Held-out accuracy against graded answers: allot's learners beside what people use to search schedules.

One table for each total budget, on recall-7m and the tasks of experiments/recall-layer-budget. A row is a way
to find a schedule, a column the number of training answers that were graded until then, a cell the accuracy on
960 held-out questions of the schedule that the row would deploy by then: the mean over the seeds, with the
95 % t-interval of that mean. Questions and draws of an evaluation are the same for all, so that rows are
paired; the interval is of the search's luck alone.

  LEARNER          a learner of allot with its defaults, by `allot run --synchronous`; the schedule that the last
                   version of at most so many answers publishes, uniform before the first. reinforce was allot's
                   default before additive: the questions of each episode are its own. reinforce+KEY=VALUE sets
                   spec.KEY as well, as in reinforce+rollout.episodesPerQuestionSet=10.
  optuna-tpe       Optuna's TPESampler, CmaEsSampler (with package cmaes) and RandomSampler with their defaults,
  optuna-cma-es    over a logit in [-4, 4] for each layer: softmax, times the total, rounded by largest remainder.
  random           A trial is one episode of 16 questions, ten trials in a row answer the same ones, as in a
                   question set of allot. The schedule is that of the trial with the best mean reward. random:4
                   gives a trial four episodes, on the questions of four sets.
  pyramidkv        the fixed shape of PyramidKV (Cai et al., arXiv 2406.02069, beta = 20): arithmetic, from almost
                   twice the mean in the lowest layer to a twentieth of it in the highest, rounded likewise.
  uniform          the same for every layer.

A seed is spec.repetition, and the sampler's seed. All ask the same 256 training questions, 16 an episode, and
spend one core each. Results are kept in one JSON file; a second start does what is missing in it.

    schedule_search.py --picture accuracy.png            # the whole table
    schedule_search.py --quick                           # one seed and budget, few answers, about a minute
    schedule_search.py --learners additive,evolution --searches '' --answers 400,2400
    schedule_search.py --learners '' --searches random,random:4 --budgets 32
    schedule_search.py --by-seed                         # each seed's accuracy instead of mean and interval

Needs the programs of `./run build release allot`, and for some rows packages of PyPI, which it names.
"""
import argparse
import collections
import concurrent.futures
import importlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = 8
QUESTIONS = 16  # of an episode
EPISODES = 10  # of an update, and trials in a row that share questions
LARGEST_LOGIT = 4.0
PYRAMID_BETA = 20
TRAIN_QUESTIONS = 256
KV_MIB_OF_PROMPT = 5  # 512 tokens of 8 KiB, and the answer
SAMPLERS = {"optuna-tpe": "TPESampler", "optuna-cma-es": "CmaEsSampler", "random": "RandomSampler"}
PACKAGES = {"optuna": "optuna", "cmaes": "cmaes", "matplotlib.pyplot": "matplotlib"}
# Student's t, two-sided 95 %, from one degree of freedom on.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
EXPERIMENT = f"""\
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {{name: schedule-search}}
spec:
  seed: 7
  model: {{path: {ROOT}/experiments/models/recall-7m, device: cpu}}
  task: {{suite: recall, tasks: [niah, multi, track, freq], contextTokens: 512, trainQuestions: {TRAIN_QUESTIONS},
         heldOutQuestions: 4, maxNewTokens: 24}}
  attention: {{prefill: dense, decode: s2anta-sys}}
  policy: {{totalBudget: {LAYERS}}}
  rollout: {{questionsPerEpisode: {QUESTIONS}}}
  update: {{learner: additive, episodesPerUpdate: {EPISODES}}}
  evaluation: {{everyUpdates: 0, schedules: [uniform], methods: [s2anta-sys], answers: none}}
"""
stopping = threading.Event()


class Failed(Exception):
    """One sentence for the person who started this."""


def package(module):
    try:
        return importlib.import_module(module)
    except ImportError:
        name = PACKAGES[module]
        raise Failed(f"package {name} is missing: python3 -m pip install {name}, or leave out what needs it")


# --- schedules


def rounded(shares, total):
    """total * shares as integers that sum to total: by largest remainder, ties to the lower layer."""
    exact = [total * share / sum(shares) for share in shares]
    schedule = [math.floor(draws) for draws in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (schedule[i] - exact[i], i))
    for layer in by_remainder[:total - sum(schedule)]:
        schedule[layer] += 1
    return schedule


def of_logits(logits, total):
    return rounded([math.exp(logit - max(logits)) for logit in logits], total)


def uniform(total):
    return rounded([1] * LAYERS, total)


def pyramid(total):
    highest = 1 / PYRAMID_BETA
    lowest = 2 - highest
    return rounded([lowest - (lowest - highest) * layer / (LAYERS - 1) for layer in range(LAYERS)], total)


FIXED = {"pyramidkv": pyramid, "uniform": uniform}


# --- programs of allot


class Programs:
    """Where the programs are, and the experiment that they are given, in a folder that is ours."""

    def __init__(self, folder, scratch):
        self.scratch = pathlib.Path(scratch)
        self.experiment = self.scratch / "experiment.yaml"
        self.experiment.write_text(EXPERIMENT)
        self.path = {name: folder / name for name in ("allot", "allot-worker", "allot-aggregator")}
        for path in self.path.values():
            if not path.is_file():
                raise Failed(f"{path} is missing: build it (./run build release allot), or name its folder by --bin")

    def command(self, program, *arguments, questions, settings):
        sets = [f"--set=spec.{key}={value}" for key, value in settings.items()]
        return [self.path[program], *arguments, "--kv-memory", str(KV_MIB_OF_PROMPT * questions + 256), *sets]


class Answerer:
    """`allot-worker --schedules`: a schedule in, the mean score of its answers out."""

    def __init__(self, programs, questions, **settings):
        self.errors = tempfile.TemporaryFile("w+", dir=programs.scratch)
        self.process = subprocess.Popen(
            programs.command("allot-worker", "--schedules", programs.experiment, questions=questions,
                             settings=settings),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})

    def reward(self, **line):
        if stopping.is_set():
            raise Failed("it was stopped")
        try:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())["reward"]
        except (BrokenPipeError, ValueError):
            self.process.wait()
            self.errors.seek(0)
            raise Failed("allot-worker --schedules ended: " + last_line(self.errors.read()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]


# --- searches: each gives the schedule that it would deploy after each number of answers


def search_by_learner(programs, method, total, seed, checkpoints):
    learner, *more = method.split("+")
    settings = {"policy.totalBudget": total, "repetition": seed, "update.learner": learner,
                "update.episodesPerUpdate": EPISODES, **dict(setting.split("=", 1) for setting in more)}
    answers_of_update = QUESTIONS * int(settings["update.episodesPerUpdate"])
    settings["update.maxUpdates"] = max(1, checkpoints[-1] // answers_of_update)
    with tempfile.TemporaryDirectory(dir=programs.scratch) as folder:
        run = pathlib.Path(folder) / "run"
        done = subprocess.run(
            programs.command("allot", "run", programs.experiment, "--dir", run, "--workers", "1", "--synchronous",
                             questions=TRAIN_QUESTIONS, settings=settings),
            capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"allot run with {method} ended with {done.returncode}: {last_line(done.stderr)}")
        return published_at((run / "history.jsonl").read_text().splitlines(), total, checkpoints)


def published_at(history, total, checkpoints):
    found = {checkpoint: uniform(total) for checkpoint in checkpoints}
    answers = 0
    for line in history:
        update = json.loads(line)
        answers += sum(len(result["scores"]) for result in update["results"])
        schedule = published(update["policy"], total)
        found.update({checkpoint: schedule for checkpoint in checkpoints if answers <= checkpoint})
    return found


def published(policy, total):
    if "frontier" in policy:
        return policy["frontier"]["budgets"][0]["learned"]
    return of_logits(policy["logits"], total)


def search_by_optuna(programs, method, total, seed, checkpoints):
    name, _, episodes = method.partition(":")
    episodes = int(episodes or 1)
    answers_of_trial = QUESTIONS * episodes
    optuna = package("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, SAMPLERS[name])(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried, found = [], {}
    with Answerer(programs, TRAIN_QUESTIONS, repetition=seed) as answerer:
        for checkpoint in checkpoints:
            while (len(tried) + 1) * answers_of_trial <= checkpoint:
                trial = study.ask()
                logits = [trial.suggest_float(f"layer {layer}", -LARGEST_LOGIT, LARGEST_LOGIT)
                          for layer in range(LAYERS)]
                first_set = len(tried) // EPISODES * episodes
                tried.append(of_logits(logits, total))
                study.tell(trial, statistics.fmean(answerer.reward(schedule=tried[-1], set=first_set + episode)
                                                   for episode in range(episodes)))
            found[checkpoint] = tried[study.best_trial.number] if tried else uniform(total)
    return found


def search(programs, method, total, seed, checkpoints):
    by_optuna = method.partition(":")[0] in SAMPLERS
    return (search_by_optuna if by_optuna else search_by_learner)(programs, method, total, seed, checkpoints)


# --- what has been found


class Results:
    """schedules["METHOD/TOTAL/SEED/ANSWERS"], and accuracy of a schedule, in a file that is always whole."""

    def __init__(self, path, held_out):
        self.path, self.lock = path, threading.Lock()
        setting = {"experiment": EXPERIMENT.replace(str(ROOT), "."), "held_out_questions": held_out}
        self.data = json.loads(path.read_text()) if path.exists() else {**setting, "schedules": {}, "accuracy": {}}
        if any(self.data[key] != value for key, value in setting.items()):
            raise Failed(f"{path} is of other questions: name another file by --results")

    def add(self, part, found):
        with self.lock:
            self.data[part].update(found)
            beside = self.path.with_suffix(".part")
            beside.write_text(json.dumps(self.data, indent=1))
            beside.replace(self.path)

    def schedule(self, *place):
        return self.data["schedules"].get("/".join(map(str, place)))

    def accuracy(self, schedule):
        return schedule and self.data["accuracy"].get(json.dumps(schedule))

    def accuracies(self, method, total, answers, seeds):
        if method in FIXED:
            return [self.accuracy(FIXED[method](total))]
        return [self.accuracy(self.schedule(method, total, seed, answers)) for seed in range(1, seeds + 1)]


class Plan:
    """What is to be done for the options, several things at a time."""

    def __init__(self, options, programs, results):
        self.options, self.programs, self.results = options, programs, results

    def missing_searches(self):
        o = self.options
        return [(method, total, seed) for seed in range(1, o.seeds + 1) for total in o.budgets
                for method in o.methods if method not in FIXED and
                not all(self.results.schedule(method, total, seed, answers) for answers in o.answers)]

    def missing_schedules(self):
        o = self.options
        wanted = [FIXED[method](total) for method in o.methods if method in FIXED for total in o.budgets]
        wanted += [self.results.schedule(method, total, seed, answers) for method in o.methods
                   if method not in FIXED for total in o.budgets for seed in range(1, o.seeds + 1)
                   for answers in o.answers]
        missing = {json.dumps(schedule): schedule for schedule in wanted if self.results.accuracy(schedule) is None}
        return list(missing.values())

    def search(self, method, total, seed):
        found = search(self.programs, method, total, seed, self.options.answers)
        self.results.add("schedules", {f"{method}/{total}/{seed}/{answers}": schedule
                                       for answers, schedule in found.items()})
        return f"{method}, total budget {total}, seed {seed}"

    def evaluate(self, schedules):
        """In one process: the prompts are read once."""
        held_out = self.options.held_out
        with Answerer(self.programs, held_out, **{"task.heldOutQuestions": held_out}) as answerer:
            for schedule in schedules:
                accuracy = answerer.reward(schedule=schedule, heldOut=True)
                self.results.add("accuracy", {json.dumps(schedule): accuracy})
        return f"{len(schedules)} schedules on {held_out} held-out questions"

    def carry_out(self):
        searches = self.missing_searches()
        say(f"{len(searches)} searches to do")
        self.together([(self.search, *place) for place in searches])
        schedules = self.missing_schedules()
        say(f"{len(schedules)} schedules to evaluate")
        parts = [schedules[i::self.options.jobs] for i in range(self.options.jobs)]
        self.together([(self.evaluate, part) for part in parts if part])

    def together(self, calls):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            begun = {pool.submit(timed, *call) for call in calls}
            try:
                for number, done in enumerate(concurrent.futures.as_completed(begun), 1):
                    what, seconds = done.result()
                    say(f"[{number}/{len(calls)}] {what}: {seconds:.0f} s")
            except BaseException:
                stopping.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def timed(function, *arguments):
    start = time.monotonic()
    return function(*arguments), time.monotonic() - start


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- table and picture


Estimate = collections.namedtuple("Estimate", "mean low high")


def estimate(values):
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(mean, mean, mean)
    half = T_95[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def cell(values, by_seed):
    if by_seed or len(values) < 2:
        return " ".join(f"{value:.3f}" for value in values)
    return "{:.3f} [{:.3f}, {:.3f}]".format(*estimate(values))


def table(options, results, total):
    lines = [f"Total budget {total}:", "",
             "| method | " + " | ".join(f"{answers} answers" for answers in options.answers) + " |",
             "| --- " * (len(options.answers) + 1) + "|"]
    for method in options.methods:
        cells = [cell(results.accuracies(method, total, answers, options.seeds), options.by_seed)
                 for answers in options.answers]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(options, results):
    pyplot = package("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    figure, axes = pyplot.subplots(1, len(options.budgets), figsize=(6.5 * len(options.budgets), 5.2), squeeze=False)
    for axis, total in zip(axes[0], options.budgets):
        for number, method in enumerate(options.methods):
            draw_row(axis, options, results, method, total, f"C{number}", 1.015 ** (number - 3))
        axis.set(title=f"total budget {total}", xlabel="graded answers", xscale="log",
                 ylabel=f"held-out accuracy, n = {options.held_out}")
        axis.set_xticks(options.answers, [f"{answers:,}" for answers in options.answers])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.suptitle(f"Mean of {options.seeds} seeds with its 95 % interval")
    figure.tight_layout()
    figure.savefig(options.picture, dpi=110)


def draw_row(axis, options, results, method, total, colour, shift):
    """Rows are shifted a little, so that their intervals do not hide each other."""
    points = [estimate(results.accuracies(method, total, answers, options.seeds)) for answers in options.answers]
    if method in FIXED:
        axis.axhline(points[0].mean, label=method, color=colour, linestyle="--", linewidth=1.2)
        return
    axis.errorbar([answers * shift for answers in options.answers], [point.mean for point in points],
                  [[point.mean - point.low for point in points], [point.high - point.mean for point in points]],
                  label=method, color=colour, marker="o", markersize=4, capsize=2, linewidth=1.5)


# --- options


def words(text):
    return [word for word in text.split(",") if word]


def numbers(text):
    found = sorted({int(word) for word in words(text)})
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError("numbers from 1 on, with commas between them, as in 8,16")
    return found


def searches(text):
    for word in words(text):
        name, colon, episodes = word.partition(":")
        known = name in SAMPLERS and (episodes.isdigit() and int(episodes) > 0 or not colon)
        if not known and word not in FIXED:
            raise argparse.ArgumentTypeError(f"{word} is none of {', '.join([*SAMPLERS, *FIXED])}")
    return words(text)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--learners", type=words, default="reinforce,additive", help="values of spec.update.learner [%(default)s]")
    add("--searches", type=searches, default=",".join([*SAMPLERS, *FIXED]), help="other rows [%(default)s]")
    add("--budgets", type=numbers, default="8,16", help="total budgets, a table for each [%(default)s]")
    add("--answers", type=numbers, default="400,800,1600,2400,4000,8000,16000",
        help="numbers of graded answers, a column for each [%(default)s]")
    add("--seeds", type=int, default=5, choices=range(1, len(T_95) + 2), metavar="N", help="[%(default)s]")
    add("--held-out", type=int, default=960, metavar="N", help="questions of an evaluation [%(default)s]")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N",
        help="searches at a time, of one core and some GiB each [as many as cores]")
    add("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="the programs' folder [build/release/bin]")
    add("--results", type=pathlib.Path, default=ROOT / "build/schedule_search.json",
        help="the file of results [build/schedule_search.json]")
    add("--picture", type=pathlib.Path, help="also draw accuracy against answers into this PNG (needs matplotlib)")
    add("--by-seed", action="store_true", help="print each seed's accuracy instead of mean and interval")
    add("--quick", action="store_true", help="one seed, budget 8, 160 and 480 answers, 32 held-out questions, "
        "results in a file of its own")
    options = parser.parse_args()
    if options.quick:
        options.budgets, options.answers, options.seeds, options.held_out = [8], [160, 480], 1, 32
        options.results = options.results.with_suffix(".quick.json")
    options.methods = options.learners + options.searches
    return options


def main():
    options = read_options()
    if options.picture:
        package("matplotlib.pyplot")
    if any(method.startswith("optuna-cma-es") for method in options.methods):
        package("cmaes")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    results = Results(options.results, options.held_out)
    with tempfile.TemporaryDirectory(prefix="schedule-search-") as scratch:
        Plan(options, Programs(options.bin.resolve(), scratch), results).carry_out()
    print("\n\n".join(table(options, results, total) for total in options.budgets))
    if options.picture:
        draw(options, results)


if __name__ == "__main__":
    try:
        main()
    except (Failed, KeyboardInterrupt) as failure:
        sys.exit(f"schedule_search.py: {failure or 'stopped; start it again, and it goes on'}")
