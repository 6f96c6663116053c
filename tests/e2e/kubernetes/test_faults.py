"""An experiment that is scaled, edited and broken while it goes on, and ends right all the same."""
import collections
import json
import pathlib
import random
import re
import tempfile
import time
import unittest

from harness import kube, machines, manifests, report, volume
from harness.drain import watched_end
from harness.experiment import Experiment

needs_machines = unittest.skipUnless(machines.available(), "needs the test cluster's own scripts")


class Faults(unittest.TestCase):
    """One story: the tests run in the order of their names."""

    @classmethod
    def setUpClass(cls):
        volume.renew()
        cls.random = random.Random(5)
        cls.experiment = Experiment(manifests.faults())
        since_apply = report.Stopwatch()
        cls.experiment.apply()
        try:
            cls.experiment.wait_version(1, 480)
            since_apply.note("short prompts: apply to first update")
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.experiment.delete()

    # --- what the tests are told in
    def goes_on(self, what, seconds=360):
        """The time until the next updates but one: one may have been on its way."""
        watch = report.Stopwatch()
        begin = kube.until("status", self.experiment.status, seconds)["version"]
        self.experiment.wait_version(begin + 2, seconds)
        watch.note(f"{what} to next update")

    def episodes_a_second(self, seconds=12):
        first = self.experiment.status()
        time.sleep(seconds)
        last = self.experiment.status()
        passed = (last["now_unix_ms"] - first["now_unix_ms"]) / 1000
        return (last["episodes"] - first["episodes"]) / passed

    def one_pod(self, component):
        return self.experiment.wait_ready(component, 1)[0]

    # --- the story
    def test_1_throughput_follows_the_workers(self):
        # Again where somebody else had the machine's cores meanwhile.
        for _ in range(4):
            one, four, two = (self.rate_of(workers) for workers in (1, 4, 2))
            if one < two < four and four > 1.5 * one:
                return
        self.fail(f"episodes a second: {one:.1f} of one worker, {four:.1f} of four, "
                  f"{two:.1f} of two")

    def rate_of(self, workers):
        x = self.experiment
        watch = report.Stopwatch()
        x.scale(workers)
        x.wait_ready("worker", workers)
        watch.note(f"scale to {workers} to all ready")
        kube.until(f"{workers} workers, each with an episode or more",
                   lambda: sorted(each["episodes"] > 0 for each in x.status()["workers"]) ==
                   [True] * workers, 120)
        watch.note(f"scale to {workers} to all with a result and none left over")
        rate = self.episodes_a_second()
        report.note(f"episodes a second, {workers} workers of 0.4 CPU", f"{rate:.1f}")
        return rate

    def test_2_an_edit_takes_effect_while_workers_are_deleted(self):
        x = self.experiment
        x.scale(3)
        aggregator = self.one_pod("aggregator")
        watch, deleted, last = report.Stopwatch(), 0, 0.0
        x.edit(lambda text: text.replace("maxUpdates: 1000000", "maxUpdates: 900000"))

        def in_effect():
            nonlocal deleted, last
            if watch.seconds() - last > 4:
                workers = [each for each in x.pods("worker") if not each.leaving]
                name = self.random.choice(workers).name
                x.kubectl("delete", "pod", name, "--wait=false")
                deleted, last = deleted + 1, watch.seconds()
            return x.status()["max_updates"] == 900000 and deleted >= 5
        kube.until("the edit takes effect", in_effect, 180)
        report.note("live edit to effect (at most; kubelet's part is up to 90 s)",
                    f"{watch.seconds():.0f} s")
        report.note("worker pods deleted meanwhile", deleted)
        self.goes_on("deleted workers")
        x.wait_ready("worker", 3)
        self.assertEqual(x.restarts("aggregator"), {aggregator.uid: 0})
        self.assertEqual(set(x.restarts("store").values()), {0})

    def test_3_another_edit_is_refused(self):
        x = self.experiment
        watch = report.Stopwatch()
        x.edit(lambda text: text.replace("seed: 3", "seed: 4"))
        kube.until("the refusal in allot status",
                   lambda: "spec.seed" in x.status()["edit_refused"], 180)
        report.note("edit to refusal", f"{watch.seconds():.0f} s")
        aggregator = self.one_pod("aggregator")  # its metrics are those of its last second
        kube.until("the refusal in the metrics", lambda: x.metrics(aggregator).get(
            "allot_experiment_edit_refused") == 1, 10)
        self.goes_on("refused edit")

    @needs_machines
    def test_4_the_aggregator_is_killed(self):
        x = self.experiment
        pod = self.one_pod("aggregator")
        before = x.restarts("worker")
        machines.kill_container(pod.node, pod.containers[0]["containerID"])
        self.goes_on("kill -9 of the aggregator")
        now = self.one_pod("aggregator")
        self.assertEqual((now.uid, now.restarts), (pod.uid, 1))
        died = now.containers[0]["lastState"]["terminated"]
        self.assertEqual(died["exitCode"], 137)
        # Workers that were deleted before may have left meanwhile.
        after = x.restarts("worker")
        self.assertEqual(after, {uid: before.get(uid) for uid in after})
        self.assertTrue(after)
        # The refused edit is still in the file, and no reason not to begin.
        kube.until("the refusal again", lambda: "spec.seed" in x.status()["edit_refused"], 30)

    def test_5_redis_comes_and_goes(self):
        x = self.experiment
        before = {**x.restarts("worker"), **x.restarts("aggregator")}
        x.kubectl("delete", "pod", self.one_pod("store").name, "--wait=false")
        self.goes_on("deleted Redis pod")
        self.one_pod("store")

        x.kubectl("scale", f"statefulset/{x.name}-redis", "--replicas=0")
        watch = report.Stopwatch()
        kube.until("no process is ready without Redis",
                   lambda: not x.ready("worker") and not x.ready("aggregator"), 90)
        watch.note("Redis away to all unready")
        worker = x.pods("worker")[0]
        self.assertEqual(x.fetch(worker, "/livez")[0], 200)
        status, _, why = x.fetch(worker, "/readyz")
        self.assertEqual(status, 503)
        self.assertEqual(why.strip().count("\n"), 0, why)
        time.sleep(max(0.0, 40 - watch.seconds()))  # longer than a liveness probe would bear
        x.kubectl("scale", f"statefulset/{x.name}-redis", "--replicas=1")
        self.goes_on("40 s without Redis, return")
        # Workers that were deleted before may drain for as long as the store was away.
        x.wait_ready("worker", sum(not pod.leaving for pod in x.pods("worker")))
        after = {**x.restarts("worker"), **x.restarts("aggregator")}
        self.assertEqual(after, {uid: before.get(uid) for uid in after},
                         "an outage of Redis restarts nobody")

    def test_6_a_worker_leaves_gracefully(self):
        x = self.experiment
        pod = x.ready("worker")[0]
        before = x.metrics(pod).get("allot_worker_episodes_total", outcome="pushed")
        with watched_end(x, pod) as end:
            watch = report.Stopwatch()
            x.kubectl("delete", "pod", pod.name, "--wait=false")
            end.wait(120)
        watch.note("SIGTERM to gone")
        self.assertEqual(end.exit_status(), 0)
        self.assertEqual(end.metrics.get("allot_worker_draining"), 1)
        pushed = end.metrics.get("allot_worker_episodes_total", outcome="pushed")
        self.assertGreaterEqual(pushed, before)
        # The episode in hand was finished: the grace period is long.
        self.assertEqual(end.metrics.get("allot_worker_episodes_total", outcome="aborted"), 0)

    def test_6_without_time_an_episode_is_dropped_whole(self):
        x = self.experiment
        for _ in range(3):  # it may be between two episodes
            name = x.lone_worker("--grace=0")
            pod = kube.until("the lone worker is ready", lambda n=name: next(
                (each for each in x.ready("worker") if each.name == n), None), 120)
            kube.until("it has pushed an episode", lambda p=pod: x.metrics(p).get(
                "allot_worker_episodes_total", outcome="pushed") > 0, 60)
            with watched_end(x, pod) as end:
                x.kubectl("delete", "pod", name, "--wait=false")
                end.wait(120)
            self.assertEqual(end.exit_status(), 0)
            if end.metrics.get("allot_worker_episodes_total", outcome="aborted") == 1:
                self.assertIn("1 episodes are given up", end.log)
                return
        self.fail("no episode was counted as aborted")

    def test_7_a_node_is_drained_and_another_lost(self):
        x = self.experiment
        if not machines.available():
            self.skipTest("needs the test cluster's own scripts")
        self.move_aggregator_to("node2")
        kube.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data",
                     "--timeout=180s", timeout=200)
        self.goes_on("drained node")
        self.assertEqual({each.node for each in x.pods() if not each.leaving}, {"node1"})
        kube.kubectl("uncordon", "node2")

        self.move_aggregator_to("node2")
        watch = report.Stopwatch()
        machines.cut_off("node2")
        try:
            kube.until("node2 is given up", lambda: any(
                each.leaving for each in x.pods("aggregator")), 120)
            kube.until("another aggregator", lambda: x.ready("aggregator"), 120)
            self.goes_on("takeover from the aggregator of the lost node")
            watch.note("cut off node, until the run had gone on")
        finally:
            machines.heal("node2")
        kube.until("one aggregator", lambda: len(x.pods("aggregator")) == 1, 120)
        self.goes_on("healed node")

    def move_aggregator_to(self, node):
        """Deletes it where no other node takes it."""
        x = self.experiment
        if self.one_pod("aggregator").node == node:
            return
        kube.kubectl("cordon", "node1")
        try:
            x.kubectl("delete", "pod", self.one_pod("aggregator").name)
            self.assertEqual(self.one_pod("aggregator").node, node)
        finally:
            kube.kubectl("uncordon", "node1")

    def test_8_the_run_ends_right(self):
        x = self.experiment
        last = x.version() + 100
        # Mends the refused edit, too.
        x.edit(lambda text: re.sub(r"maxUpdates: \d+", f"maxUpdates: {last}",
                                   text.replace("seed: 4", "seed: 3")))
        x.nudge("aggregator")
        x.wait_finished(900)
        status = x.status()
        self.assertEqual(status["edit_refused"], "")
        self.assertEqual(sum(status["refused"].values()), 0, status["refusals"])
        self.assertGreaterEqual(status["version"], last)
        self.assertIn(f"verified: {status['version']} updates", x.said("verify"))
        with tempfile.TemporaryDirectory() as folder:
            x.said("export", "--out", folder)
            said = x.said("verify", folder, reach=False).strip()
            workers = self.workers_in(folder)
        report.note("after all faults", said)
        self.assertEqual(sum(workers.values()), 4 * status["version"])
        report.note("workers whose episodes count", len(workers))
        self.assertGreaterEqual(len(workers), 4)  # those of the first test at least

    def workers_in(self, folder):
        """How many episodes of each worker the updates consumed."""
        counts, results, tickets = collections.Counter(), set(), set()
        with open(pathlib.Path(folder, "history.jsonl"), encoding="utf-8") as lines:
            for line in lines:
                for result in json.loads(line)["results"]:
                    counts[result["result_id"].rpartition("-")[0]] += 1
                    results.add(result["result_id"])
                    tickets.add(result["ticket"])
        self.assertEqual(len(results), counts.total(), "a result counts twice")
        self.assertEqual(len(tickets), counts.total(), "an episode was handed out twice")
        return counts
