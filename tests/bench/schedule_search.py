#!/usr/bin/env python3
"""Held-out accuracy against graded answers: allot's learners beside what people use to search schedules.

One table for each total budget, on recall-7m and the tasks of experiments/recall-layer-budget. A row is a way
to find a schedule, a column the number of training answers that were graded until then, a cell the accuracy on
960 held-out questions of the schedule that the row would deploy by then: the mean over the seeds, with the
95 % t-interval of that mean. Questions and draws of an evaluation are the same for all, so that rows are
paired; the interval is of the search's luck alone.

  LEARNER          a learner of allot with its defaults, by `allot run --synchronous`; the schedule that the last
                   version of at most this number of answers publishes, uniform before the first. reinforce was allot's
                   default before additive: the questions of each episode are its own. reinforce+KEY=VALUE sets
                   spec.KEY as well, as in reinforce+rollout.episodesPerQuestionSet=10.
  optuna-tpe       Optuna's TPESampler, CmaEsSampler (with package cmaes) and RandomSampler with their defaults,
  optuna-cma-es    over a logit in [-4, 4] for each layer: softmax, times the total, rounded by largest remainder.
  random           A trial is one episode of 16 questions, ten trials in a row answer the same ones, as in a
                   question set of allot. The schedule is that of the trial with the best mean reward, uniform
                   before the first. random+episodes=4 gives a trial four episodes, on the questions of four
                   sets; random+logits=2 searches [-2, 2], where fewer schedules starve most layers.
  evolution        An evolution strategy, and CMA-ES (with package cmaes) that compares trials with the others of their
  cma-es           question set alone (search_rivals.py). They deploy their mean, rounded. Ten trials make a set.
  measured         allot's measured schedule, from 64 training questions and without a graded answer: the same in each
                   column. measured+policy.measureQuestions=N measures N questions.
  pyramidkv        the fixed shape of PyramidKV (Cai et al., arXiv 2406.02069, beta = 20): arithmetic, from almost
                   twice the mean in the lowest layer to a twentieth of it in the highest, rounded in the same way.
  uniform          the same for every layer.

A seed is spec.repetition, and the sampler's seed. All ask the same 256 training questions, 16 an episode, and
spend one core each. Results are kept in one JSON file; a second start does what is missing in it.

    schedule_search.py                                   # the whole table
    schedule_search.py --quick                           # one seed and budget, few answers, about a minute
    schedule_search.py --learners additive --searches evolution,cma-es --answers 400,2400
    schedule_search.py --learners '' --searches random,random+episodes=4+logits=2 --budgets 32
    schedule_search.py --by-seed                         # each seed's accuracy instead of mean and interval

Needs the programs of `./run build release allot`, and for some rows packages of PyPI, which it names.
"""
import argparse
import concurrent.futures
import importlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from search_rivals import RIVALS

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = 8
QUESTIONS = 16  # of an episode
EPISODES = 10  # of an update, and trials in a row that share questions
TRAIN_QUESTIONS = 256
OF_SEARCH = {"episodes": 1, "logits": 4.0}  # of a trial; the largest one
PYRAMID_BETA = 20
KV_MIB_OF_PROMPT = 5  # 512 tokens of 8 KiB, and the answer
SAMPLERS = {"optuna-tpe": "TPESampler", "optuna-cma-es": "CmaEsSampler", "random": "RandomSampler"}
# Student's t, two-sided 95 %, from one degree of freedom on.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
EXPERIMENT = f"""\
apiVersion: allot.dev/v1alpha1
kind: Experiment
metadata: {{name: schedule-search}}
spec:
  seed: 7
  model: {{path: experiments/models/recall-7m, device: cpu}}
  task: {{suite: recall, tasks: [niah, multi, track, freq], contextTokens: 512, trainQuestions: {TRAIN_QUESTIONS},
         heldOutQuestions: 4, maxNewTokens: 24}}
  attention: {{prefill: dense, decode: s2anta-sys}}
  policy: {{totalBudget: {LAYERS}}}
  rollout: {{questionsPerEpisode: {QUESTIONS}}}
  update: {{learner: additive, episodesPerUpdate: {EPISODES}}}
  evaluation: {{everyUpdates: 0, schedules: [uniform], methods: [s2anta-sys], answers: none}}
"""
# The same without learning.
MEASUREMENT = "".join(line for line in EXPERIMENT.splitlines(True) if "update:" not in line).replace(
    "schedules: [uniform]", "schedules: [measured]")
MEASURED = "measured"
stopping = threading.Event()


class Failed(Exception):
    """One sentence for the person who started this."""


def package(module, name):
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Failed(f"package {name} is missing: python3 -m pip install {name}, or leave out what needs it")


def say(text):
    print(text, file=sys.stderr, flush=True)


# --- schedules


def rounded(shares, total):
    """total * shares / sum as integers that sum to total: by largest remainder, ties to the lower layer."""
    exact = [total * share / sum(shares) for share in shares]
    schedule = [math.floor(draws) for draws in exact]
    by_remainder = sorted(range(len(exact)), key=lambda layer: schedule[layer] - exact[layer])
    for layer in by_remainder[:total - sum(schedule)]:
        schedule[layer] += 1
    return schedule


def of_logits(logits, total):
    return rounded([math.exp(logit - max(logits)) for logit in logits], total)


def uniform(total):
    return [(layer + 1) * total // LAYERS - layer * total // LAYERS for layer in range(LAYERS)]


def pyramid(total):
    highest = 1 / PYRAMID_BETA
    lowest = 2 - highest
    return rounded([lowest - (lowest - highest) * layer / (LAYERS - 1) for layer in range(LAYERS)], total)


FIXED = {"pyramidkv": pyramid, "uniform": uniform}


# --- programs of allot


class Programs:
    """The programs in `folder`, the experiment that they are given, and a folder for what they write."""

    def __init__(self, folder, scratch):
        self.folder, self.scratch, self.started = folder.resolve(), scratch, []
        self.experiment = os.path.join(scratch, "experiment.yaml")
        pathlib.Path(self.experiment).write_text(EXPERIMENT)
        self.measurement = os.path.join(scratch, "measurement.yaml")
        pathlib.Path(self.measurement).write_text(MEASUREMENT)

    def start(self, program, *arguments, questions, settings, **streams):
        """In the repository's root, from where the model's path starts."""
        path = self.folder / program
        if not path.is_file():
            raise Failed(f"{path} is missing: build it (./run build release allot), or name its folder by --bin")
        sets = [f"--set=spec.{key}={value}" for key, value in settings.items()]
        memory = KV_MIB_OF_PROMPT * questions + 256
        self.started.append(subprocess.Popen(
            [path, *arguments, f"--kv-memory={memory}", *sets], cwd=ROOT, text=True, **streams,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}))
        return self.started[-1]

    def stop(self):
        stopping.set()
        for process in self.started:
            process.terminate()


class Answerer:
    """`allot-worker --schedules`: a schedule in, the mean score of its answers out."""

    def __init__(self, programs, questions, settings):
        self.errors = tempfile.TemporaryFile("w+", dir=programs.scratch)
        self.process = programs.start("allot-worker", "--schedules", programs.experiment, questions=questions,
                                      settings=settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=self.errors)

    def reward(self, **line):
        if stopping.is_set():
            raise Failed("it was stopped")
        try:
            print(json.dumps(line), file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline())["reward"]
        except (BrokenPipeError, ValueError):
            self.errors.seek(0)
            raise Failed("allot-worker --schedules ended: " + last_line(self.errors.read()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def last_line(text):
    return (text.strip().splitlines() or ["it said nothing"])[-1]


# --- searches: each gives the schedule that it would deploy after each number of answers


def parts(method):
    name, *settings = method.split("+")
    return name, dict(setting.split("=", 1) for setting in settings)


def run_to_its_end(programs, method, experiment, folder, settings, *options):
    run = programs.start("allot", "run", experiment, f"--dir={folder}", "--workers=1", *options,
                         questions=TRAIN_QUESTIONS, settings=settings, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE)
    errors = run.communicate()[1]
    if run.returncode:
        raise Failed(f"allot run with {method} ended with {run.returncode}: {last_line(errors)}")


def search_by_learner(programs, method, total, seed, checkpoints):
    learner, more = parts(method)
    settings = {"policy.totalBudget": total, "repetition": seed, "update.learner": learner,
                "update.episodesPerUpdate": EPISODES, **more}
    questions = int(settings.get("rollout.questionsPerEpisode", QUESTIONS))
    answers_of_update = questions * int(settings["update.episodesPerUpdate"])
    settings["update.maxUpdates"] = max(1, checkpoints[-1] // answers_of_update)
    with tempfile.TemporaryDirectory(dir=programs.scratch) as folder:
        folder = os.path.join(folder, "run")
        run_to_its_end(programs, method, programs.experiment, folder, settings, "--synchronous")
        with open(os.path.join(folder, "history.jsonl")) as history:
            return published_at(history, total, checkpoints)


def search_by_measurement(programs, method, total, seed, checkpoints):
    settings = {"policy.totalBudget": total, "repetition": seed, **parts(method)[1]}
    with tempfile.TemporaryDirectory(dir=programs.scratch) as folder:
        folder = os.path.join(folder, "run")
        run_to_its_end(programs, method, programs.measurement, folder, settings)
        with open(os.path.join(folder, "evaluations.jsonl")) as evaluations:
            units = [json.loads(line)["unit"] for line in evaluations]
    schedule = next(unit["schedule"] for unit in units if unit["schedule_name"] == MEASURED)
    return {checkpoint: schedule for checkpoint in checkpoints}


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
    name, more = parts(method)
    settings = {**OF_SEARCH, **more}
    episodes, largest = int(settings["episodes"]), float(settings["logits"])
    optuna = package("optuna", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, SAMPLERS[name])(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried, found = [], {}
    with Answerer(programs, TRAIN_QUESTIONS, {"repetition": seed}) as answerer:
        for checkpoint in checkpoints:
            while (len(tried) + 1) * episodes * QUESTIONS <= checkpoint:
                trial = study.ask()
                first_set = len(tried) // EPISODES * episodes
                tried.append(of_logits([trial.suggest_float(f"layer {layer}", -largest, largest)
                                        for layer in range(LAYERS)], total))
                study.tell(trial, statistics.fmean(answerer.reward(schedule=tried[-1], set=first_set + episode)
                                                   for episode in range(episodes)))
            found[checkpoint] = tried[study.best_trial.number] if tried else uniform(total)
    return found


def search_by_rival(programs, method, total, seed, checkpoints):
    rival, found, sets = RIVALS[method](LAYERS, EPISODES, seed), {}, 0
    with Answerer(programs, TRAIN_QUESTIONS, {"repetition": seed}) as answerer:
        for checkpoint in checkpoints:
            while (sets + 1) * EPISODES * QUESTIONS <= checkpoint:
                rewards = [answerer.reward(schedule=of_logits(logits, total), set=sets) for logits in rival.ask()]
                others = [(sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
                rival.tell([reward - other for reward, other in zip(rewards, others)])
                sets += 1
            found[checkpoint] = of_logits(rival.mean, total) if sets else uniform(total)
    return found


# --- what has been found


class Results:
    """schedules["METHOD/TOTAL/SEED/ANSWERS"], and accuracy of a schedule, in a file that is always whole."""

    def __init__(self, path, options):
        self.path, self.options, self.lock = path, options, threading.Lock()
        asked = {"experiment": EXPERIMENT, "held_out_questions": options.held_out}
        self.data = json.loads(path.read_text()) if path.exists() else {**asked, "schedules": {}, "accuracy": {}}
        if any(self.data[key] != value for key, value in asked.items()):
            raise Failed(f"{path} is of other questions: name another file by --results")

    def add(self, part, found):
        with self.lock:
            self.data[part].update(found)
            beside = self.path.with_suffix(".part")
            beside.write_text(json.dumps(self.data, indent=1))
            beside.replace(self.path)

    def schedules(self, method, total, answers):
        """One a seed; None where there is none yet."""
        if method in FIXED:
            return [FIXED[method](total)]
        return [self.data["schedules"].get(f"{method}/{total}/{seed}/{answers}") for seed in self.options.seeds]

    def accuracies(self, method, total, answers):
        return [self.data["accuracy"][json.dumps(schedule)] for schedule in self.schedules(method, total, answers)]

    def missing_searches(self):
        return list(dict.fromkeys(
            (method, total, seed) for total, answers in self.cells() for method in self.options.methods
            for seed, schedule in zip(self.options.seeds, self.schedules(method, total, answers)) if not schedule))

    def missing_evaluations(self):
        wanted = {json.dumps(schedule): schedule for total, answers in self.cells()
                  for method in self.options.methods for schedule in self.schedules(method, total, answers)}
        return [schedule for key, schedule in wanted.items() if key not in self.data["accuracy"]]

    def cells(self):
        return [(total, answers) for total in self.options.budgets for answers in self.options.answers]


def search(programs, results, method, total, seed):
    name = parts(method)[0]
    by = (search_by_optuna if name in SAMPLERS else search_by_rival if name in RIVALS
          else search_by_measurement if name == MEASURED else search_by_learner)
    found = by(programs, method, total, seed, results.options.answers)
    results.add("schedules", {f"{method}/{total}/{seed}/{answers}": found[answers] for answers in found})
    return f"{method}, total budget {total}, seed {seed}"


def evaluate(programs, results, schedules):
    """In one process: the prompts are read once."""
    held_out = results.options.held_out
    with Answerer(programs, held_out, {"task.heldOutQuestions": held_out}) as answerer:
        for number, schedule in enumerate(schedules, 1):
            results.add("accuracy", {json.dumps(schedule): answerer.reward(schedule=schedule, heldOut=True)})
            say(f"  {number}/{len(schedules)} {schedule}")
    return f"{len(schedules)} schedules on {held_out} held-out questions"


def carry_out(programs, results):
    jobs = results.options.jobs
    searches = results.missing_searches()
    say(f"{len(searches)} searches to do")
    together(programs, jobs, [(search, programs, results, *place) for place in searches])
    schedules = results.missing_evaluations()
    say(f"{len(schedules)} schedules to evaluate")
    parts = [schedules[job::jobs] for job in range(jobs)]
    together(programs, jobs, [(evaluate, programs, results, part) for part in parts if part])


def together(programs, jobs, calls):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        begun = [pool.submit(*call) for call in calls]
        try:
            for number, done in enumerate(concurrent.futures.as_completed(begun), 1):
                say(f"[{number}/{len(calls)}, {time.monotonic() - start:.0f} s] {done.result()}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            programs.stop()
            raise


# --- table


def estimate(values):
    """Mean, and half of its 95 % interval."""
    if len(values) < 2:
        return values[0], 0.0
    error = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), T_95[len(values) - 2] * error


def cell(values, by_seed):
    if by_seed or len(values) < 2:
        return " ".join(f"{value:.3f}" for value in values)
    mean, half = estimate(values)
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def table(results, total):
    options = results.options
    head = [f"total budget {total}", *(f"{answers} answers" for answers in options.answers)]
    rows = [[method, *(cell(results.accuracies(method, total, answers), options.by_seed)
                       for answers in options.answers)] for method in options.methods]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


# --- options


def words(text):
    return [word for word in text.split(",") if word]


def numbers(text):
    return sorted({int(word) for word in words(text)})


def seeds(text):
    return range(1, min(int(text), len(T_95) + 1) + 1)


def learners(text):
    for word in words(text):
        if not all("=" in setting for setting in word.split("+")[1:]):
            raise argparse.ArgumentTypeError(f"{word}: settings are +KEY=VALUE")
    return words(text)


def searches(text):
    for word in learners(text):
        name, settings = parts(word)
        if name == MEASURED:
            continue
        allowed = OF_SEARCH.keys() if name in SAMPLERS else set()
        if name not in [*SAMPLERS, *RIVALS, *FIXED] or not settings.keys() <= allowed:
            raise argparse.ArgumentTypeError(f"{word}: is none of {', '.join([*SAMPLERS, *RIVALS, MEASURED, *FIXED])}; "
                                             f"the first {len(SAMPLERS)} may have +episodes=N and +logits=X")
        if not (settings.get("episodes", "1").isdigit() and all(float(value) >= 1 for value in settings.values())):
            raise argparse.ArgumentTypeError(f"{word}: episodes is an integer from 1 on, logits a number from 1 on")
    return words(text)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--learners", type=learners, default="reinforce,additive", help="values of spec.update.learner [%(default)s]")
    add("--searches", type=searches, default=",".join([*SAMPLERS, *RIVALS, MEASURED, *FIXED]), help="other rows [%(default)s]")
    add("--budgets", type=numbers, default="8,16", help="total budgets, a table for each [%(default)s]")
    add("--answers", type=numbers, default="400,800,1600,2400,4000,8000,16000", help="columns [%(default)s]")
    add("--seeds", type=seeds, default="5", metavar="N", help="seeds 1 to N, at most 10 [%(default)s]")
    add("--held-out", type=int, default=960, metavar="N", help="questions of an evaluation [%(default)s]")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N",
        help="searches or evaluations at a time, of a core and up to 5 GiB each [as many as cores]")
    add("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="the programs' folder [build/release/bin]")
    add("--results", type=pathlib.Path, default=ROOT / "build/schedule_search.json",
        help="the file of results [build/schedule_search.json]")
    add("--by-seed", action="store_true", help="print each seed's accuracy instead of mean and interval")
    add("--quick", action="store_true", help="one seed, budget 8, 160 and 480 answers, 32 held-out questions, "
        "results in a file of its own")
    options = parser.parse_args()
    if options.quick:
        options.budgets, options.answers, options.seeds, options.held_out = [8], [160, 480], [1], 32
        options.results = options.results.with_suffix(".quick.json")
    options.methods = options.learners + options.searches
    return options


def main():
    options = read_options()
    if any(parts(method)[0] in ("optuna-cma-es", "cma-es") for method in options.methods):
        package("cmaes", "cmaes")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    results = Results(options.results, options)
    with tempfile.TemporaryDirectory(prefix="schedule-search-") as scratch:
        carry_out(Programs(options.bin, scratch), results)
    print("\n\n".join(table(results, total) for total in options.budgets))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except (Failed, KeyboardInterrupt) as failure:
        sys.exit(f"schedule_search.py: {str(failure) or 'stopped; start it again, and it goes on'}")
