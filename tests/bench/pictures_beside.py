#!/usr/bin/env python3
"""Effects of pictures on their neighbours.

    pictures_beside.py QUIRE MODEL.gguf MMPROJ.gguf [--size 3840x2160] [--streams 16] [--rounds 3] [--flags '...']

Four rows, each with the medians of the rounds: the p99 between tokens of the streams alone and while a picture of another key is encoded, over
scheduler.target_itl; the first token of a short text alone and behind four pictures of another key, and how many times scheduler.max_step_time lies
between; the p99 of one key's first tokens alone and while another key sends pictures without a pause; and the second turn about a picture: the
cached share of its prompt, and the encoder's seconds that it took. The last column is the bound. Synthetic models of `quire synth` will do. The
machine must be quiet.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import statistics
import tempfile
import threading
import time
import urllib.request

from batch_beside_streams import percentile
from compare import peak_megabytes, random_picture, running_server

PORT = 18191
TOKENS = 300  # length of a stream's text
URL = f"http://127.0.0.1:{PORT}"
KEYS = {"looks": "key-of-pictures-0123456789abcdef", "reads": "key-of-texts-0123456789abcdef"}


def call(body, key, path="/v1/chat/completions"):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[key]}"}
    return urllib.request.urlopen(urllib.request.Request(URL + path, json.dumps(body).encode(), headers), timeout=900)


def metric(name):
    with urllib.request.urlopen(URL + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().split("\n")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(re.escape(name) + r"[ {]", line))


def turn(picture, question):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": question}]}]


def ask(messages, key):
    with call({"messages": messages, "max_tokens": 1, "temperature": 0}, key) as answer:
        return json.load(answer)


def token_times(prompt, tokens, key, stop=None):
    """Times at which the tokens of a stream came; it ends early where `stop` is set."""
    times = []
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    with call(body, key, "/v1/completions") as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
            if stop is not None and stop.is_set():
                break
    return times


def first_token(prompt, key):
    began = time.monotonic()
    return token_times(prompt, 1, key)[0] - began


class Streams:
    """Streams of one key that decode until the block ends."""

    def __init__(self, count, salt):
        self.stop, self.times = threading.Event(), [[] for _ in range(count)]
        self.threads = [threading.Thread(target=self.run, args=(i, salt)) for i in range(count)]

    def run(self, number, salt):
        # Texts of bounded length, one after another: the cost of a stream's step grows with its text.
        while not self.stop.is_set():
            prompt = f"{salt} stream {number} after {len(self.times[number])}: tell me more."
            self.times[number] += token_times(prompt, TOKENS, "reads", self.stop)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(3)
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def gaps(self, begin, end):
        return [b - a for times in self.times for a, b in zip(times, times[1:]) if begin <= b <= end]


def beside_streams(options, salt):
    """p99 between tokens alone, and while a picture is encoded."""
    picture = random_picture(*options.size)
    with Streams(options.streams, salt) as streams:
        began = time.monotonic()
        time.sleep(options.seconds)
        sent = time.monotonic()
        ask(turn(picture, "What is there?"), "looks")
        ended = time.monotonic()
        time.sleep(1)  # the gaps that the picture's end falls into
        return percentile(streams.gaps(began, sent), 0.99), percentile(streams.gaps(sent, ended + 1), 0.99), ended - sent


def behind_pictures(options, salt):
    """The first token of a short text alone, and the longest of those behind four pictures."""
    alone = statistics.median(first_token(f"{salt} alone {i}: hello", "reads") for i in range(5))
    pictures = [random_picture(*options.size) for _ in range(4)]
    threads = [threading.Thread(target=ask, args=(turn(picture, "What is there?"), "looks")) for picture in pictures]
    for thread in threads:
        thread.start()
    behind = []
    while any(thread.is_alive() for thread in threads):
        behind.append(first_token(f"{salt} behind {len(behind)}: hello", "reads"))
        time.sleep(0.2)
    return alone, percentile(behind, 0.99)


def beside_tenant(options, salt):
    """p99 of one key's first tokens alone, and beside another key's pictures without a pause."""
    def firsts(seconds, name):
        found, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            found.append(first_token(f"{salt} {name} {len(found)}: hello", "reads"))
            time.sleep(0.1)
        return percentile(found, 0.99)

    alone = firsts(options.seconds, "alone")
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            ask(turn(random_picture(640, 480), "What is there?"), "looks")

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    beside = firsts(2 * options.seconds, "beside")
    stop.set()
    for thread in threads:
        thread.join()
    return alone, beside


def second_turn(options):
    """Cached share of the second turn's prompt, seconds of the encoder and of decoding files that it took."""
    messages = turn(random_picture(*options.size), "What is there?")
    answer = ask(messages, "looks")
    before = metric("quire:encoder_seconds_total")
    messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "-"}, {"role": "user", "content": "And which colours?"}]
    usage = ask(messages, "looks")["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"], metric("quire:encoder_seconds_total") - before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("mmproj")
    parser.add_argument("--size", type=lambda text: tuple(int(side) for side in text.split("x")), default=(3840, 2160))
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target-itl", type=float, default=0.15, help="scheduler.target_itl in seconds")
    parser.add_argument("--max-step-time", type=float, default=0.25, help="scheduler.max_step_time in seconds")
    parser.add_argument("--flags", default="")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        keys = "".join(f"\n    - {{name: {name}, sha256: {hashlib.sha256(key.encode()).hexdigest()}}}" for name, key in KEYS.items())
        file.write(f"security:\n  keys:{keys}\nscheduler:\n  target_itl: {1000 * options.target_itl:.0f}ms\n"
                   f"  max_step_time: {1000 * options.max_step_time:.0f}ms\n")
        file.flush()
        files = [os.path.abspath(path) for path in (options.quire, options.model, options.mmproj)]
        command = [files[0], "serve", "--config", file.name, "--model", files[1], "--mmproj", files[2], "--server.port",
                   str(PORT), *shlex.split(options.flags)]
        with running_server(command, f"{URL}/readyz") as process:
            ask(turn(random_picture(320, 240), "Warm?"), "looks")
            rows = {"streams": [], "behind": [], "tenant": [], "second": []}
            for number in range(options.rounds):
                rows["streams"].append(beside_streams(options, f"round {number}"))
                rows["behind"].append(behind_pictures(options, f"round {number}"))
                rows["tenant"].append(beside_tenant(options, f"round {number}"))
                rows["second"].append(second_turn(options))
            peak = peak_megabytes(process)
    alone, beside, seconds = (statistics.median(column) for column in zip(*rows["streams"]))
    print("| what | alone | beside | ratio | must |\n| --- | --- | --- | --- | --- |")
    print(f"| {options.streams} streams, p99 between tokens, ms; beside one picture ({seconds:.0f} s), over target_itl | {1e3 * alone:.0f} | {1e3 * beside:.0f} | "
          f"{beside / options.target_itl:.2f} | 1.3 |")
    alone, behind = (statistics.median(column) for column in zip(*rows["behind"]))
    print(f"| first token of a short text behind four pictures of another key, p99, ms; times max_step_time more | {1e3 * alone:.0f} | {1e3 * behind:.0f} | "
          f"{(behind - alone) / options.max_step_time:.2f} | 3 |")
    alone, beside = (statistics.median(column) for column in zip(*rows["tenant"]))
    print(f"| p99 of one key's first tokens beside another's pictures, ms | {1e3 * alone:.0f} | {1e3 * beside:.0f} | {beside / alone:.2f} | 2 |")
    cached, encoder = (statistics.median(column) for column in zip(*rows["second"]))
    print(f"| second turn: cached share of the prompt; seconds of the encoder | | {cached:.3f} | {encoder:.2f} | 0.98; 0 |")
    print(f"peak of resident memory: {peak:.0f} MB")


if __name__ == "__main__":
    main()
