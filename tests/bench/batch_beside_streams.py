#!/usr/bin/env python3
"""What users notice of a batch, and what a batch gets beside users.

    batch_beside_streams.py QUIRE MODEL.gguf [--requests 1000] [--streams 8] [--tokens 96] [--pause 1.5] [--seconds 24] [--settle 8] [--rounds 4]

Users stream answers one after another, with a pause between two. First alone, then beside a batch that has run for the settling time, in turns;
at the end the batch alone. Choose a pause that leaves a part of the machine: on a slow one a longer pause, more seconds and a longer settling.
Prints the time between tokens and to the first token of users alone and beside the batch with their ratios, the share of the wall time in which
the engine computed beside the batch, and the batch's tokens a second beside users against those that it has alone in the time that users leave.
Ends with PASS or FAIL of both bounds, which is the exit code too. Takes about four minutes; the machine must be quiet.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

EDGE = "quire-bench"
MOST_GAP_RATIO = 1.1  # of users' p99 between tokens, beside the batch to alone
LEAST_SHARE = 0.9  # of what users leave, that the batch uses


class Server:
    def __init__(self, binary, model, directory, flags):
        command = [binary, "serve", "--model", model, "--alias", "m", "--port", "0", "--batches.directory", directory, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            found = re.search(r"listening on .*:(\d+)", line)
            if found:
                self.url = f"http://127.0.0.1:{found.group(1)}"
            if " is ready after " in line:
                break
        else:
            raise SystemExit("the server has ended")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def call(self, path, body=None, content_type="application/json"):
        headers = {"Content-Type": content_type} if body is not None else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=600) as answer:
            return answer.read().decode()

    def metric(self, name):
        lines = [line for line in self.call("/metrics").split("\n") if re.match(re.escape(name) + r"[ {]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def counts(self):
        return {"time": time.perf_counter(), "busy": self.metric("quire:step_seconds_sum"),
                "tokens": self.metric("quire:batch_output_tokens_total"), "lines": self.metric("quire:batch_requests_total")}


def start_batch(server, count, tokens, salt):
    lines = []
    for i in range(count):
        prompt = f"{salt} {i}: " + " ".join(f"word{(i * 7 + j) % 97}" for j in range(60))
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        lines.append(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions", "body": body}))
    form = (f'--{EDGE}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{EDGE}\r\nContent-Disposition: form-data; '
            f'name="file"; filename="in.jsonl"\r\n\r\n' + "\n".join(lines) + f"\r\n--{EDGE}--\r\n")
    file = json.loads(server.call("/v1/files", form.encode(), f"multipart/form-data; boundary={EDGE}"))
    fields = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return json.loads(server.call("/v1/batches", json.dumps(fields).encode()))["id"]


def state(server, batch):
    return json.loads(server.call(f"/v1/batches/{batch}"))


class Users:
    """Streams one answer after another until the time is over."""

    def __init__(self, server, options, salt):
        self.server, self.options, self.salt = server, options, salt
        self.gaps, self.firsts, self.tokens = [], [], 0
        self.lock = threading.Lock()

    def run(self, seconds):
        end = time.perf_counter() + seconds
        threads = [threading.Thread(target=self.user, args=(i, end)) for i in range(self.options.streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def user(self, number, end):
        time.sleep(self.options.pause * number / max(1, self.options.streams))
        turn = 0
        while time.perf_counter() < end:
            self.stream(f"{self.salt} user {number} turn {turn}: " + "tell me more. " * 12)
            turn += 1
            time.sleep(self.options.pause)

    def stream(self, prompt):
        body = {"prompt": prompt, "max_tokens": self.options.tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(self.server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        began, last, gaps, count = time.perf_counter(), None, [], 0
        with urllib.request.urlopen(request, timeout=600) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                now = time.perf_counter()
                count += 1
                if last is None:
                    first = now - began
                else:
                    gaps.append(now - last)
                last = now
        with self.lock:
            self.gaps += gaps
            self.firsts.append(first)
            self.tokens += count


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--batch-tokens", type=int, default=64)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--pause", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--settle", type=float, default=8.0, help="seconds that a batch runs alone before users come")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--flags", default="", help="further flags of quire serve, divided by spaces")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="quire-batches-")
    server = Server(options.quire, options.model, directory, options.flags.split())
    try:
        Users(server, options, "warm").run(5)
        alone, beside = Users(server, options, "alone"), Users(server, options, "beside")
        spans, idle_spans, batch = [], [], None
        for round_number in range(options.rounds):
            before = server.counts()
            alone.run(options.seconds)
            idle_spans.append((before, server.counts()))
            batch = start_batch(server, options.requests, options.batch_tokens, f"round {round_number}")
            while state(server, batch)["status"] == "validating":
                time.sleep(0.05)
            time.sleep(options.settle)
            before = server.counts()
            beside.run(options.seconds)
            after = server.counts()
            if state(server, batch)["status"] != "in_progress":
                raise SystemExit("the batch ended before the users did: give more --requests or fewer --seconds")
            spans.append((before, after))
            if round_number + 1 < options.rounds:
                server.call(f"/v1/batches/{batch}/cancel", b"")
                while state(server, batch)["status"] != "cancelled":
                    time.sleep(0.05)
        before = server.counts()
        time.sleep(min(options.seconds, 20))
        after = server.counts()
        alone_rate = (after["tokens"] - before["tokens"]) / (after["time"] - before["time"])
        ratios = {}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            gap = [1000 * percentile(users.gaps, share) for users in (alone, beside)]
            ratios[name] = gap[1] / gap[0]
            first = [1000 * percentile(users.firsts, share) for users in (alone, beside)]
            print(f"between tokens, {name}: alone {gap[0]:.1f} ms, beside {gap[1]:.1f} ms, ratio {gap[1] / gap[0]:.3f}")
            print(f"first token, {name}: alone {first[0]:.0f} ms, beside {first[1]:.0f} ms, ratio {first[1] / first[0]:.3f}")
        wall = sum(b["time"] - a["time"] for a, b in spans)
        busy = sum(b["busy"] - a["busy"] for a, b in spans) / wall
        left = 1 - sum(b["busy"] - a["busy"] for a, b in idle_spans) / sum(b["time"] - a["time"] for a, b in idle_spans)
        rate = sum(b["tokens"] - a["tokens"] for a, b in spans) / wall
        print(f"engine busy beside the batch: {busy:.3f} of the time; users alone leave {left:.3f} of it")
        print(f"batch tokens/s: beside users {rate:.1f}, alone {alone_rate:.1f}; of what users leave: {rate / (alone_rate * left):.3f}")
        print(f"users' tokens/s: alone {alone.tokens / (options.seconds * options.rounds):.1f}, "
              f"beside {beside.tokens / (options.seconds * options.rounds):.1f}; streams {statistics.fmean([len(alone.firsts), len(beside.firsts)]):.0f}")
        used = rate / (alone_rate * left)
        verdicts = [("p99 between tokens", ratios["p99"] <= MOST_GAP_RATIO, f"{ratios['p99']:.3f} of {MOST_GAP_RATIO} at most"),
                    ("batch's share of what users leave", used >= LEAST_SHARE, f"{used:.3f} of {LEAST_SHARE} at least")]
        for name, passed, text in verdicts:
            print(f"{'PASS' if passed else 'FAIL'}: {name}: {text}")
        if not all(passed for _, passed, _ in verdicts):
            raise SystemExit(1)
    finally:
        server.process.kill()
        server.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
