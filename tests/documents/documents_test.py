#!/usr/bin/env python3
"""Holds every Markdown file of the repository to checks.py, and shows that each check can fail.

    documents_test.py SOURCE      the checkout
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import checks

ROOT = None
# Folders of a checkout in which nothing is the repository's.
ELSEWHERE = {".git", "build", "dist", "runs"}
# Their lines were long before there was a rule; their links are checked.
LINES_OF_BEFORE = ("experiments/", "k8s/", "kernels/", "store/", "tests/")


def documents():
    return sorted(str(file.relative_to(ROOT)) for file in ROOT.rglob("*.md")
                  if file.relative_to(ROOT).parts[0] not in ELSEWHERE)


def held_to_lines(document):
    return document == "experiments/README.md" or not document.startswith(LINES_OF_BEFORE)


def held_to_words():
    """README.md and docs/*.md; docs/reference has tables that the code makes."""
    return ["README.md"] + sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))


def newest_subjects(count):
    """Subjects of the newest commits since docs/style.md was added, or None without a history."""
    def git(*arguments):
        return subprocess.run(("git", "-C", str(ROOT), *arguments), check=True,
                              capture_output=True, text=True).stdout.splitlines()
    # A branch that does not have the rule yet owes it nothing.
    added = git("log", "--diff-filter=A", "--format=%H", "--", "docs/style.md")
    return git("log", f"--max-count={count}", "--no-merges", "--ancestry-path", "--format=%s",
               f"{added[-1]}..HEAD") if added else None


class Documents(unittest.TestCase):
    maxDiff = None

    def test_every_link_leads_somewhere(self):
        self.assertGreater(len(documents()), 60)
        self.assertEqual([], [fault for document in documents()
                              for fault in checks.broken_links(ROOT, document)])

    def test_lines_are_short_and_hold_one_sentence(self):
        held = [document for document in documents() if held_to_lines(document)]
        self.assertGreater(len(held), 20)
        self.assertEqual([], [fault for document in held
                              for check in (checks.long_lines, checks.crowded_lines)
                              for fault in check(ROOT, document)])

    def test_the_readme_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()),
                             checks.LONGEST_README)

    def test_the_results_are_short(self):
        self.assertLessEqual(
            len((ROOT / "kernels/bench/RESULTS.md").read_text().splitlines()),
            checks.LONGEST_RESULTS)

    def test_words_are_plain(self):
        self.assertGreater(len(held_to_words()), 12)
        self.assertEqual([], [fault for document in held_to_words()
                              for fault in checks.banned_phrases(ROOT, document)])

    def test_figures_have_a_leading_zero(self):
        held = held_to_words() + ["kernels/bench/RESULTS.md"]
        self.assertEqual([], [fault for document in held
                              for fault in checks.bare_fractions(ROOT, document)])

    def test_subjects_of_commits_name_their_area_and_are_short(self):
        subjects = newest_subjects(20) if (ROOT / ".git").exists() else None
        if subjects is None:
            self.skipTest("needs a git clone of the repository with its history")
        self.assertEqual([], [fault for fault in map(checks.bad_subject, subjects) if fault])

    def test_the_style_has_twenty_rules(self):
        rules = re.findall(r"^\| (\d+) \|", (ROOT / "docs/style.md").read_text(), re.M)
        self.assertEqual([str(number) for number in range(1, 21)], rules)

    def test_what_the_readme_shows_of_the_demo_is_what_it_prints(self):
        shown = (ROOT / "README.md").read_text().split("```")[3].splitlines()
        printed = (ROOT / "docs/experiments.md").read_text().splitlines()
        self.assertGreater(len(shown), 10)
        self.assertEqual([], [line for line in shown if line not in printed])

    def test_the_contents_name_every_document(self):
        contents = (ROOT / "docs/README.md").read_text()
        named = {link.partition("#")[0] for _, link in checks.links(contents)}
        there = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")}
        self.assertEqual(set(), there - named - {"README.md"})

    def test_every_folder_of_code_has_a_readme_that_the_architecture_names(self):
        architecture = (ROOT / "docs/architecture.md").read_text()
        for file in sorted(ROOT.glob("*/CMakeLists.txt")):
            folder = file.parent.name
            if folder in ELSEWHERE or folder == "tests":
                continue
            with self.subTest(folder=folder):
                self.assertTrue((ROOT / folder / "README.md").exists())
                self.assertIn(f"](../{folder}/README.md)", architecture)
                self.assertIn(f"\n| `{folder}/` |", architecture)

    def test_folders_include_what_the_architecture_says(self):
        architecture = (ROOT / "docs/architecture.md").read_text()
        self.assertEqual([], list(checks.undeclared_includes(ROOT, architecture)))
        for row, broken in (("; `store_probe` alone `core/telemetry` |", " |"),
                            ("| `worker/tasks`, `worker/model`, `store`,", "| `store`,"),
                            ("| their implementation for CPUs | `kernels` |", "| x | |"),
                            ("| `proto`, from `kernels` the", "| `cli`, `proto`, from `kernels` the"),
                            ("| `proto`, from `kernels` the", "| from `kernels` the")):
            with self.subTest(broken=broken):
                self.assertIn(row, architecture)
                self.assertNotEqual([], list(checks.undeclared_includes(
                    ROOT, architecture.replace(row, broken))))

    def test_the_picture_names_scripts_streams_and_folders_that_are_there(self):
        picture = (ROOT / "docs/architecture.svg").read_text()
        scripts = re.findall(r'class="script"[^>]*>([^<]+)<', picture)
        self.assertGreater(len(scripts), 8)
        rows = re.findall(r"^\|.*\| (?:aggregator|worker) \| (.+) \|$",
                          (ROOT / "docs/architecture.md").read_text(), re.M)
        scripts += [script for row in rows for script in re.findall(r"`(\w+)`", row)]
        for script in scripts:
            self.assertTrue((ROOT / f"store/redis/lua/{script}.lua").exists(), script)
        keys = re.findall(r"^\| `(\w+)`", (ROOT / "store/README.md").read_text(), re.M)
        for text in re.findall(r'class="code"[^>]*>([^<]+)<', picture):
            for name in text.split():
                self.assertTrue(name in keys or (ROOT / name).is_dir(), name)


class Checks(unittest.TestCase):
    """A document with a fault of each kind, and one beside it that is just good enough."""

    def faults(self, check, text, **others):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "docs/it.md").write_text(text)
            for name, content in others.items():
                (root / f"docs/{name}.md").write_text(content)
            return list(check(root, "docs/it.md"))

    def test_links(self):
        good = ("[a](other.md) [b](other.md#two-words) [c](#here) ![d](../docs)\n"
                "[e](https://x.org/y) [f](other.md#two-words-1) `[g](code.md)`\n"
                "[h [i]](other.md \"title\")\n"
                "# Here\n```\n[j](code.md)\n```\n[k]: other.md\n")
        other = "# Two `words`\ntext\n## Two words!\n"
        self.assertEqual([], self.faults(checks.broken_links, good, other=other))
        for bad in ("[a](absent.md)", "[a](other.md#three)", "[a](#there)", "[a](/etc/passwd)",
                    "[a](../../x.md)", "![a](absent.svg)", "[a]: absent.md",
                    "x [a](other.md), [b](no.md)", "```\n```\n[a](absent.md)",
                    "[a](other.md#two-words-2)", "[`a`](absent.md)"):
            with self.subTest(bad=bad):
                self.assertEqual(1, len(self.faults(checks.broken_links, bad, other=other)))

    def test_lines(self):
        self.assertEqual([], self.faults(
            checks.long_lines, f"{'x' * 160}\n| {'x' * 200} |\n```\n{'x' * 200}\n```\n"))
        self.assertEqual(1, len(self.faults(checks.long_lines, "x" * 161)))

    def test_sentences(self):
        self.assertEqual([], self.faults(
            checks.crowded_lines,
            "One, e.g. this.\n1. Two.\nIn 3.1 and 3.2 it is so.\n| A. B c. D |\n"))
        for bad in ("It is. So it is.", "It `is`. `So` it is.", "**It is.** So it is."):
            with self.subTest(bad=bad):
                self.assertEqual(1, len(self.faults(checks.crowded_lines, bad)))

    def test_words(self):
        self.assertEqual([], self.faults(
            checks.banned_phrases,
            "The butler forgot `but for`.\n```\nso many\n```\nBut forty, and who asked?\n"))
        for bad in ("All but for one.", "after so many updates", "Whoever it is", "Likewise here",
                    "| a | what it leaves |", "**Who asks** pays", "`but for` is but for it"):
            with self.subTest(bad=bad):
                self.assertEqual(1, len(self.faults(checks.banned_phrases, bad)))

    def test_fractions(self):
        self.assertEqual([], self.faults(
            checks.bare_fractions,
            "0.35, 1.5, v1.2.3, `.35`, and so on ... 5; .md\n```\n.35\n```\n"))
        for bad in (" .35 ms", ".35", "**.681**", "[.478", "(.5)", "x=.5", "| .0174 |", "-.5"):
            with self.subTest(bad=bad):
                self.assertEqual(1, len(self.faults(checks.bare_fractions, bad)))

    def test_subjects(self):
        for good in ("docs: add a style sheet", "tests/k8s: wait longer", "docs: " + "x" * 66):
            with self.subTest(good=good):
                self.assertIsNone(checks.bad_subject(good))
        for bad in ("docs: " + "x" * 67, "What reading takes", "Formatting", ": fix it", "docs:"):
            with self.subTest(bad=bad):
                self.assertIsNotNone(checks.bad_subject(bad))


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
