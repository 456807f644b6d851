#!/usr/bin/env python3
"""Measures daemons that share a store, and compares the simulator with them. Needs redis-server and haproxy.

  fleet.py first-token QUIRE MODEL.gguf [--tokens 4000] [--rounds 3]
      The first token of a conversation's second turn at another daemon, which fetches its blocks, over the first token of a
      conversation of the same length that this daemon computes; in turns.
  fleet.py throughput QUIRE MODEL.gguf [--requests 60] [--rounds 3] [--states killed,slow,...]
      What three daemons behind HAProxy generate while their store is in a bad state, over what three daemons without a store
      generate of the same requests; in turns.
  fleet.py simulate QUIRE MODEL.gguf [--requests 240] [--rate 1.2] [--rounds 3]
      One trace through three daemons behind HAProxy, by turns to each, with a store, and through `quire simulate` at the price
      of the steps that one of them computed (POST /admin/trace), as they scatter: percentiles side by side.
      With `--prefill 0 1` also with one daemon that computes the prompts of the two others, in turns, at the same price.

Each prints a table with its must and ends with PASS or FAIL, which is the exit code too. Times are of one machine: compare ratios. Start it
before all others (`chrt -r 1`) where other programs run beside. For a fleet whose daemons have a thread each use a small model.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import urllib.request

from fleet_parts import NUM_DAEMONS, Daemon, PrefillRouter, Relay, Store, ask, fleet, load, words

MOST_FIRST_TOKEN = 1 / 8  # fetching over computing
LEAST_THROUGHPUT = 0.95  # with a bad store over without one
MOST_ERROR = 0.20  # of a simulated percentile
HASH_BLOCK = 512  # tokens, in a trace of Mooncake's form


def verdict(is_good):
    print("PASS" if is_good else "FAIL")
    raise SystemExit(0 if is_good else 1)


# First token of a second turn.

def first_token(options):
    store = Store()
    here = there = None
    ratios = []
    try:
        here, there = (Daemon(options, options.flags, store.url) for _ in range(2))
        print(f"{'round':>5} {'fetched, s':>11} {'computed, s':>12} {'ratio':>7} {'tokens':>7} {'computed of them':>17}")
        for number in range(options.rounds):
            turn = words(options.tokens, 2 * number)
            _, _, _, answer = ask(here, turn, 32)
            here.published()
            fetched, tokens, cached, _ = ask(there, f"{turn}{answer} {words(32, -number)}", 1)
            computed, _, none, _ = ask(there, words(options.tokens + 64, 2 * number + 1), 1)
            if none > 32:
                raise SystemExit("what was to be computed was cached")
            there.published()
            ratios.append(fetched / computed)
            print(f"{number:>5} {fetched:>11.3f} {computed:>12.3f} {ratios[-1]:>7.3f} {tokens:>7} {tokens - cached:>17}", flush=True)
    finally:
        for daemon in (here, there):
            if daemon:
                daemon.stop()
        store.stop()
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f}, must be at most {MOST_FIRST_TOKEN}")
    verdict(median <= MOST_FIRST_TOKEN)


# Throughput beside a bad store.

@contextlib.contextmanager
def bad_store(state, store, relay):
    """The state holds within, and the store is whole again behind it."""
    over = threading.Event()

    def restart():
        while not over.wait(1.5):
            store.kill()
            store.start()

    thread = threading.Thread(target=restart)
    if state == "killed":
        store.kill()
    elif state == "slow":
        relay.delay = 1.0
    elif state == "filled":
        store.kill()
        store.start("--maxmemory", "2mb", "--maxmemory-policy", "noeviction")
    elif state == "garbage":
        relay.garbage = b"$-5\r\n*3\r\n+PONG\r\n"
    elif state == "restarted":
        thread.start()
    elif state != "healthy":
        raise SystemExit(f"no such state: {state}")
    try:
        yield
    finally:
        over.set()
        if thread.ident:
            thread.join()
        relay.delay, relay.garbage = 0.0, None
        store.kill()
        store.start()


def throughput(options):
    states = options.states.split(",")
    ratios = {state: [] for state in states}
    store = Store()
    relay = Relay(store.port)
    try:
        with fleet(options, options.flags) as (plain, _), fleet(options, options.flags, relay.url) as (shared, daemons):
            print(f"{'round':>5} {'store':>10} {'tok/s':>8} {'without':>8} {'ratio':>6}")
            for number in range(options.rounds):
                for place, state in enumerate(states):
                    flags = ["--requests", str(options.requests), "--concurrency", "12", "--prompt", "96-256", "--output", "32-64"]
                    flags += ["--seed", str(1000 * (number + 1) + place)]
                    # By turns first, so that neither always meets what the other left behind.
                    figures = {}
                    for is_shared in ((True, False), (False, True))[number % 2]:
                        if is_shared:
                            with bad_store(state, store, relay):
                                figures[True] = load(options, shared, *flags)["output_tokens_per_second"]
                        else:
                            figures[False] = load(options, plain, *flags)["output_tokens_per_second"]
                    for daemon in daemons:
                        daemon.metric_becomes("quire:shared_store_up", 1)
                    ratios[state].append(figures[True] / figures[False])
                    print(f"{number:>5} {state:>10} {figures[True]:>8.1f} {figures[False]:>8.1f} {ratios[state][-1]:>6.3f}", flush=True)
    finally:
        store.stop()
    is_good = True
    for state, values in ratios.items():
        median = statistics.median(values)
        must = f", must be at least {LEAST_THROUGHPUT}" if state != "healthy" else ""
        is_good = is_good and (state == "healthy" or median >= LEAST_THROUGHPUT)
        print(f"{state}: median ratio {median:.3f} of {len(values)}{must}")
    verdict(is_good)


# The simulator against daemons.

def write_trace(path, options):
    """Conversations behind a few system prompts, whose turns come one after another, as lines of Mooncake's form."""
    generator = random.Random(7)
    now, lines, conversations, next_id = 0.0, [], [], options.prefixes
    for _ in range(options.requests):
        now += generator.expovariate(options.rate)
        if conversations and generator.random() < 0.5:
            ids = conversations.pop(0)
        else:
            ids = [generator.randrange(options.prefixes)]
        ids = ids + [next_id]
        next_id += 1
        if len(ids) <= options.turns:
            conversations.append(ids)
        # The last of its blocks is whole only where another turn follows.
        length = HASH_BLOCK * (len(ids) - 1) + generator.randint(*options.tail)
        output = generator.randint(*options.output)
        lines.append({"timestamp": int(1000 * now), "input_length": length, "output_length": output, "hash_ids": ids})
    with open(path, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


class StepTraces:
    """Traces of a daemon's steps while it serves, one behind the other, as files."""

    SECONDS = 10

    def __init__(self, daemon, prefix):
        self.daemon, self.prefix, self.paths = daemon, prefix, []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.over.is_set():
            request = urllib.request.Request(f"http://127.0.0.1:{self.daemon.admin_port}/admin/trace?seconds={self.SECONDS}", method="POST")
            with urllib.request.urlopen(request, timeout=600) as answer:
                trace = answer.read()
            self.paths.append(f"{self.prefix}-{len(self.paths)}.json")
            with open(self.paths[-1], "wb") as file:
                file.write(trace)

    @staticmethod
    def end_all(traces):
        for each in traces:
            each.over.set()
        for each in traces:
            each.thread.join()
        return [each.paths for each in traces]


def percentiles(report, in_seconds):
    rows = {}
    for name in ("ttft", "itl", "e2e"):
        values = report[f"{name}_s" if in_seconds else f"{name}_ms"]
        for share in ("p50", "p90", "p99"):
            rows[f"{name} {share}"] = values[share] * (1000 if in_seconds else 1)
    return rows


def serve_trace(options, trace, store, num_prefill, prefix):
    """What three fresh daemons took for a trace, as percentiles, and the files of each one's steps."""
    flags = [*options.flags, "--backend.cpu.threads", "1", "--num-blocks", str(options.blocks), "--kv-cache.dtype", options.cache]
    with fleet(options, flags, store) as (port, daemons):
        for place, daemon in enumerate(daemons):  # what a process does once is no price of a step
            ask(daemon, words(200, -place), 8)
            daemon.published()
        router = PrefillRouter(daemons[:num_prefill], daemons[num_prefill:]) if num_prefill else None
        traces = [StepTraces(daemon, f"{prefix}-{place}") for place, daemon in enumerate(daemons)]
        report = load(options, router.port if router else port, "--trace", trace, "--requests", str(options.requests), "--token-ids")
        read = sum(daemon.metric("quire:shared_store_blocks_read_total") for daemon in daemons)
        costs = StepTraces.end_all(traces)
        if router:
            router.stop()
    print(f"{report['seconds']:.0f} s, {num_prefill} of {NUM_DAEMONS} for prompts: {report['cached_tokens'] / report['prompt_tokens']:.3f} of "
          f"{report['prompt_tokens']} prompt tokens cached, {read:.0f} blocks read from the store", flush=True)
    return percentiles(report, False), costs


def predict(options, trace, costs, num_prefill, out):
    command = [options.quire, "simulate", "--trace", trace, "--cost", *costs, "--replicas", str(NUM_DAEMONS), "--prefill-replicas", str(num_prefill),
               "--route", "round-robin", "--shared", "1000000", "--json", out]
    for setting in (f"num_blocks={options.blocks}", f"can_end_early={str(not options.gpu).lower()}", "target_itl_ms=150",
                    f"shared_block_ms={options.block_ms}", "shared_latency_ms=1"):
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(out) as file:
        report = json.load(file)
    return percentiles(report[0] if isinstance(report, list) else report, True)


def simulate(options):
    folder = tempfile.mkdtemp(prefix="quire-simulate-")
    trace, out = (os.path.join(folder, name) for name in ("trace.jsonl", "report.json"))
    rounds = {num_prefill: [] for num_prefill in options.prefill}
    store = Store()
    try:
        write_trace(trace, options)
        for number in range(options.rounds):
            for num_prefill, served in rounds.items():
                prefix = os.path.join(folder, f"steps-{number}-{num_prefill}")
                served.append(serve_trace(options, trace, f"{store.url}/{number}", num_prefill, prefix))
                store.kill()
                store.start()
        is_good = True
        for num_prefill, served in rounds.items():
            # At the price of one daemon's steps in the same minutes: most of what is predicted is not in it.
            prices = [costs[-1] for _, costs in rounds[0]] if 0 in rounds else [sum(costs, []) for _, costs in served]
            pairs = [(real, predict(options, trace, price, num_prefill, out)) for (real, _), price in zip(served, prices)]
            print(f"{num_prefill} of {NUM_DAEMONS} for prompts\n{'ms':>9} {'daemons':>9} {'simulated':>10} {'ratio':>6}  of each round")
            for name in pairs[0][0]:
                ratios = [simulated[name] / real[name] for real, simulated in pairs]
                medians = [statistics.median(each[place][name] for each in pairs) for place in range(2)]
                is_good = is_good and abs(statistics.median(ratios) - 1) <= MOST_ERROR
                print(f"{name:>9} {medians[0]:>9.1f} {medians[1]:>10.1f} {statistics.median(ratios):>6.3f}  " + " ".join(f"{ratio:.3f}" for ratio in ratios))
    finally:
        store.stop()
        if options.keep:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"must be from {1 - MOST_ERROR} to {1 + MOST_ERROR}")
    verdict(is_good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("first-token", first_token), ("throughput", throughput), ("simulate", simulate)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("quire")
        command.add_argument("model")
        command.add_argument("--rounds", type=int, default=3)
        command.add_argument("--share", type=float, help="of a processor, which a daemon has for itself (control groups; needs root)")
        command.add_argument("--flags", type=str.split, default=[], help="of every daemon, such as '--isa avx2'")
        if name == "first-token":
            command.add_argument("--tokens", type=int, default=4000)
        else:
            command.add_argument("--requests", type=int, default=60 if name == "throughput" else 240)
        if name == "throughput":
            command.add_argument("--states", default="healthy,killed,slow,filled,restarted,garbage")
        if name == "simulate":
            command.add_argument("--prefill", type=int, nargs="+", default=[0], choices=range(NUM_DAEMONS),
                                 help="of the three daemons compute prompts for the others; several are measured in turns")
            command.add_argument("--turns", type=int, default=2, help="of a conversation")
            for flag, low, high, text in (("--tail", 64, 400, "prompt tokens behind the blocks of 512"), ("--output", 8, 48, "tokens of an answer")):
                command.add_argument(flag, type=int, nargs=2, default=(low, high), metavar=("LOW", "HIGH"), help=text)
            command.add_argument("--prefixes", type=int, default=24, help="system prompts of 512 tokens, one for each conversation")
            command.add_argument("--rate", type=float, default=1.2, help="requests a second")
            command.add_argument("--blocks", type=int, default=1024, help="of each daemon")
            command.add_argument("--block-ms", type=float, default=0.5, help="a block's time to the store or from it")
            command.add_argument("--cache", default="f16", help="type of keys and values")
            command.add_argument("--gpu", action="store_true", help="the daemons compute on one, where a step does not end early")
            command.add_argument("--keep", action="store_true", help="leave the trace and the steps, and say where")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: exit(1))
    options.function(options)


if __name__ == "__main__":
    main()
