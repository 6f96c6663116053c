#!/usr/bin/env python3
"""Holds Hopper's attention to what its speed rests on, without a GPU: compiles it for sm_90a and reads
what the assembler says.

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

KERNELS = 2         # heads of 64 and of 128 channels
REGISTERS = 168     # a thread, when the kernel starts; with fewer the warp groups would wait for ever
SPILLED_BYTES = 64  # loads and stores, at most


def main():
    nvcc, source = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [nvcc, "-cubin", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++20", "-O3",
             "--expt-relaxed-constexpr", "-Xptxas", "-v", f"-I{source}", f"-I{source}/kernels/include",
             "-o", f"{folder}/hopper.cubin", f"{source}/kernels/cuda/prefill_hopper.cu"],
            stdin=subprocess.DEVNULL, timeout=280, capture_output=True, text=True)
    said = made.stderr
    if made.returncode != 0:
        print(said)
        return 1
    wrong = [line for line in said.splitlines() if "Potential Performance Loss" in line]
    parts = re.split(r"Compiling entry function '(\w+)'", said)
    seen = 0
    for name, text in zip(parts[1::2], parts[2::2]):
        if "attendHopper" not in name:
            continue
        seen += 1
        registers = int(re.search(r"Used (\d+) registers", text).group(1))
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))
        if registers != REGISTERS or spilled > SPILLED_BYTES:
            wrong.append(f"{name}: {registers} registers, {spilled} bytes spilled; {REGISTERS} and "
                         f"at most {SPILLED_BYTES} are right")
        print(f"{name}: {registers} registers, {spilled} bytes spilled")
    if seen != KERNELS:
        wrong.append(f"{seen} kernels of attendHopper() were found, {KERNELS} are right")
    print("\n".join(wrong) or "products run beside other instructions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
