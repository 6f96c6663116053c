"""kubectl, and waiting. Everything goes through the command that people use."""
import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.request

import yaml


class KubectlError(Exception):
    """kubectl failed; the text is what it said."""


def until(what, condition, seconds=120, every=0.5):
    """Asks until condition() is true and returns what it gave; a KubectlError counts as "not yet"."""
    end = time.monotonic() + seconds
    while True:
        said = None
        try:
            value = condition()
            if value:
                return value
        except (KubectlError, OSError, ValueError) as error:
            value, said = None, error
        if time.monotonic() > end:
            detail = f": {said}" if said else f": {value!r}" if value is not None else ""
            raise AssertionError(f"not within {seconds} s: {what}{detail}")
        time.sleep(every)


def kubectl(*arguments, stdin=None, timeout=120):
    """Runs kubectl and returns its output."""
    try:
        done = subprocess.run(["kubectl", *arguments], input=stdin, text=True, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except subprocess.TimeoutExpired as error:
        raise KubectlError(f"kubectl {' '.join(arguments)}: no end after {timeout} s") from error
    if done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def get_json(*arguments):
    return json.loads(kubectl(*arguments, "-o", "json"))


def render(folder):
    """The objects that `kubectl apply -k FOLDER` would send: of the operator, which is installed so."""
    return [each for each in yaml.safe_load_all(kubectl("kustomize", str(folder))) if each]


def server_version():
    """(major, minor)"""
    version = get_json("version")["serverVersion"]
    return int(version["major"]), int(re.match(r"\d+", version["minor"])[0])


@contextlib.contextmanager
def forwarded(namespace, target, port=9464):
    """The local address of PORT of a pod or service, while the context lasts."""
    process = subprocess.Popen(["kubectl", "-n", namespace, "port-forward", target, f":{port}"],
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = process.stdout.readline()
        match = re.search(r"127\.0\.0\.1:(\d+)", line)
        if not match:
            raise KubectlError(f"port-forward {target}: {process.stderr.read().strip()}")
        yield f"127.0.0.1:{match[1]}"
    finally:
        process.terminate()
        process.communicate()


def fetch(address, path):
    """(status, content type, body) of http://ADDRESS/PATH"""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Metrics:
    """What a process's /metrics says."""

    def __init__(self, text):
        self.samples = []
        for line in text.splitlines():
            match = SAMPLE.fullmatch(line)
            if match and not line.startswith("#"):
                labels = dict(LABEL.findall(match[2] or ""))
                self.samples.append((match[1], labels, float(match[3])))

    def get(self, name, **labels):
        """The sum of the samples with these labels; None if there is none."""
        found = [value for sample, has, value in self.samples
                 if sample == name and labels.items() <= has.items()]
        return sum(found) if found else None

    def names(self):
        return {name for name, _, _ in self.samples}
