#!/usr/bin/env python3
"""Packs a folder of inputs into a corpus of fuzzing, and unpacks one. Equal inputs make equal archives.

    python3 tests/fuzz/pack.py pack FOLDER NAME     writes NAME_seed_corpus.zip beside this file
    python3 tests/fuzz/pack.py unpack NAME FOLDER   writes its files below FOLDER, which must not exist
"""
import pathlib
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold


def archive(name):
    return HERE / f"{name}_seed_corpus.zip"


def pack(inputs, name):
    """Writes the archive of {path: bytes}."""
    with zipfile.ZipFile(archive(name), "w") as target:
        for path in sorted(inputs):
            entry = zipfile.ZipInfo(path, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever it is packed
            entry.external_attr = 0o100644 << 16
            target.writestr(entry, inputs[path], compresslevel=9)


def main():
    command, *arguments = sys.argv[1:] or [""]
    if len(arguments) != 2 or command not in ("pack", "unpack"):
        sys.exit(__doc__)
    if command == "pack":
        folder, name = pathlib.Path(arguments[0]), arguments[1]
        inputs = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if not inputs:
            sys.exit(f"pack.py: {folder} holds no file")
        pack(inputs, name)
    else:
        folder = pathlib.Path(arguments[1])
        folder.mkdir(parents=True)
        with zipfile.ZipFile(archive(arguments[0])) as source:
            source.extractall(folder)


if __name__ == "__main__":
    main()
