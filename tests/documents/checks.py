"""What is wrong with a Markdown document, as sentences. Paths are relative to the repository."""
import importlib.util
import os
import pathlib
import re
import unicodedata
import urllib.parse

LONGEST_LINE = 160
LONGEST_README = 160  # lines
LONGEST_RESULTS = 200  # lines
LONGEST_SUBJECT = 72

FENCE = re.compile(r"\s*(```+|~~~+)")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]*(?:\([^()\s]*\)[^()\s]*)*)>?"
                  r"(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)")
# A sentence ends, and another begins behind it.
TWO_SENTENCES = re.compile(r"[a-z)`\"*][.?!][)*]* +[A-Z`*]")

BANNED = re.compile(r"\b(?:but for|so many|whoever|likewise|what it leaves|who asks)\b", re.I)
# A number that begins with its point: not the end of 1.5, v.5 or f(x).5, nor of ../.5.
BARE_FRACTION = re.compile(r"(?<![\w.)\]/])\.\d+")
SUBJECT = re.compile(r"[\w./, -]+: \S")


def load_script(path):
    """Returns a Python script as a module."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def prose(text):
    """(number, line) of the lines that are not code."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and line.strip() == mark.group(1):
                fence = None
        elif mark:
            fence = mark.group(1)
        else:
            yield number, line


def without_code(line):
    return re.sub(r"(`+)(?:(?!\1).)+?\1(?!`)", "", line)


def anchors(text):
    """The names that a reader's browser has for the headings, as GitHub makes them."""
    names = set()
    for _, line in prose(text):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
        if not heading:
            continue
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
        name = "".join("-" if c == " " else c for c in shown
                       if c in " -_" or unicodedata.category(c)[0] in "LN")
        unique, count = name, 0
        while unique in names:
            count += 1
            unique = f"{name}-{count}"
        names.add(unique)
    for name in re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text):
        names.add(name)
    return names


def links(text):
    for number, line in prose(text):
        line = without_code(line)
        for match in LINK.finditer(line):
            yield number, match.group(1)
        reference = REFERENCE.match(line)
        if reference:
            yield number, reference.group(1)


def broken_links(root, document):
    text = (root / document).read_text()
    for number, link in links(text):
        place = f"{document}:{number}: {link}"
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        path = urllib.parse.unquote(parts.path)
        folder = os.path.dirname(document)
        target = os.path.normpath(os.path.join(folder, path)) if path else document
        if path.startswith("/") or target.startswith(".."):
            yield f"{place}: leaves the repository"
        elif not (root / target).exists():
            yield f"{place}: there is no {target}"
        elif parts.fragment and target.endswith(".md"):
            if urllib.parse.unquote(parts.fragment) not in anchors((root / target).read_text()):
                yield f"{place}: {target} has no such heading"


def long_lines(root, document):
    for number, line in prose((root / document).read_text()):
        if len(line) > LONGEST_LINE and not line.startswith("|"):
            yield f"{document}:{number}: {len(line)} columns, at most {LONGEST_LINE}"


def crowded_lines(root, document):
    for number, line in prose((root / document).read_text()):
        if not line.startswith(("|", "#")) and TWO_SENTENCES.search(line):
            yield f"{document}:{number}: more than one sentence on a line"


def banned_phrases(root, document):
    """Phrases that docs/style.md replaces by plainer ones."""
    for number, line in prose((root / document).read_text()):
        for match in BANNED.finditer(without_code(line)):
            yield f"{document}:{number}: {match.group(0)} (docs/style.md says what to write)"


def bare_fractions(root, document):
    for number, line in prose((root / document).read_text()):
        for match in BARE_FRACTION.finditer(without_code(line)):
            yield f"{document}:{number}: {match.group(0)} has no leading zero"


def bad_subject(subject):
    """What is wrong with a commit's subject, or None."""
    if len(subject) > LONGEST_SUBJECT:
        return f"{subject}: {len(subject)} columns, at most {LONGEST_SUBJECT}"
    if not SUBJECT.match(subject):
        return f"{subject}: not `area: imperative`"
    return None


def row_of(path, rows):
    """The row of the table that a path belongs to: the longest of which it is below."""
    if path.startswith("allot/v1/"):
        return "proto" if "proto" in rows else None
    if path.startswith("allot/kernels/"):
        path = "kernels/include/" + path
    folders = [str(folder) for folder in pathlib.PurePosixPath(path).parents]
    return next((folder for folder in folders if folder in rows), None)


def includes(root, rows):
    """{row: the rows that its sources include}"""
    found = {row: set() for row in rows}
    for top in {row.split("/")[0] for row in rows}:
        for file in (root / top).rglob("*"):
            if file.suffix in (".h", ".cpp", ".cu", ".cuh"):
                row = row_of(file.relative_to(root).as_posix(), rows)
                names = re.findall(r'^#include "([^"]+)"', file.read_text(), re.M)
                found[row] |= {row_of(name, rows) for name in names} - {None, row}
    return found


def undeclared_includes(root, architecture):
    """Includes that the table of folders does not allow, neither itself nor by way of others."""
    rows = dict(re.findall(r"^\| `([\w/]+)/` \|.*\| ?([^|]*?) ?\|$", architecture, re.M))
    rows.pop("tests", None)  # they may include anything
    may = {row: set(re.findall(r"`([\w/]+)`", cell)) & set(rows) for row, cell in rows.items()}
    there = includes(root, rows)
    for row in sorted(may):
        reached, waiting = set(), [row]
        while waiting:
            new = may[waiting.pop()] - reached
            reached |= new
            waiting += new
        if row in reached:
            yield f"{row}/ may include itself, by way of others"
        for other in sorted(there[row] - reached):
            yield f"{row}/ includes {other}/, which docs/architecture.md does not say"
