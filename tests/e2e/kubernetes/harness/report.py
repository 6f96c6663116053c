"""Times and figures that the scenarios measured, printed when all are done."""
import time

_lines = []


def note(what, value):
    _lines.append((what, value))
    print(f"    {what}: {value}", flush=True)


class Stopwatch:
    def __init__(self):
        self.begun = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begun

    def note(self, what):
        note(what, f"{self.seconds():.1f} s")


def summary():
    width = max((len(what) for what, _ in _lines), default=0)
    return "\n".join(f"{what:<{width}}  {value}" for what, value in _lines)
