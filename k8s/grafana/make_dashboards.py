#!/usr/bin/env python3
"""Writes the dashboards beside this file: experiment.json, fleet.json, compare.json.

They are kept in the repository, since ConfigMaps and people import JSON; change them here and run
this again (a test compares). --check writes nothing and fails if they are not what this would
write. Nothing but Python's own library is needed.
"""
import json
import pathlib
import sys

from panels import (annotation, bars, dashboard, heatmap, limits, lines, override, query, row,
                    stat, table, variable, xy)

HERE = pathlib.Path(__file__).resolve().parent
# Two runs of one name are two: a run is its namespace (none on a laptop), its experiment and its id.
E = 'namespace=~"$namespace", experiment=~"$experiment", run_id=~"$run"'
RUN = "namespace, experiment, run_id"
ONE = "{{experiment}} {{run_id}}"
RATE = "[$__rate_interval]"
CELL = "schedule, method, total_budget"
# Cells without a budget read what they read: a point, not a curve.
BUDGETED = 'schedule!~"dense|adaptive"'
RED_ABOVE_ZERO = limits((None, "text"), (1e-9, "red"))


def variables(metric, many, last=()):
    """namespace, experiment and run, each of what the one before leaves."""
    space = 'namespace=~"$namespace"'
    return [variable("namespace", "namespace", f"label_values({metric}, namespace)", multi=True),
            variable("experiment", "experiments" if many else "experiment",
                     f"label_values({metric}{{{space}}}, experiment)", multi=many),
            # ULIDs: the newest first.
            variable("run", "runs" if many else "run",
                     f'label_values({metric}{{{space}, experiment=~"$experiment"}}, run_id)',
                     multi=many, sort=2), *last]


def recorded(name):
    """A series that k8s/prometheus/rules.yaml records, which alerts watch."""
    return f"max({name}{{{E}}})"


def by_labels(by):
    return f"by ({by}) " if by else ""


def series(metric, more=""):
    return f"{metric}{{{E}{', ' if more else ''}{more}}}"


def gauge(metric, by="", more=""):
    """A figure of the leading aggregator; max, so that there is one even if two answer."""
    return f"max {by_labels(by)}({series(metric, more)})"


def rate(metric, by="", more=""):
    return f"sum {by_labels(by)}(rate({series(metric, more)}{RATE}))"


def share(part, whole, match=""):
    """0 where there is nothing at all, not 0/0."""
    return f"{part} / {match}clamp_min({whole}, 1e-9)"


def quantile(q, metric, by=""):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', f'le, {by}' if by else 'le')})"


def quantiles(qs, metric, by="", name=""):
    label = f"{name or '{{' + by + '}}'} " if by else ""
    return [query(quantile(q, metric, by), f"{label}p{round(100 * q)}") for q in qs]


# --- panels that stand in more than one place


def accuracy_chart():
    """Accuracy, its interval as two thin series more, and dense attention as a level line."""
    def curve(part, end):
        expr = gauge(f"allot_evaluation_accuracy{part}_ratio", CELL, BUDGETED)
        if not end:
            return f'label_join({expr}, "series", " ", "schedule", "method")'
        named = f'label_replace({expr}, "end", "{end}", "", "")'
        return f'label_join({named}, "series", " ", "schedule", "method", "end")'
    budgets = gauge("allot_evaluation_accuracy_ratio", "total_budget", BUDGETED)
    dense = gauge("allot_evaluation_accuracy_ratio", more='schedule="dense"')
    level = f'label_replace(0 * {budgets} + on () group_left () {dense}, "series", "dense", "", "")'
    thin = override("byRegexp", "/ (low|high)( Value)?$/", custom_show="lines", custom_lineWidth=1,
                    custom_lineStyle={"fill": "dash", "dash": [4, 4]},
                    custom_hideFrom={"legend": True, "tooltip": False, "viz": False})
    level_line = override("byRegexp", "/^dense( Value)?$/", custom_show="lines",
                          color={"mode": "fixed", "fixedColor": "text"})
    return xy("Held-out accuracy against total budget",
              "Newest complete evaluation of each schedule and method; thin lines: ends of the "
              "95 % interval.",
              " or ".join([curve("", ""), curve("_low", "low"), curve("_high", "high"), level]),
              "total_budget", "total budget (reads per head and step)", "accuracy", log2=True,
              overrides=[thin, level_line])


def latency_chart():
    """The time becomes a label by count_values, so that one query has both numbers."""
    accuracy = gauge("allot_evaluation_accuracy_ratio", CELL)
    seconds = gauge("allot_evaluation_decode_seconds_per_token", CELL)
    expr = (f'{accuracy} * on ({CELL}) group_left (seconds) '
            f'count_values by ({CELL}) ("seconds", {seconds})')
    return xy("Latency against accuracy",
              "One point a cell of the evaluation: up and to the left is better. Times are of "
              "whatever workers did it.",
              f'label_join({expr}, "series", " ", "schedule", "method")',
              "seconds", "decode time a token", "accuracy", x_unit="s")


def against_density(title, text, y, y_label, density):
    expr = (f'{y} * on ({CELL}) group_left (density) '
            f'count_values by ({CELL}) ("density", {density})')
    return xy(title, text, f'label_join({expr}, "series", " ", "schedule", "method")',
              "density", "share of the blocks read in the prefill", y_label, x_unit="percentunit")


def state():
    return stat("State", "What the run does.", f'{gauge("allot_experiment_state", "state")} == 1',
                "{{state}}", name_only=True, noValue="no aggregator")


def workers():
    heard = gauge("allot_workers", f"{RUN}, state", 'state!="failed"')
    return stat("Workers", "Workers heard of in the last 45 s.", f"sum({heard}) or vector(0)",
                "workers")


def workers_by_state():
    heard = gauge("allot_workers", f"{RUN}, state")
    return lines("Workers", "Workers heard of in the last 45 s, by what they do.",
                 [query(f"sum by (state) ({heard})", "{{state}}")], stack=True, decimals=0)


def unreachable():
    heard = f"last_over_time({series('allot_build_info')}[1h])"
    return stat("Unreachable", "Processes that answered within the last hour and do not now.",
                f"count(up == 0 and on (instance) {heard}) or vector(0)", "unreachable",
                thresholds=RED_ABOVE_ZERO)


def gpu_worker_hours():
    seconds = gauge("allot_worker_seconds_total", f"{RUN}, device", 'device!="cpu"')
    return stat("GPU worker hours", "Time that workers with a GPU spent on consumed episodes since the run "
                "began; 0 if no worker has one.", f"sum({seconds}) / 3600 or vector(0)", "hours",
                "suffix: h", decimals=1)


# --- the dashboard of one experiment


def experiment_head():
    done = f'{gauge("allot_policy_version")} / {gauge("allot_experiment_updates_max")}'
    updates = stat("Updates done", "Share of spec.update.maxUpdates.", done, "updates",
                   "percentunit", decimals=0)
    reward = stat("Reward", "Mean reward of the newest update's episodes.",
                  gauge("allot_update_reward_ratio"), "reward", "percentunit", decimals=1)
    learned, uniform = (
        gauge("allot_evaluation_accuracy_ratio", "method, total_budget", f'schedule="{name}"')
        for name in ("learned", "uniform"))
    at_budget = f'count_values("total_budget", {gauge("allot_experiment_total_budget_reads")})'
    gain = stat("Learned over uniform", "Held-out accuracy of the learned schedule minus the "
                "uniform one's, at the total budget that is learned for.",
                f"max({learned} - {uniform} and on (total_budget) {at_budget})",
                "learned - uniform", "percentunit", decimals=1, noValue="not evaluated")
    names = {"0": {"text": "no"}, "1": {"text": "yes"}}
    refused = stat("Edit refused", "Whether the experiment file holds an edit that the run cannot "
                   "take; allot status says which.", gauge("allot_experiment_edit_refused"),
                   "refused", thresholds=RED_ABOVE_ZERO,
                   mappings=[{"type": "value", "options": names}])
    return [(4, [(3, made) for made in (state(), updates, reward, gain, workers(), gpu_worker_hours(),
                                        refused, unreachable())])]


def experiment_findings():
    columns = [("accuracy", "percentunit", "allot_evaluation_accuracy_ratio"),
               ("low", "percentunit", "allot_evaluation_accuracy_low_ratio"),
               ("high", "percentunit", "allot_evaluation_accuracy_high_ratio"),
               ("questions", "short", "allot_evaluation_questions"),
               ("KV read", "percentunit", "allot_evaluation_kv_read_ratio"),
               ("decode time a token", "s", "allot_evaluation_decode_seconds_per_token")]
    cells = table("Evaluated cells",
                  "Newest complete evaluation of each cell, with the ends of its 95 % interval.",
                  [(name, unit, gauge(metric, CELL)) for name, unit, metric in columns],
                  ["schedule", "method", "total_budget"], [("accuracy", True)])
    policy = heatmap("Policy over time", "Share of the total budget that the policy gives a layer.",
                     gauge("allot_policy_layer_probability_ratio", "layer"), "{{layer}}",
                     "percentunit", "layer")
    schedule = bars("Learned schedule", "Draws of each layer in the learned schedule.",
                    gauge("allot_policy_layer_reads", "layer"), "none",
                    "layer ${__data.fields.layer}", "layer")
    entropy = lines("Policy entropy", "Entropy over the layers: it falls as the policy decides.",
                    [query(gauge("allot_policy_entropy_nats"), "entropy")], "suffix: nats")
    # One for each layer, so that rows merge.
    beats = (gauge("allot_policy_budget_reads", "total_budget, layer") + " * 0 + on (total_budget) "
             "group_left () " + gauge("allot_policy_beats_uniform", "total_budget"))
    by_budget = table("Learned at each total budget", "Reads of each layer in the schedule that is "
                      "published for the budget: one that beats its rival (uniform or, where a price "
                      "buys no uniform schedule, measured) or else the best guess, uniform or measured.",
                      [("reads", "short", gauge("allot_policy_budget_reads", "total_budget, layer")),
                       ("beats its rival", "bool_yes_no", beats)],
                      ["total_budget", "layer"], [("total_budget", False)])
    return [row("What is found"),
            (11, [(13, accuracy_chart()), (11, cells)]),
            (9, [(10, policy), (5, schedule), (4, entropy), (5, by_budget)])]


def experiment_prompts():
    density = gauge("allot_evaluation_prefill_density_ratio", CELL)
    accuracy = against_density(
        "Accuracy against density of the prefill", "One point a cell of the evaluation: up and to "
        "the left is better.", gauge("allot_evaluation_accuracy_ratio", CELL), "accuracy", density)
    first = against_density(
        "First token against density of the prefill", "Mean time of a prompt until its first token, "
        "on whatever workers read it: down and to the left is better.",
        gauge("allot_evaluation_prefill_seconds", CELL), "seconds", density)
    columns = [("density", "percentunit", "allot_evaluation_prefill_density_ratio"),
               ("first token", "s", "allot_evaluation_prefill_seconds"),
               ("selection", "s", "allot_evaluation_prefill_selection_seconds"),
               ("mass kept", "percentunit", "allot_evaluation_prefill_kept_mass_ratio"),
               ("least", "percentunit", "allot_evaluation_prefill_least_kept_mass_ratio")]
    cells = table("How prompts are read", "Means of a prompt; mass kept is the share of a query's "
                  "exact attention on the blocks that are kept for it.",
                  [(name, unit, gauge(metric, CELL)) for name, unit, metric in columns],
                  ["schedule", "method", "total_budget"], [("density", True)])
    return [row("The prefill"), (9, [(7, accuracy), (7, first), (10, cells)])]


def experiment_learning():
    reward = lines("Reward", "Mean reward of each update's episodes, and the moving average of those "
                   "before it.", [query(gauge("allot_update_reward_ratio"), "reward"),
                                  query(gauge("allot_update_baseline_ratio"), "before"),
                                  query(recorded("allot:reward:mean30m"), "mean of 30 min")],
                   "percentunit")
    rewards = lines("Rewards of episodes", "Quantiles of consumed episodes' rewards.",
                    quantiles((0.1, 0.5, 0.9), "allot_rollout_reward_ratio"), "percentunit")
    step = lines("Step", "Kullback-Leibler divergence of each update's step.",
                 [query(gauge("allot_policy_step_kl_nats"), "KL")], "suffix: nats")
    gradient = lines("Gradient", "Euclidean norm of each update's gradient.",
                     [query(gauge("allot_policy_gradient_norm"), "norm")])
    ess = lines("Effective sample size", "Of each update's importance weights, over its episodes.",
                [query(gauge("allot_update_effective_sample_size_ratio"), "ESS"),
                 query(recorded("allot:effective_sample_size:mean30m"), "mean of 30 min")],
                "percentunit",
                max=1, limit=limits((None, "red"), (0.3, "transparent")))
    return [row("How it learns"),
            (8, [(12, reward), (12, rewards)]),
            (8, [(8, step), (8, gradient), (8, ess)])]


def experiment_results():
    lag = lines("Lag", "Updates between the version that an episode used and the one that consumed "
                "it.", [*quantiles((0.5, 0.95), "allot_result_policy_lag_updates"),
                        query(recorded("allot:policy_lag:p95_30m"), "p95 of 30 min")],
                limit=limits((None, "transparent"), (16, "red")))
    outcomes = lines("Results", "Results taken from the inbox, by what became of them.",
                     [query(rate("allot_results_total", "outcome"), "{{outcome}}")], "suffix: /s")
    inbox = lines("Inbox", "Results that wait, how many an update takes, and how many there is room for.",
                  [query(gauge("allot_inbox_entries"), "waiting"),
                   query(gauge("allot_experiment_episodes_per_update"), "an update takes"),
                   query(gauge("allot_inbox_capacity_entries"), "room")])
    devices = lines("Devices at work", "Seconds of consumed episodes a second, by device.",
                    [query(rate("allot_worker_seconds_total", "device"), "{{device}}")])
    age = lines("Age of results", "Median time from an episode's begin to its end (in_flight) and "
                "on to the commit (queued).",
                quantiles((0.5,), "allot_result_age_seconds", "stage"), "s")
    update = lines("Update", "Time to compute and commit one update.",
                   quantiles((0.5, 0.95), "allot_update_duration_seconds"), "s")
    read = share(rate("allot_worker_value_rows_read_total"),
                 rate("allot_worker_value_rows_dense_total"))
    rows_read = lines("Value rows read", "Of those that dense attention would have read.",
                      [query(read, "read")], "percentunit")
    units = lines("Evaluation", "Units planned and not done.",
                  [query(gauge("allot_evaluation_units"), "to do")])
    tickets = lines("Tickets without a result", "Of an asynchronous run, up to the highest one that has "
                    "counted.", [query(gauge("allot_tickets_reached"), "tickets"),
                                 query(gauge("allot_tickets_unanswered"), "without a result")])
    audits = lines("Audits", "Answers that a second worker gave again, by what came of them.",
                   [query(rate("allot_audits_total", "outcome"), "{{outcome}}"),
                    query(gauge("allot_audit_liars"), "workers that lie")], "suffix: /s")
    asked = rate("allot_worker_questions_total", "instance")
    right = share(rate("allot_worker_questions_total", "instance", 'result="correct"'), asked)
    tokens = share(rate("allot_worker_tokens_total", "instance", 'phase="decode"'), asked)
    seconds = share(rate("allot_worker_episode_duration_seconds_sum", "instance"),
                    rate("allot_worker_episode_duration_seconds_count", "instance"))
    compared = table("Workers side by side", "Of questions in episodes, as each worker counts them: the "
                     "share answered correctly, tokens decoded, and the time of an episode.",
                     [("correct", "percentunit", right), ("tokens", "short", tokens),
                      ("episode", "s", seconds)], ["instance"], [("correct", False)])
    return [row("How results come in"),
            (8, [(8, lag), (8, outcomes), (8, inbox)]),
            (8, [(8, workers_by_state()), (8, devices), (8, age)]),
            (8, [(8, update), (8, rows_read), (8, units)]),
            (8, [(6, audits), (6, tickets), (12, compared)])]


def experiment():
    changes = f"changes({series('allot_experiment_state')}{RATE})"
    updates = f"changes({series('allot_policy_version')}{RATE})"
    return dashboard(
        "allot-experiment", "allot / experiment", "What one experiment has found, how it gets on.",
        variables("allot_experiment_info", False),
        [*experiment_head(), *experiment_findings(), *experiment_prompts(), *experiment_learning(), *experiment_results()],
        [annotation("State", f"sum by (state) ({changes}) > 0", "{{state}}", True, "purple"),
         annotation("Updates", f"sum({updates}) > 0", "update", False, "blue")])


# --- the dashboard of everything that runs

BEGAN_AGAIN = f"changes({series('allot_process_start_timestamp_seconds')}"


def pushed(by=""):
    return rate("allot_worker_episodes_total", by, 'outcome="pushed"')


def fleet_head():
    active = gauge("allot_experiment_state", RUN, 'state=~"running|evaluating"')
    running = stat("Running", "Runs that learn or evaluate.",
                   f"count({active} == 1) or vector(0)", "running")
    episodes = stat("Episodes", "Episodes pushed.", pushed(), "episodes", "suffix: /s", decimals=1)
    tokens = stat("Tokens", "Tokens through the models, prompts included.",
                  rate("allot_worker_tokens_total"), "tokens", "suffix: /s", decimals=0)
    units = stat("Evaluation units", "Planned and not done.",
                 f'sum({gauge("allot_evaluation_units", RUN)}) or vector(0)', "units")
    restarts = stat("Restarts", "Processes that began again under the same address, in the time "
                    "range shown.", f"sum({BEGAN_AGAIN}[$__range])) or vector(0)", "restarts")
    return [(4, [(3, made) for made in (running, workers(), episodes, tokens, gpu_worker_hours(), units,
                                        restarts, unreachable())])]


def fleet_throughput():
    episodes = lines("Episodes", "Episodes pushed, by run.",
                     [query(pushed(RUN), ONE)], "suffix: /s", stack=True)
    tokens = lines("Tokens", "Tokens through the models, by phase.",
                   [query(rate("allot_worker_tokens_total", "phase"), "{{phase}}")], "suffix: /s")
    steps = lines("Decode step", "Time of one decode step of a batch: all rows, all layers.",
                  quantiles((0.5, 0.99), "allot_worker_decode_step_duration_seconds"), "s")
    times = lines("Episode", "Time of one episode, with prompts that had to be prefilled.",
                  quantiles((0.5, 0.95), "allot_worker_episode_duration_seconds", RUN, ONE), "s")
    by_result = share(rate("allot_worker_questions_total", "result"),
                      rate("allot_worker_questions_total"), "ignoring (result) group_left () ")
    questions = lines("Questions", "Share of episodes' questions, by score.",
                      [query(by_result, "{{result}}")], "percentunit", stack=True, max=1)
    units = lines("Evaluation units", "Planned and not done, by run.",
                  [query(gauge("allot_evaluation_units", RUN), ONE)])
    units_done = lines("Evaluation units done", "Taken by workers, by outcome.",
                       [query(rate("allot_worker_units_total", "outcome"), "{{outcome}}")],
                       "suffix: /s")
    return [row("Throughput"),
            (8, [(8, episodes), (8, tokens), (8, workers_by_state())]),
            (8, [(12, steps), (12, times)]),
            (8, [(8, questions), (8, units), (8, units_done)])]


def fleet_losses():
    dropped = share(rate("allot_worker_episodes_total", RUN, 'outcome="aborted"'),
                    rate("allot_worker_episodes_total", RUN))
    aborted = lines("Aborted episodes", "Share of begun episodes that were dropped because the "
                    "worker had to end: what remains leans to short ones.",
                    [query(dropped, ONE)], "percentunit",
                    limit=limits((None, "transparent"), (0.1, "red")))
    restarts = lines("Restarts", "Processes that began again under the same address.",
                     [query(f"sum by ({RUN}) ({BEGAN_AGAIN}{RATE}))", ONE)])
    held = lines("Draining workers and held results", "Workers that were told to end, and results "
                 "made and not yet pushed.",
                 [query(f"sum({series('allot_worker_draining')})", "draining"),
                  query(f"sum({series('allot_worker_held_results')})", "held")])
    return [row("Losses"), (8, [(8, aborted), (8, restarts), (8, held)])]


def fleet_redis():
    slowest = lines("Latency, 99 %", "99 of 100 of the aggregators' requests take less, by script or "
                    "command.",
                    quantiles((0.99,), "allot_redis_command_duration_seconds", "command"), "s")
    workers_mean = share(rate("allot_redis_command_seconds_total"),
                         rate("allot_redis_commands_total", more='command="all"'))
    median = lines("Latency", "Half of the aggregators' requests take less, by script or command; of "
                   "workers, which keep totals only, the mean of all.",
                   [*quantiles((0.5,), "allot_redis_command_duration_seconds", "command"),
                    query(workers_mean, "workers, mean")], "s")
    requests = lines("Requests", "By outcome; unavailable: no answer.",
                     [query(rate("allot_redis_commands_total", "outcome"), "{{outcome}}"),
                      query(rate("allot_redis_reconnects_total"), "reconnects")], "suffix: /s")
    return [row("Redis"), (8, [(8, slowest), (8, median), (8, requests)])]


def fleet_processes():
    oldest = f"min by ({RUN}) ({series('allot_worker_policy_version')})"
    newest = gauge("allot_policy_version", RUN)
    behind = lines("Policy behind", "Updates between the published policy and the oldest that a "
                   "worker used last.",
                   [query(f"{newest} - on ({RUN}) {oldest}", ONE)])
    memory = lines("Memory of models", "Weights and KV pools of all workers.",
                   [query(f"sum by (kind) ({series('allot_worker_memory_bytes')})", "{{kind}}")],
                   "bytes", stack=True)
    versions = lines("Versions", "Processes, by version.",
                     [query(f"count by (version) ({series('allot_build_info')})", "{{version}}")],
                     stack=True, decimals=0)
    return [row("Processes"), (8, [(8, behind), (8, memory), (8, versions)])]


def fleet():
    return dashboard(
        "allot-fleet", "allot / fleet", "Every process: throughput, times, losses.",
        variables("allot_build_info", True),
        [*fleet_head(), *fleet_throughput(), *fleet_losses(), *fleet_redis(), *fleet_processes()])


# --- the dashboard of several experiments side by side


def at_budget(by, more):
    return gauge("allot_evaluation_accuracy_ratio", by, f'{more}, total_budget=~"$total_budget"')


def compare_together():
    accuracy = bars("Held-out accuracy at total budget $total_budget",
                    "Newest complete evaluation, best first.",
                    f'sort_desc({at_budget(f"{RUN}, schedule, method", BUDGETED)})',
                    "percentunit", max=1, legend=ONE + ": {{schedule}}, {{method}}")
    seconds = gauge("allot_worker_seconds_total", f"{RUN}, device")
    columns = [
        ("updates", "short", gauge("allot_policy_version", RUN)),
        ("reward", "percentunit", gauge("allot_update_reward_ratio", RUN)),
        ("learned", "percentunit", at_budget(RUN, 'schedule="learned"')),
        ("uniform", "percentunit", at_budget(RUN, 'schedule="uniform"')),
        ("dense", "percentunit",
         gauge("allot_evaluation_accuracy_ratio", RUN, 'schedule="dense"')),
        ("device-hours", "suffix: h", f"sum by ({RUN}) ({seconds}) / 3600")]
    experiments = table("Runs", "At total budget $total_budget: the best method's held-out "
                        "accuracy, by schedule.", columns, ["namespace", "experiment", "run_id"],
                        [("learned", True)])
    reward = lines("Reward", "Mean reward of each update's episodes.",
                   [query(gauge("allot_update_reward_ratio", RUN), ONE)], "percentunit")
    updates = lines("Updates", "Updates behind the published policy.",
                    [query(gauge("allot_policy_version", RUN), ONE)])
    return [(9, [(12, accuracy), (12, experiments)]), (8, [(12, reward), (12, updates)])]


def compare_each():
    def accuracy(title, schedule):
        return stat(title, f"Held-out accuracy of the {schedule} schedule at total budget "
                    "$total_budget.", at_budget(RUN, f'schedule="{schedule}"'),
                    ONE, "percentunit", decimals=1, noValue="not evaluated")
    settings = stat("Model, method, staleness", "Fixed settings of the run.",
                    gauge("allot_experiment_info", "model, method, staleness_mode"),
                    "{{model}}, {{method}}, {{staleness_mode}}", name_only=True)
    return [row("$run", repeat="run"),
            (4, [(6, accuracy("Learned", "learned")), (6, accuracy("Uniform", "uniform")),
                 (6, state()), (6, settings)]),
            (10, [(12, accuracy_chart()), (12, latency_chart())])]


def compare():
    budgets = f"label_values({series('allot_evaluation_accuracy_ratio', BUDGETED)}, total_budget)"
    return dashboard(
        "allot-compare", "allot / compare", "Several runs, of one experiment or many, at one total budget.",
        variables("allot_experiment_info", True,
                  [variable("total_budget", "total budget", budgets, sort=3)]),
        [*compare_together(), *compare_each()])


def main():
    check = sys.argv[1:] == ["--check"]
    for name, made in (("experiment", experiment()), ("fleet", fleet()), ("compare", compare())):
        file, text = HERE / f"{name}.json", json.dumps(made, indent=1) + "\n"
        if not check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            sys.exit(f"{file.name} is not what k8s/grafana/make_dashboards.py writes: run it")


if __name__ == "__main__":
    main()
