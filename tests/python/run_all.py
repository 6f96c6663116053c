#!/usr/bin/env python3
"""The tests of this folder where there is no pytest: `python run_all.py [PART OF A NAME]`. Exits with 1
if one fails."""

import importlib
import pathlib
import sys
import time
import traceback

FOLDER = pathlib.Path(__file__).parent


def main():
    sys.path.insert(0, str(FOLDER))
    failed = 0
    for path in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        for name in [name for name in dir(module) if name.startswith("test_")]:
            whole = f"{path.stem}.{name}"
            if not all(part in whole for part in sys.argv[1:]):
                continue
            begin, status = time.time(), "ok"
            try:
                getattr(module, name)()
            except Exception:
                traceback.print_exc()
                status, failed = "FAILED", failed + 1
            print(f"{status} {whole} {time.time() - begin:.1f} s", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
