#!/usr/bin/env python3
"""`allot serve` in a real browser, over two runs and folders of hostile names.

    history_test.py ALLOT FOLDER      FOLDER: where the runs are put
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ALLOT, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror=\"window.hacked=1\">'&"


def browser():
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return webdriver.Chrome(options=options, service=Service(driver))


class HistoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        with tempfile.TemporaryDirectory() as runs:
            for seed in (7, 8):
                subprocess.run([ALLOT, "run", ROOT / "tests/e2e/experiment.yaml", "--dir", f"{runs}/{seed}",
                                "--workers", "1", "--kv-memory", "256", "--set", f"spec.seed={seed}",
                                "--model", ROOT / "experiments/models/recall-7m"], check=True, capture_output=True)
            for seed, name in ((7, "first"), (8, "second"), (7, HOSTILE)):
                (FOLDER / name).mkdir(parents=True)
                for file in ("export.json", "history.jsonl", "evaluations.jsonl"):
                    shutil.copy(f"{runs}/{seed}/{file}", FOLDER / name)
        (FOLDER / "broken").mkdir()
        (FOLDER / "broken/export.json").write_text('{"<script>": 1')
        cls.server = subprocess.Popen([ALLOT, "serve", FOLDER, "--port", "0"],
                                      stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.server.communicate)
        cls.addClassCleanup(cls.server.terminate)
        cls.url = cls.server.stdout.readline().split()[0]
        cls.runs = json.load(urllib.request.urlopen(f"{cls.url}api/runs"))["runs"]
        cls.page = browser()
        cls.addClassCleanup(cls.page.quit)

    def open(self, address=""):
        self.page.get("about:blank")
        self.page.get(self.url + address)
        WebDriverWait(self.page, 30).until(lambda page: page.execute_script(
            "return document.documentElement.dataset.shown"))

    def sets(self, chart):
        return self.page.execute_script(
            f"return window.allotCharts.{chart}.data.datasets.map((s) => [s.label, s.data])")

    def run_in(self, folder):
        [run] = [run for run in self.runs if run["folder"] == folder]
        return run

    def test_lists_every_run_with_what_it_came_to(self):
        self.open()
        rows = self.page.find_elements(By.CSS_SELECTOR, "#runs tr")
        self.assertEqual(len(rows), 4)
        text = self.page.find_element(By.ID, "runs").text
        self.assertIn("broken: ", text)
        self.assertIn(HOSTILE, text)
        status = json.load(urllib.request.urlopen(
            f"{self.url}run/{self.run_in('first')['id']}/api/status"))
        row = self.page.find_element(By.ID, f"run-{self.run_in('first')['id']}").text
        self.assertIn(f"{float(status['best']['accuracy']) * 100:.1f} %", row)
        self.assertIn("3 / 3", row)

    def test_nothing_of_a_name_is_run(self):
        self.open()
        self.assertIsNone(self.page.execute_script("return window.hacked"))
        self.assertEqual(self.page.find_elements(By.TAG_NAME, "img"), [])
        self.assertEqual([entry for entry in self.page.get_log("browser")
                          if entry["level"] == "SEVERE"], [])

    def test_compares_the_runs_that_are_chosen_and_keeps_the_choice_in_the_address(self):
        first, second = self.run_in("first"), self.run_in("second")
        self.open(f"#{first['id']},{second['id']}")
        labels = [label for label, _ in self.sets("reward")]
        self.assertEqual(len(labels), 2)
        for run in (first, second):
            view = json.load(urllib.request.urlopen(f"{self.url}run/{run['id']}/api/run"))
            [data] = [data for label, data in self.sets("reward") if run["run_id"][-6:] in label]
            self.assertEqual([point["x"] for point in data],
                             [update["version"] for update in view["history"]])
            self.assertAlmostEqual(data[0]["y"], view["history"][0]["mean_reward"])
        self.page.find_element(By.CSS_SELECTOR, f"#run-{first['id']} input").click()
        WebDriverWait(self.page, 10).until(lambda _: len(self.sets("reward")) == 1)
        self.assertTrue(self.page.current_url.endswith(f"#{second['id']}"))

    def test_a_run_and_its_copy_are_two(self):
        self.open(f"#{self.run_in('first')['id']},{self.run_in(HOSTILE)['id']}")
        labels = [label for label, _ in self.sets("reward")]
        self.assertEqual(len(set(labels)), 2)
        self.assertTrue(any(HOSTILE in label for label in labels))

    def test_a_run_has_its_page(self):
        self.open()
        self.page.find_element(By.LINK_TEXT, "golden").click()
        WebDriverWait(self.page, 30).until(lambda page: "golden" in page.title)
        self.assertEqual(self.page.find_element(By.ID, "state").text, "finished")
        self.assertTrue(self.page.execute_script("return document.getElementById('notice').hidden"))

    def test_fits_a_phone(self):
        self.page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True})
        self.addCleanup(self.page.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        self.open()
        self.assertEqual(self.page.execute_script("return document.documentElement.scrollWidth"), 390)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
