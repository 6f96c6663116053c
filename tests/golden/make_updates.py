#!/usr/bin/env python3
"""Policy-gradient updates with every option, computed with 50 decimal digits from the definitions in
core/learning/gradient.h: what tests/core/golden_updates_test.cpp holds applyUpdate to.

  make_updates.py > tests/golden/updates.json
  make_updates.py --check      is updates.json what this script makes?
"""
import json
import pathlib
import random
import sys
from decimal import Decimal as D, getcontext

getcontext().prec = 50
LAG_CLASSES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]  # their last lags; one more for what is older


def softmax(logits):
    powers = [x.exp() for x in logits]
    return [power / sum(powers) for power in powers]


def entropy(policy):
    return -sum(p * p.ln() for p in policy)


def log_probability(schedule, logits, least):
    return sum((n - least) * p.ln() for n, p in zip(schedule, softmax(logits)))


def mean(numbers):
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def updated(case):
    """The record's fields and the next state, as Decimals."""
    settings, staleness, state, results = case["update"], case["staleness"], case["state"], case["results"]
    least, budget = case["policy"]["min_per_layer"], case["policy"]["total_budget"]
    logits = [D(x) for x in state["logits"]]
    layers = range(len(logits))
    now = softmax(logits)
    rewards = [D(r["reward"]) for r in results]

    # w_i = min(rhoBar, pi_now(n_i) / pi_then(n_i)), where results are corrected for their age.
    weights = [D(1) for _ in results]
    if staleness["mode"] == "truncated-is":
        ratios = [(log_probability(r["schedule"], logits, least) - D(r["behaviour_log_prob"])).exp()
                  for r in results]
        weights = [min(D(staleness["rho_bar"]), ratio) for ratio in ratios]

    if settings["baseline"] == "leave-one-out":
        baselines = [mean(rewards[:i] + rewards[i + 1:]) for i in range(len(rewards))]
    elif settings["baseline"] == "batch-mean":
        baselines = [mean(rewards)] * len(rewards)
    elif state["has_moving_baseline"]:
        baselines = [D(state["moving_baseline"])] * len(rewards)
    else:
        baselines = [mean(rewards)] * len(rewards)

    # The share of the freely drawn reads that a layer got, less what the policy expects. Of learner
    # santa the reads themselves: (s - N p) in Algorithm 1 of the SANTA paper.
    drawn = budget - least * len(logits)
    bonus = D(settings["entropy_bonus"])
    gradient = []
    for l in layers:
        surprise = [D(r["schedule"][l] - least) / drawn - now[l] for r in results]
        if settings.get("learner") == "santa":
            surprise = [D(r["schedule"][l] - least) - drawn * now[l] for r in results]
        g = sum(w * (reward - b) * s for w, reward, b, s in zip(weights, rewards, baselines, surprise))
        dentropy = -now[l] * (now[l].ln() + entropy(now))
        gradient.append(g / sum(weights) + bonus * dentropy)

    steps = state["optimizer_steps"] + 1
    rate = D(settings["learning_rate"])
    first, second = [D(m) for m in state["first_moment"]], [D(v) for v in state["second_moment"]]
    if settings["optimizer"] == "adam":  # Kingma and Ba, 2015, algorithm 1, uphill
        decay1, decay2, epsilon = D("0.9"), D("0.999"), D("1e-8")
        first = [decay1 * m + (1 - decay1) * g for m, g in zip(first, gradient)]
        second = [decay2 * v + (1 - decay2) * g * g for v, g in zip(second, gradient)]
        change = [m / (1 - decay1**steps) / ((v / (1 - decay2**steps)).sqrt() + epsilon)
                  for m, v in zip(first, second)]
    else:
        change = gradient
    new_logits = [x + rate * c for x, c in zip(logits, change)]
    after = softmax(new_logits)

    lags = [state["version"] - r["policy_version"] for r in results]
    lag_counts = list(state["lag_counts"])
    for lag in lags:
        lag_counts[sum(lag > last for last in LAG_CLASSES)] += 1
    moving = mean(rewards)
    if state["has_moving_baseline"]:
        moving = D("0.9") * D(state["moving_baseline"]) + D("0.1") * mean(rewards)
    record = {
        "version": state["version"] + 1,
        "weights": weights,
        "baselines": baselines,
        "mean_reward": mean(rewards),
        "gradient_norm": sum(g * g for g in gradient).sqrt(),
        "step_kl_nats": sum(p * (p / q).ln() for p, q in zip(now, after)),
        "entropy_nats": entropy(after),
        "effective_sample_size_ratio": sum(weights)**2 / (len(weights) * sum(w * w for w in weights)),
        "mean_lag_updates": D(sum(lags)) / len(lags),
    }
    following = {
        "version": state["version"] + 1,
        "logits": new_logits,
        "first_moment": first,
        "second_moment": second,
        "moving_baseline": moving,
        "has_moving_baseline": True,
        "episodes": state["episodes"] + len(results),
        "worker_seconds": D(state["worker_seconds"]) + sum(D(r["seconds"]) for r in results),
        "optimizer_steps": steps,
        "lag_counts": lag_counts,
    }
    return record, following


def make(name, seed, *, optimizer="adam", baseline="leave-one-out", bonus=0.0, mode="truncated-is", rho_bar=1.0,
         least=0, layers=5, budget=12, rate=0.75, version=40, steps=None, moving=None, lags=(0, 1, 2, 5),
         spread=1.0, count=8, drift=0.35, learner=None):
    draw = random.Random(seed)
    logits = [spread * draw.uniform(-1, 1) for _ in range(layers)]
    steps = version if steps is None else steps
    state = {
        "version": version,
        "logits": logits,
        "first_moment": [draw.uniform(-0.02, 0.02) if steps else 0.0 for _ in range(layers)],
        "second_moment": [draw.uniform(1e-4, 1e-3) if steps else 0.0 for _ in range(layers)],
        "moving_baseline": 0.0 if moving is None else moving,
        "has_moving_baseline": moving is not None,
        "episodes": version * count,
        "worker_seconds": 12.5 * version,
        "optimizer_steps": steps,
        "lag_counts": [version * count] + [0] * len(LAG_CLASSES),
    }
    results = []
    for i in range(count):
        lag = lags[i % len(lags)]
        # The policy of that version: the present one, and a little else for each update in between.
        then = [D(x + (draw.uniform(-drift, drift) if lag else 0.0)) for x in logits]
        schedule = [least] * layers
        for l in draw.choices(range(layers), [float(p) for p in softmax(then)], k=budget - least * layers):
            schedule[l] += 1
        results.append({
            "policy_version": version - lag,
            "schedule": schedule,
            "behaviour_log_prob": float(log_probability(schedule, then, least)),
            "reward": draw.randrange(17) / 16,
            "seconds": draw.uniform(0.5, 3),
        })
    case = {
        "name": name,
        "policy": {"total_budget": budget, "min_per_layer": least},
        "update": {"optimizer": optimizer, "learning_rate": rate, "baseline": baseline, "entropy_bonus": bonus},
        "staleness": {"mode": mode, "rho_bar": rho_bar, "max_lag": 6},
        "state": state,
        "results": results,
    }
    if learner:
        case["update"]["learner"] = learner
    record, following = updated(case)
    if mode == "truncated-is" and any(lags):
        at_most = sum(w == D(rho_bar) for w in record["weights"])
        assert 0 < at_most < count, f"{name}: {at_most} of {count} weights are truncated"
    return {**case, "record": record, "next": following}


def cases():
    return [
        make("the first update of a run", 1, version=0, steps=0, lags=(0,), spread=0.0),
        make("adam, leave-one-out, weights up to 1", 102),
        make("weights up to 0.5", 20, rho_bar=0.5, drift=1.2),
        make("weights up to 3", 504, rho_bar=3.0, drift=0.8),
        make("results of older policies taken as fresh", 5, mode="none"),
        make("old results dropped, the others taken as fresh", 6, mode="drop", lags=(0, 1, 2, 6)),
        make("sgd", 7, optimizer="sgd", rate=1.5),
        make("sgd, moving average, none so far", 8, optimizer="sgd", baseline="moving-average", rate=1.5),
        make("moving average", 9, baseline="moving-average", moving=0.3125),
        make("moving average, none so far", 10, baseline="moving-average", version=0, steps=0, lags=(0,)),
        make("leave-one-out beside a moving average", 11, moving=0.7),
        make("entropy bonus", 112, bonus=0.25),
        make("entropy bonus, sgd, far from uniform", 13, bonus=2.0, optimizer="sgd", spread=6.0, rate=0.5),
        make("a least of 1 a layer", 14, least=1),
        make("a least of 2 a layer, sgd, bonus, weights up to 3", 515, least=2, layers=4, budget=20, optimizer="sgd",
             bonus=0.125, rho_bar=3.0, rate=1.0, drift=0.8),
        make("a fork: more steps than versions", 16, version=3, steps=157, moving=0.4, lags=(0, 1, 2, 3)),
        make("lags of every class", 17, version=400, count=11, lags=(0, 1, 2, 3, 8, 16, 17, 64, 100, 256, 257),
             baseline="moving-average", moving=0.5),
        make("28 layers", 18, layers=28, budget=112, drift=0.15),
        make("two results", 19, count=2, lags=(1, 4), rho_bar=1.0),
        make("the batch's mean", 20, baseline="batch-mean", moving=0.3125, mode="none"),
        make("Algorithm 1 of the SANTA paper", 21, learner="santa", optimizer="sgd", baseline="batch-mean", rate=0.02,
             moving=0.4, mode="none", layers=28, budget=224, count=23, drift=0.15),
    ]


def text():
    # A Decimal as the nearest double, whose shortest decimals come back; a line a case.
    return "[\n" + ",\n".join(json.dumps(case, default=float) for case in cases()) + "\n]\n"


def main():
    made = text()
    if sys.argv[1:] != ["--check"]:
        sys.stdout.write(made)
        return
    path = pathlib.Path(__file__).with_name("updates.json")
    if path.read_text() != made:
        sys.exit(f"{path} is not what {__file__} makes: run it and look at the difference")


main()
