#!/usr/bin/env python3
"""Holds Hopper's kernels of prompts to what their speed rests on, without a GPU: compiles them for sm_90a
and reads what the assembler says.

    python3 tests/gpu/check_hopper.py NVCC SOURCE_DIR

Products of a warp group run beside other instructions only if the assembler can follow their
registers. Where it cannot, it makes every product wait and says so in a remark (C7510 and its
neighbours), and the kernel takes half as long again. A register that does not fit is spilled.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# By file: the kernels, how many there are by size of heads, registers a thread when it starts (with
# fewer the warp groups would wait for ever), and the most bytes of spilled loads and stores.
KERNELS = {"prefill_hopper.cu": [("attendHopper", 2, 168, 64), ("attendSkippingOnHopper", 2, 168, 0)],
           "prefill_sale.cu": [("findReachedOnHopper", 1, 96, 0)]}


def check(nvcc, source, file):
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [nvcc, "-cubin", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++20", "-O3",
             "--expt-relaxed-constexpr", "-Xptxas", "-v", f"-I{source}", f"-I{source}/kernels/include",
             "-o", f"{folder}/hopper.cubin", f"{source}/kernels/cuda/{file}"],
            stdin=subprocess.DEVNULL, timeout=280, capture_output=True, text=True)
    said = made.stderr
    if made.returncode != 0:
        return [said]
    wrong = [line for line in said.splitlines() if "Potential Performance Loss" in line]
    parts = re.split(r"Compiling entry function '(\w+)'", said)
    for kernel, count, registers_wanted, most_spilled in KERNELS[file]:
        found = [(name, text) for name, text in zip(parts[1::2], parts[2::2]) if kernel in name]
        if len(found) != count:
            wrong.append(f"{len(found)} kernels of {kernel}() were found, {count} are right")
        for name, text in found:
            registers = int(re.search(r"Used (\d+) registers", text).group(1))
            spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))
            if registers != registers_wanted or spilled > most_spilled:
                wrong.append(f"{name}: {registers} registers, {spilled} bytes spilled; "
                             f"{registers_wanted} and at most {most_spilled} are right")
            print(f"{name}: {registers} registers, {spilled} bytes spilled")
    return wrong


def main():
    nvcc, source = sys.argv[1], pathlib.Path(sys.argv[2])
    wrong = [line for file in KERNELS for line in check(nvcc, source, file)]
    print("\n".join(wrong) or "products run beside other instructions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
