#!/usr/bin/env python3
"""Counts the instructions of products on arm64's levels, per byte of weights, one by one under qemu.
Usage: count_product.py BUILD SYSROOT. Prints a table; functions of the product alone are counted, not what packs its inputs.
Exit 1 where a count is over 1.25 times what it takes by hand, or over the peer's (tests/performance.md)."""
import os
import re
import subprocess
import sys
import tempfile

PRODUCT = re.compile(r"gemm_int|int_rows|int_few_rows|multiply_chunk|unpack<|RowsProduct|int_block")


# By hand, of one row and of 32 (tests/performance.md).
BY_HAND = {
    "neon": {"Q8_0": (0.285, 10.1), "Q4_0": (0.549, 15.6), "Q4_K": (0.656, 16.7)},
    "dotprod": {"Q8_0": (0.154, 3.41), "Q4_0": (0.365, 6.56), "Q4_K": (0.490, 7.27)},
    "i8mm": {"Q8_0": (0.154, 2.62), "Q4_0": (0.365, 5.07), "Q4_K": (0.490, 5.89)},
}
ALLOWED = 1.25
# ggml d99724f2, counted the same way.
PEER = {
    "neon": {"Q8_0": (0.778, 24.9), "Q4_0": (1.636, 52.4), "Q4_K": (1.594, 51.0)},
    "dotprod": {"Q8_0": (0.192, 3.96), "Q4_0": (0.475, 7.14), "Q4_K": (0.716, 14.2)},
    "i8mm": {"Q8_0": (0.273, 3.79), "Q4_0": (0.572, 5.80), "Q4_K": (0.775, 11.4)},
}


def product_functions(program):
    """[(begin, end)] of the product's functions."""
    lines = subprocess.run(["nm", "-C", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines()
    found = []
    for line in lines:
        match = re.match(r"([0-9a-f]+) ([0-9a-f]+) [tT] (.*)", line)
        if match and PRODUCT.search(match[3]):
            begin = int(match[1], 16)
            found.append((begin, begin + int(match[2], 16)))
    return sorted(found)


def count(program, root, ranges, level, kind, rows):
    """(instructions, bytes of weights) of one product."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        os.mkfifo(log)
        low, high = ranges[0][0], ranges[-1][1]
        qemu = ["qemu-aarch64-static", "-cpu", "max", "-L", root, "-singlestep", "-d", "exec,nochain", "-D", log,
                "-dfilter", f"{low:#x}+{high - low:#x}", program, level, kind, str(rows)]
        with subprocess.Popen(qemu, stdout=subprocess.PIPE, text=True) as process:
            seen = {}
            with open(log, encoding="utf-8") as lines:
                for line in lines:
                    address = line.split("/")[1]
                    seen[address] = seen.get(address, 0) + 1
            num_bytes = int(process.stdout.read())
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(qemu)} failed")
    inside = lambda at: any(begin <= at < end for begin, end in ranges)
    return sum(times for address, times in seen.items() if inside(int(address, 16))), num_bytes


def main():
    build, root = sys.argv[1:3]
    program = os.path.join(build, "tests", "count_product")
    ranges = product_functions(program)
    print("| level | type | 1 row | by hand | peer | 32 rows | by hand | peer |\n|" + " --- |" * 8)
    failed = False
    for level in ["neon", "dotprod", "i8mm"]:
        for kind in ["Q8_0", "Q4_0", "Q4_K"]:
            cells = []
            for rows, hand, peer in zip([1, 32], BY_HAND[level][kind], PEER[level][kind]):
                instructions, num_bytes = count(program, root, ranges, level, kind, rows)
                counted = instructions / num_bytes
                cells += [f"{counted:.3g}", f"{hand:.3g}", f"{peer:.3g}"]
                failed |= counted > hand * ALLOWED or counted > peer
            print(f"| {level} | {kind} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(1 if failed else 0)


main()
