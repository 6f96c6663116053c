#!/usr/bin/env python3
"""Holds the kernels' waits against the gate, without a GPU: compiles the finishing kernels to PTX
for the architectures and counts griddepcontrol.wait in each.

    python3 tests/gpu/check_ptx.py NVCC SOURCE_DIR ARCHITECTURE...   (80 89-real 90a-real ...)

A kernel that is launched while the one before it still works must wait for that one's writes. The
launch asks what the loaded kernel was compiled for; here is checked that code for an architecture
from ALLOT_OVERLAP_ARCH on has the wait, exactly one a kernel, and code for one below has none.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def waits_by_kernel(nvcc, source, name, architecture, output):
    command = [nvcc, "-ptx", f"-arch=compute_{architecture}", "-std=c++20",
               "--expt-relaxed-constexpr", f"-I{source}", f"-I{source}/kernels/include",
               "-o", str(output), f"{source}/{name}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=600)
    ptx = output.read_text()
    # A kernel's text goes on to the next one's beginning.
    parts = re.split(r"^\.visible \.entry (\w+)\(|^\.weak \.entry (\w+)\(", ptx, flags=re.M)
    kernels = {}
    for i in range(1, len(parts) - 2, 3):
        kernels[parts[i] or parts[i + 1]] = parts[i + 2].count("griddepcontrol.wait")
    return kernels


def check(folder):
    output = pathlib.Path(folder) / "kernels.ptx"
    nvcc, source = sys.argv[1], pathlib.Path(sys.argv[2])
    gate = int(re.search(r"#define ALLOT_OVERLAP_ARCH (\d+)",
                         (source / "kernels/cuda/step.h").read_text()).group(1))
    architectures = sorted({text.split("-")[0] for text in sys.argv[3:]})
    wrong, seen, sides = [], 0, set()
    for architecture in architectures:
        expected = int(int(re.match(r"\d+", architecture).group()) * 10 >= gate)
        # These take long to compile: once on each side of the gate.
        slow = [f"kernels/cuda/{name}.cu" for name in ("choice", "quest", "tiles", "sweep_flash")]
        names = ["kernels/cuda/finish.cu", "kernels/cuda/append.cu", "model/cuda_ops.cu"] + slow * (expected not in sides)
        sides.add(expected)
        for name in names:
            for kernel, waits in waits_by_kernel(nvcc, source, name, architecture,
                                                 output).items():
                if not re.search("finishKernel|choiceKernel|questKernel|tilesKernel|addRmsNormKernel|"
                                 "gatedSiluKernel|splitRopeKernel|appendKernel|sweepKernel", kernel):
                    continue
                seen += 1
                if waits != expected:
                    wrong.append(f"compute_{architecture}, {name}: {kernel} waits {waits} times, "
                                 f"{expected} is right")
        print(f"compute_{architecture}: each finishing kernel is to wait {expected} times")
    if seen == 0:
        wrong.append("no finishing kernel was found in the PTX")
    print("\n".join(wrong) or f"{seen} kernels are as the gate says")
    return 1 if wrong else 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        return check(folder)


if __name__ == "__main__":
    sys.exit(main())
