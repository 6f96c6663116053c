#!/usr/bin/env python3
"""Checks that the programs are hardened, and that the check sees a program that is not.

    hardening_test.py PROGRAM...
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = []


def read(program, *what):
    return subprocess.run(["readelf", "-W", *what, program], check=True, capture_output=True, text=True).stdout


def lacking(program):
    """Returns what a program lacks of the protections that CMakeLists.txt asks for."""
    head, segments = read(program, "-h"), read(program, "-l")
    dynamic, symbols = read(program, "-d"), read(program, "--dyn-syms")
    stack = re.search(r"GNU_STACK.*", segments)
    return [name for name, held in (
        ("position-independent code", "DYN" in head),
        ("read-only relocations", "GNU_RELRO" in segments),
        ("immediate binding", "BIND_NOW" in dynamic or "NOW" in dynamic),
        ("a stack without execution", stack is not None and "RWE" not in stack[0]),
        ("stack protection", "__stack_chk_fail" in symbols),
        ("checked library calls", re.search(r" __\w+_chk\b(?<!__stack_chk)", symbols) is not None),
    ) if not held]


class Hardening(unittest.TestCase):
    def test_programs_have_every_protection(self):
        self.assertGreaterEqual(len(PROGRAMS), 4)
        for program in PROGRAMS:
            with self.subTest(program=program):
                self.assertEqual([], lacking(program))

    def test_a_program_without_them_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            source, plain = pathlib.Path(folder, "a.cpp"), str(pathlib.Path(folder, "a"))
            source.write_text('#include <cstdio>\nint main(int, char** v) { std::printf(v[0], v); }\n')
            subprocess.run(["g++", "-w", "-no-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-Wl,-z,norelro",
                            "-Wl,-z,lazy", "-Wl,-z,execstack", "-o", plain, str(source)], check=True)
            self.assertEqual(6, len(lacking(plain)), lacking(plain))


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
