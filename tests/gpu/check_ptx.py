#!/usr/bin/env python3
"""Holds the kernels' waits against the gate, without a GPU: compiles kernels that are launched early
to PTX for the architectures and counts griddepcontrol.wait in each.

    python3 tests/gpu/check_ptx.py NVCC SOURCE_DIR ARCHITECTURE...   (80 89-real 90a-real ...)

A kernel that is launched while the one before it still works must wait for that one's writes. The
launch asks what the loaded kernel was compiled for; here is checked that code for an architecture
from ALLOT_OVERLAP_ARCH on has the wait, exactly one a kernel, and code for one below has none. A kernel
that lets the next one in does so behind its own wait, or the next one's wait would say nothing of the
kernels before it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile


EARLY = ("combineKernel|choiceKernel|questKernel|tilesKernel|appendKernel|splitKernel|addRmsNormKernel|"
         "gatedSiluKernel|splitRopeKernel|groupPartKernel|groupHeadKernel|"
         "groupRanksKernel|groupChoiceKernel|listPartKernel|choiceHeadKernel")


def waits_by_kernel(nvcc, source, name, architecture, output):
    command = [nvcc, "-ptx", f"-arch=compute_{architecture}", "-std=c++20",
               "--expt-relaxed-constexpr", f"-I{source}", f"-I{source}/kernels/include",
               "-o", str(output), f"{source}/{name}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=600)
    ptx = output.read_text()
    # A kernel's text goes on to the next one's beginning. One of an unnamed namespace is neither
    # visible nor weak.
    parts = re.split(r"^(?:\.visible |\.weak )?\.entry (\w+)\(", ptx, flags=re.M)
    kernels = {}
    for i in range(1, len(parts) - 1, 2):
        text = parts[i + 1]
        wait, trigger = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
        early = trigger in text and text.find(trigger) < text.find(wait)
        kernels[parts[i]] = -1 if early else text.count(wait)
    return kernels


def check(folder):
    output = pathlib.Path(folder) / "kernels.ptx"
    nvcc, source = sys.argv[1], pathlib.Path(sys.argv[2])
    gate = int(re.search(r"#define ALLOT_OVERLAP_ARCH (\d+)",
                         (source / "kernels/cuda/step.h").read_text()).group(1))
    architectures = sorted({text.split("-")[0] for text in sys.argv[3:]})
    wrong, seen, sides, there = [], 0, set(), set()
    for architecture in architectures:
        expected = int(int(re.match(r"\d+", architecture).group()) * 10 >= gate)
        # These take long to compile: once on each side of the gate.
        slow = [f"kernels/cuda/{name}.cu" for name in ("choice", "group_choice", "quest", "tiles",
                                                     "split_flash")]
        names = ["kernels/cuda/combine.cu", "kernels/cuda/append.cu", "kernels/cuda/group_combine.cu",
                 "worker/model/cuda_ops.cu"]
        names += slow * (expected not in sides)
        sides.add(expected)
        for name in names:
            for kernel, waits in waits_by_kernel(nvcc, source, name, architecture,
                                                 output).items():
                found = re.search(EARLY, kernel)
                if not found:
                    continue
                there.add(found[0])
                seen += 1
                if waits != expected:
                    wrong.append(f"compute_{architecture}, {name}: {kernel} " +
                                 ("lets the next one in before it waits" if waits < 0 else
                                  f"waits {waits} times, {expected} is right"))
        print(f"compute_{architecture}: each kernel is to wait {expected} times")
    wrong += [f"no {name} was found in the PTX" for name in EARLY.split("|") if name not in there]
    print("\n".join(wrong) or f"{seen} kernels are as the gate says")
    return 1 if wrong else 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        return check(folder)


if __name__ == "__main__":
    sys.exit(main())
