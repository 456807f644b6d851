#!/usr/bin/env python3
"""The server's figures of two builds in turns: server_ratios.py BEFORE NOW [--rounds N]. BEFORE and NOW are build folders that have
quire, bench_server and bench_daemon. Printed are the medians of each and their ratio, now over before: at most 1 is as good or better,
for events per second at least 1."""
import argparse
import pathlib
import re
import statistics
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = SOURCE / "deploy/demo-model/quire-demo.gguf"


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, timeout=300).stdout


def overhead(build):
    """{what: us}"""
    figures = {}
    for kind, p50, p90, p99 in re.findall(r"chat of one token, (\w+): p50 (\d+), p90 (\d+), p99 (\d+) us", run(build / "tests/bench_server", "overhead")):
        figures |= {f"{kind} chat, p50 us": float(p50), f"{kind} chat, p99 us": float(p99)}
    return figures


def streams(build):
    text = run(build / "tests/bench_server", "streams", 1)
    figures = {}
    offered = re.findall(r"(\d+) events/s offered", text)
    seen = re.findall(r"(\d+) events/s, delay p50 ([\d.]+), p99 ([\d.]+)", text)
    used = re.findall(r"server: ([\d.]+) s user, ([\d.]+) s system", text)
    for rate, (events, p50, p99), (user, system) in zip(offered, seen, used, strict=True):
        figures |= {f"{rate} offered: events/s": float(events), f"{rate} offered: delay p50 ms": float(p50),
                    f"{rate} offered: delay p99 ms": float(p99), f"{rate} offered: processor s": float(user) + float(system)}
    return figures


def idle(build):
    text = run(build / "tests/bench_daemon", "idle", build / "quire", MODEL, 10000)
    resident, per_connection = re.search(r": ([\d.]+) MiB resident .*: ([\d.]+) KiB", text).groups()
    return {"10,000 idle connections: MiB resident": float(resident), "10,000 idle connections: KiB for each": float(per_connection)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("now", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("what | before | now | now / before")
    for measure, rounds in ((overhead, options.rounds), (idle, 1), (streams, max(1, options.rounds // 2))):
        taken = {"before": [], "now": []}
        for _ in range(rounds):
            for name in taken:
                taken[name].append(measure(getattr(options, name)))
        for what in taken["now"][0]:
            before, now = (statistics.median(figures[what] for figures in taken[name]) for name in taken)
            print(f"{what} | {before:g} | {now:g} | {now / before:.2f}", flush=True)


if __name__ == "__main__":
    main()
