#!/usr/bin/env python3
"""mmlu.py FROM TO: MMLU's validation questions from a folder of arrow files, a subject each, as the published CSV."""
import csv
import pathlib
import sys

import pyarrow


def main():
    source, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.glob("*/validation/data-00000-of-00001.arrow")):
        with file.open("rb") as stream, (out / f"{file.parts[-3]}_val.csv").open("w", newline="") as csv_file:
            rows = csv.writer(csv_file)
            for row in pyarrow.ipc.open_stream(stream).read_all().to_pylist():
                rows.writerow([row["question"], *row["choices"], "ABCD"[row["answer"]]])


if __name__ == "__main__":
    main()
