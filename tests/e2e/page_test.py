#!/usr/bin/env python3
"""Opens the page of a run in a real browser and compares what it shows with the run view.

    page_test.py URL [VIEW] [--report FILE.html] [--samples] [--screenshots DIR]

VIEW is a file or URL with the run view; without it URL/api/run is asked. --samples also tests the
pages of page_sample's other runs. What must be shown is computed here from the view, on its own.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import shutil
import sys
import time
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

ARGS = None

DATA = """
const out = {};
for (const [name, chart] of Object.entries(window.allotCharts)) {
  out[name] = {
    labels: chart.data.labels,
    levels: chart.config.options.plugins.levels.lines,
    sets: Object.fromEntries(chart.data.datasets.map((set) => [set.label, set.data])),
    ticks: chart.scales.x.ticks.map((tick) => tick.value),
    visible: chart.canvas.getBoundingClientRect().height > 0,
    drawn: chart.getSortedVisibleDatasetMetas().length,
  };
}
return out;
"""


NOTICE = "const n = document.getElementById('notice'); return n.hidden ? '' : n.textContent"

# Words of a plot that lie over each other or leave the picture.
OVERLAPS = """
const bad = [];
for (const svg of document.querySelectorAll('.figure .plot-svg:not(.sample)')) {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map((e) => [e.textContent,
    e.getBoundingClientRect()]);
  boxes.forEach(([words, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.bottom > frame.bottom + 1) {
      bad.push(`${words} leaves ${svg.getAttribute('aria-label')}`);
    }
    for (const [other, b] of boxes.slice(i + 1)) {
      if (a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom) {
        bad.push(`${words} over ${other} in ${svg.getAttribute('aria-label')}`);
      }
    }
  });
}
return bad;
"""


def browser(dark=False):
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    driver.set_page_load_timeout(60)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    return driver


def resize(driver, width, height):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    time.sleep(0.4)


def read_json(place):
    if "://" not in place:
        return json.loads(pathlib.Path(place).read_text())
    with urllib.request.urlopen(place, timeout=10) as reply:
        return json.load(reply)


def newest_lines(view):
    """{(method, schedule): [rows of its newest complete version, by budget]}"""
    full = max((row["n"] for row in view["evaluations"]), default=0)
    versions = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in view["evaluations"]:
        versions[row["method"], row["schedule"]][row["version"]][row["total_budget"]] = row
    lines = {}
    for key, found in versions.items():
        best = max(found, key=lambda v: (sum(r["n"] == full for r in found[v].values()),
                                         len(found[v]), v))
        lines[key] = [found[best][budget] for budget in sorted(found[best])]
    return lines


def progress_text(view):
    ended = view["state"] in ("finished", "stopped", "exported")
    units = 0 if ended else view["open_units"]
    parts = [f"{view['updates']:,} of {view['max_updates']:,} updates"] if view["max_updates"] else []
    if units:
        parts.append(f"{units:,} evaluation unit{'' if units == 1 else 's'} to go")
    return ", ".join(parts)


class PageTest(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def open(self, address):
        self.driver.get_log("browser")  # forget what earlier pages said
        resize(self.driver, 1280, 900)
        self.driver.get(address)
        WebDriverWait(self.driver, 20).until(lambda d: d.execute_script(
            "return Boolean(window.allotCharts && document.documentElement.dataset.shown)"))

    def text(self, element):
        return self.driver.execute_script(
            "return document.getElementById(arguments[0]).textContent", element)

    def assert_clean(self):
        self.assertEqual([entry["message"] for entry in self.driver.get_log("browser")], [])

    def assert_points(self, points, expected, name):
        self.assertEqual(len(points), len(expected), name)
        for point, (x, y) in zip(points, expected):
            self.assertEqual(point["x"], x, name)
            self.assertTrue(math.isclose(point["y"], y, abs_tol=1e-12), (name, point, y))

    # --- one view ---
    def check_view(self, view):
        charts = self.driver.execute_script(DATA)
        # Who learns by total budgets has no steps; who weighs no results, no sample size of them.
        by_budgets = any(row.get("beats_uniform") is not None for row in view["frontier"])
        hidden = {"kl", "lags"} if by_budgets else set()
        if by_budgets and view["learner"] != "reinforce":
            hidden.add("ess")
        for name, chart in charts.items():
            self.assertEqual(bool(chart["visible"] and chart["drawn"]), name not in hidden, name)
        charts = {name: chart for name, chart in charts.items() if name not in hidden}
        self.check_history(view, charts, hidden)
        self.check_accuracy(view, charts)
        self.check_versions(view, charts)
        learns = view["max_updates"] > 0
        self.assertEqual("schedule" in charts, learns and bool(view["learned_schedule"]))
        if "schedule" in charts:
            self.assertEqual(charts["schedule"]["sets"], {"learned": view["learned_schedule"]})
            self.assertEqual([level["value"] for level in charts["schedule"]["levels"]],
                             [view["total_budget"] / len(view["learned_schedule"])])
            self.assertEqual(charts["schedule"]["labels"],
                             [str(i) for i in range(len(view["learned_schedule"]))])
        self.check_words(view)

    def check_history(self, view, charts, hidden):
        history = view["history"]
        names = {("reward", "reward"): "mean_reward", ("reward", "updates before"): "mean_baseline",
                 ("lag", "lag"): "lag", ("kl", "step KL"): "step_kl", ("ess", "effective sample size"): "ess"}
        for (chart, label), key in names.items():
            shown = bool(history) and chart not in hidden
            self.assertEqual(chart in charts, shown, chart)
            if shown:
                self.assert_points(charts[chart]["sets"][label],
                                   [(h["version"], h[key]) for h in history], label)
        if history and "lags" not in hidden:
            self.assertEqual(charts["lags"]["labels"], [c["lag"] for c in view["lag_histogram"]])
            self.assertEqual(charts["lags"]["sets"]["results by lag"],
                             [c["results"] for c in view["lag_histogram"]])
        if history:
            rewards = [h["mean_reward"] for h in history]
            windows = [rewards[max(0, i - 4):i + 5] for i in range(len(rewards))]
            self.assert_points(charts["reward"]["sets"]["smoothed"],
                               [(h["version"], sum(w) / len(w)) for h, w in zip(history, windows)],
                               "smoothed")

    def check_accuracy(self, view, charts):
        lines = newest_lines(view)
        dense = [rows[0] for (_, schedule), rows in lines.items() if schedule == "dense"]
        sampled = {key: rows for key, rows in lines.items()
                   if key[1] != "dense" and rows[0]["total_budget"] > 0}
        self.assertEqual("accuracy" in charts, bool(sampled))
        if not sampled:
            return
        sets = dict(charts["accuracy"]["sets"])
        budgets = sorted({row["total_budget"] for rows in sampled.values() for row in rows})
        self.assertEqual(charts["accuracy"]["ticks"], budgets)
        if dense:
            self.assert_points(sets.pop("dense"), [(b, dense[0]["accuracy"]) for b in budgets],
                               "dense")
            self.assertEqual([level["value"] for level in charts["accuracy"]["levels"]],
                             [dense[0]["accuracy"]])
        methods, schedules = ({key[i] for key in sampled} for i in (0, 1))
        named = {s if len(methods) < 2 else m if len(schedules) < 2 else f"{s}, {m}": rows
                 for (m, s), rows in sampled.items()}
        self.assertEqual(sorted(sets), sorted(named))
        for name, rows in named.items():
            self.assert_points(sets[name], [(r["total_budget"], r["accuracy"]) for r in rows], name)
            for point, row in zip(sets[name], rows):
                self.assertEqual([point["low"], point["high"]], row["ci95"])
                self.assertEqual((point["n"], point["version"]), (row["n"], row["version"]))

    def check_versions(self, view, charts):
        full = max((row["n"] for row in view["evaluations"]), default=0)
        rows = [row for row in view["evaluations"] if row["schedule"] == "learned" and
                row["total_budget"] == view["total_budget"] and row["n"] == full]
        several = len({row["version"] for row in rows}) > 1
        self.assertEqual("versions" in charts, several)
        if several and len({row["method"] for row in rows}) == 1:
            rows.sort(key=lambda row: row["version"])
            self.assert_points(charts["versions"]["sets"]["learned"],
                               [(row["version"], row["accuracy"]) for row in rows], "versions")

    def check_words(self, view):
        self.assertEqual(self.text("experiment"), view["experiment"])
        self.assertEqual(self.text("state"), view["state"])
        self.assertEqual(self.text("run-id"), f"run {view['run_id']}")
        waiting = view["waiting"]
        self.assertEqual(self.text("waiting"), f"Not progressing: {waiting}" if waiting else "")
        edit = view["edit_refused"]
        self.assertEqual(self.text("edit-refused"),
                         edit and f"Edit refused: {edit}")
        audits = view["audits"]
        self.assertEqual(self.text("audits"), audits and f"Audits: {audits}")
        refused = ", ".join(f"{n:,} {kind}" for kind, n in view["refused"].items() if n)
        self.assertEqual(self.text("refused"), refused and
                         f"Refused results: {refused}. Last: {view['last_error']}")
        self.assertEqual(self.text("progress-text"), progress_text(view))
        failed = [f"{w['worker']} ({w['last_error']})" for w in view["workers"]
                  if w["state"] == "failed"]
        self.assertEqual(self.text("failed"),
                         failed and f"Ended with an error: {'; '.join(failed)}" or "")
        speed = view["episodes_per_second"]
        self.assertEqual(self.text("speed"), "–" if speed is None else f"{speed:.1f} /s")
        rows = self.driver.execute_script(
            "return [...document.querySelectorAll('#workers tr')].map((row) =>"
            " [...row.cells].slice(0, 3).map((cell) => cell.textContent))")
        self.assertCountEqual(rows, [[w["worker"], w["state"], w["device"]]
                                     for w in view["workers"]])
        self.check_numbers(view)
        settings = self.driver.execute_script(
            "return [...document.querySelectorAll('#settings tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.textContent))")
        self.assertEqual(settings, view["settings"])
        # Every place without a chart says what it waits for.
        empty = self.driver.execute_script(
            "return [...document.querySelectorAll('.card')].filter((card) => !card.hidden &&"
            " card.querySelector('.plot')).map((card) => [card.querySelector('.plot').hidden,"
            " card.querySelector('.empty').textContent.length > 10])")
        for hidden, said in empty:
            self.assertEqual(hidden, said)

    def check_numbers(self, view):
        def points(v):
            return f"{'−' if v < 0 else '+'}{abs(v) * 100:.1f}"

        def above(paired):
            if not paired:
                return ["", ""]
            low, high = paired["ci95"]
            mark = " *" if paired["holm"] and paired["holm"]["differs"] else ""
            return [("" if low > 0 or high < 0 else "~ ") + points(paired["mean"]) + mark,
                    f" ({points(low)} to {points(high)})"]

        by_uniform = any(row["over_uniform"] for cells in newest_lines(view).values()
                         for row in cells)
        expected = []
        for (_, schedule), cells in newest_lines(view).items():
            for row in cells:
                tokens, dense, uniform = (row["answer_tokens"], above(row["over_dense"]),
                                          above(row["over_uniform"]))
                expected.append([
                    str(row["version"]) if schedule == "learned" else "",
                    "all" if schedule == "dense" else
                    f"{row['total_budget']:,}" if row["total_budget"] else "its own",
                    "".join(dense), "".join(uniform), (uniform if by_uniform else dense)[0],
                    "–" if tokens is None else f"{tokens:.1f}",
                    f"{row['n']:,}" + (f" × {row['repeats']}" if row["repeats"] > 1 else "")])
        shown = self.driver.execute_script(
            "return [...document.querySelectorAll('#numbers tr')].map((row) =>"
            " [1, 2, 4, 5, 6, 7, 8].map((i) => row.cells[i].textContent))")
        self.assertCountEqual(shown, expected)
        note = self.text("numbers-note")
        for cells in newest_lines(view).values():
            for row in cells:
                self.assertIn(row["interval"], note)
                for name in ("dense", "uniform"):
                    holm = (row[f"over_{name}"] or {}).get("holm")
                    if holm:
                        self.assertIn(f"{holm['family']:,} with {name}", note)

    def check_narrow(self):
        for width in (390, 360):
            resize(self.driver, width, 844)
            wide = self.driver.execute_script(
                "const w = document.documentElement.clientWidth;"
                "return [window.innerWidth, document.documentElement.scrollWidth,"
                " ...[...document.querySelectorAll('header, .tile, .card, .plot, footer')]"
                " .map((e) => Math.ceil(e.getBoundingClientRect().right))]")
            self.assertLessEqual(max(wide), width)
            cut = self.driver.execute_script(
                "return [...document.querySelectorAll('.tile, .tile *, header *, .legend')]"
                ".filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)"
                ".map((e) => e.id || e.className)")
            self.assertEqual(cut, [])
        resize(self.driver, 1280, 900)

    def check_report(self, address):
        self.open(address)
        self.check_view(read_json(ARGS.view or f"{ARGS.url}/api/run"))
        self.check_narrow()
        asked = self.driver.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertEqual(asked, [])
        self.assert_clean()

    # --- the tests ---
    def test_live_page_shows_the_view(self):
        for attempt in range(5):  # a live run moves on between our look and the page's
            view = read_json(ARGS.view or f"{ARGS.url}/api/run")
            self.open(f"{ARGS.url}/")
            try:
                self.check_view(view)
                break
            except AssertionError:
                if attempt == 4 or view["state"] in ("finished", "stopped"):
                    raise
        self.check_narrow()
        self.assert_clean()

    def test_report_shows_the_view(self):
        if not ARGS.report:
            self.skipTest("needs --report FILE")
        self.check_report(pathlib.Path(ARGS.report).resolve().as_uri())

    def test_report_shows_the_view_where_it_is_served(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.check_report(f"{ARGS.url}/report/report.html")

    def test_report_of_many_methods(self):
        if not (ARGS.report and ARGS.samples):
            self.skipTest("needs --report FILE and --samples")
        report = pathlib.Path(ARGS.report).resolve()
        self.open((report.parent / "methods" / report.name).as_uri())
        view = read_json(f"{ARGS.url}/methods/api/run")
        self.check_view(view)
        headings = self.driver.execute_script(
            "return [...document.querySelectorAll('#figures h2')].map((e) => e.textContent)")
        self.assertEqual(headings, [
            "Accuracy by task", "Accuracy against KV bytes read",
            "Accuracy against key features read", "Accuracy by layer that is cut",
            "Relative error against samples", "Variance against samples",
            "Relative error against rows read", "Relative error against epsilon",
            "Fidelity in numbers", "Relative error by layer",
            "Relative error by spread of the attention"])
        panels = self.driver.execute_script(
            "return [...document.querySelectorAll('.panels figcaption')].map((e) => e.textContent)")
        self.assertEqual(panels, ["freq", "multi", "niah", "track"])
        for width in (1280, 390):
            resize(self.driver, width, 900)
            self.assertEqual(self.driver.execute_script(OVERLAPS), [])
        self.check_narrow()
        self.assert_clean()

    def test_other_samples(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        for name in ("empty", "sweep", "methods", "prefills"):
            with self.subTest(name):
                self.open(f"{ARGS.url}/{name}/")
                self.check_view(read_json(f"{ARGS.url}/{name}/api/run"))
                self.check_narrow()
                self.assert_clean()

    def test_schedules_of_several_total_budgets(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.open(f"{ARGS.url}/")
        rows = self.driver.execute_script(
            "return [...document.querySelectorAll('#frontier tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.textContent))")
        self.assertEqual(rows, [
            ["8", "learned", "0 3 0 0 2 2 1 0", "+31.4 (+12.1 to +48.7), 152 questions", "–"],
            ["32", "uniform", "4 4 4 4 4 4 4 4", "–", "−1.2 (−20.5 to +18.3), 152 questions"],
            ["128", "measured: best guess, not confirmed", "7 24 16 6 32 21 14 8", "–", "–"]])
        note = self.driver.find_element("id", "accuracy-note").text
        self.assertIn("learned at 8, 32, 128", note)
        self.assertTrue(self.driver.find_element("id", "headline-note").text.startswith("learned; "))
        worth = self.driver.find_element("css selector", "#card-worth .plot canvas")
        self.assertGreater(worth.size["height"], 0)
        self.assertIn("budget 8: layer 0 1.0 points, layer 1 31.0 points, layer 2 -2.0 points",
                      worth.get_attribute("aria-label"))
        self.check_narrow()
        self.assert_clean()
        # Where nothing is learned there is no such card.
        self.open(f"{ARGS.url}/sweep/")
        for card in ("card-frontier", "card-worth"):
            self.assertEqual(self.driver.execute_script(
                f"return document.getElementById('{card}').getBoundingClientRect().height"), 0)

    def test_prompts_that_are_read_in_several_ways(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.open(f"{ARGS.url}/prefills/")
        view = read_json(f"{ARGS.url}/prefills/api/run")
        self.assertEqual(self.options(), ["any method", "dense", "sale denseKeys=0 tau=0.1", "sampled-blocks"])
        rows = self.driver.execute_script(
            "return [...document.querySelectorAll('#prefills tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.textContent))")
        # What is drawn differs by budget; whatever reads alike is there once.
        self.assertCountEqual(rows, [
            ["dense", "100.0 %", "100.0 %", "300 ms", "0 ms", "–"],
            ["sale denseKeys=0 tau=0.1", "62.0 %", "81.0 %", "300 ms", "50 ms", "84.0 %"],
            ["sampled-blocks, uniform, budget 16", "41.6 %", "70.8 %", "300 ms", "50 ms", "–"],
            ["sampled-blocks, uniform, budget 64", "46.4 %", "73.2 %", "300 ms", "50 ms", "–"],
            ["sampled-blocks, uniform, budget 256", "65.6 %", "82.8 %", "300 ms", "50 ms", "–"]])
        ways = {"dense": ["s2anta-sys"], "sale denseKeys=0 tau=0.1": ["s2anta-sys"],
                "sampled-blocks": ["s2anta-sys", "dense"]}
        for way, methods in ways.items():
            self.driver.execute_script(
                "const s = document.getElementById('prefill'); s.value = arguments[0];"
                "s.dispatchEvent(new Event('change'))", way)
            chart = self.driver.execute_script(DATA)["accuracy"]
            for method in methods:
                name = method if way == "dense" else f"{way} + {method}"
                points = [(row["total_budget"], row["accuracy"]) for row in view["evaluations"]
                          if row["method"] == name and row["total_budget"]]
                self.assertEqual(len(points), 3)
                # A single line is called by its schedule.
                self.assert_points(chart["sets"][name if len(methods) > 1 else "uniform"], points, name)
            self.assertEqual(len(chart["sets"]), len(methods) + 1)
            self.assertEqual([level["value"] for level in chart["levels"]], [0.7 + 0.21])
        self.check_narrow()
        self.assert_clean()
        # Where prompts are read in one way nothing of this is shown.
        self.open(f"{ARGS.url}/sweep/")
        self.assertEqual(self.driver.execute_script(
            "return ['card-prefills', 'prefill'].map((id) =>"
            " document.getElementById(id).getBoundingClientRect().height)"), [0, 0])

    def options(self):
        return self.driver.execute_script(
            "return [...document.getElementById('prefill').options].map((one) => one.text)")

    def test_no_news_from_the_store_is_said(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.open(f"{ARGS.url}/away/")
        self.assertEqual(self.driver.execute_script(NOTICE),
                         "no news of the run for 25 s: Redis at unix:/x does not answer")
        # Times go on, by the server's clock.
        self.assertIn("26 s ago", self.text("workers"))
        self.check_narrow()
        self.open(f"{ARGS.url}/")
        self.assertEqual(self.driver.execute_script(NOTICE), "")
        self.assertIn("1 s ago", self.text("workers"))
        self.assert_clean()

    def test_a_run_that_ended_is_asked_for_seldom_and_may_go_on(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.open(f"{ARGS.url}/extended/")
        self.assertEqual(self.text("state"), "finished")
        self.assertIn("the run has ended", self.text("freshness"))
        time.sleep(2.6)
        self.assertEqual(len(self.requests()), 1)
        WebDriverWait(self.driver, 60).until(lambda d: self.text("state") == "running")
        self.assertEqual(len(self.requests()), 2)
        self.assertEqual(self.text("progress-text"), "137 of 150 updates, 1 evaluation unit to go")
        WebDriverWait(self.driver, 20).until(lambda d: len(self.requests()) > 2)
        self.assert_clean()

    def requests(self):
        return self.driver.execute_script(
            "return performance.getEntriesByType('resource').filter((e) => /api.run/.test(e.name))"
            ".map((e) => e.name)")

    def test_refresh_keeps_the_place_and_survives_an_outage(self):
        if not ARGS.samples:
            self.skipTest("needs --samples: the pages that page_sample serves")
        self.open(f"{ARGS.url}/")
        self.driver.execute_script(
            "window.marks = [window.allotCharts.reward, document.querySelector('#workers tr')];"
            "document.querySelector('details').open = true; window.scrollTo(0, 333);"
            "const box = window.allotCharts.accuracy.canvas.getBoundingClientRect();"
            "window.allotCharts.accuracy.canvas.dispatchEvent(new MouseEvent('mousemove',"
            " {clientX: box.left + box.width / 2, clientY: box.top + 90, bubbles: true}));")
        asked = len(self.requests())
        WebDriverWait(self.driver, 10).until(lambda d: len(self.requests()) >= asked + 2)
        kept = self.driver.execute_script(
            "return [window.marks[0] === window.allotCharts.reward,"
            " window.marks[1] === document.querySelector('#workers tr'),"
            " document.querySelector('details').open, window.scrollY,"
            " window.allotCharts.accuracy.tooltip.opacity]")
        self.assertEqual(kept, [True, True, True, 333, 1])
        self.assert_clean()
        network = {"latency": 0, "download_throughput": -1, "upload_throughput": -1}
        self.driver.set_network_conditions(offline=True, **network)
        WebDriverWait(self.driver, 10).until(
            lambda d: d.execute_script(NOTICE) == "connection lost, retrying")
        self.driver.set_network_conditions(offline=False, **network)
        WebDriverWait(self.driver, 10).until(lambda d: d.execute_script(NOTICE) == "")


def screenshots():
    folder = pathlib.Path(ARGS.screenshots)
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"run": f"{ARGS.url}/"}
    if ARGS.samples:
        pages.update(empty=f"{ARGS.url}/empty/", sweep=f"{ARGS.url}/sweep/",
                     methods=f"{ARGS.url}/methods/", prefills=f"{ARGS.url}/prefills/")
    if ARGS.report:
        report = pathlib.Path(ARGS.report).resolve()
        pages["report"] = report.as_uri()
        if ARGS.samples:
            pages["methods-report"] = (report.parent / "methods" / report.name).as_uri()
    for dark in (False, True):
        driver = browser(dark)
        for page, address in pages.items():
            for width, height in ((1280, 900), (390, 844)):
                resize(driver, width, height)
                driver.get(address)
                time.sleep(1.2)
                full = driver.execute_script("return document.documentElement.scrollHeight")
                resize(driver, width, full)
                driver.save_screenshot(
                    str(folder / f"{page}-{width}-{'dark' if dark else 'light'}.png"))
        driver.quit()


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--report", help="report.html to test as well")
    parser.add_argument("--samples", action="store_true", help="URL is page_sample's")
    parser.add_argument("--screenshots", metavar="DIR", help="only take pictures, into DIR")
    parser.add_argument("url")
    parser.add_argument("view", nargs="?")
    ARGS = parser.parse_args()
    ARGS.url = ARGS.url.rstrip("/")
    os.environ.setdefault("NO_PROXY", "127.0.0.1,localhost")
    if ARGS.screenshots:
        screenshots()
        return
    unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
