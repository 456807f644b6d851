#!/usr/bin/env python3
"""What constraining costs: the same number of concurrent completions, free and under a JSON schema, in turns.

    constrained_streams.py QUIRE MODEL.gguf [--streams 32] [--tokens 64] [--rounds 3]

Prints the seconds of every round and the ratio of the medians. All generations have the same number of tokens: free ones
ignore the end, constrained ones are under a schema that cannot end before.
"""

import argparse
import json
import statistics
import subprocess
import threading
import time
import urllib.request

SCHEMA = {
    "type": "array",
    "minItems": 100000,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"enum": ["alpha", "beta", "gamma"]}, "size": {"type": "integer"}},
        "required": ["name", "kind", "size"],
        "additionalProperties": False,
    },
}


def complete(url, body, tokens):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=300))
    assert answer["usage"]["completion_tokens"] == tokens, answer["usage"]


def run(url, streams, tokens, constrained, salt):
    threads = []
    for i in range(streams):
        body = {"model": "m", "prompt": f"{salt} Tell me about item {i} of the list. ", "max_tokens": tokens, "temperature": 1,
                "seed": i, "ignore_eos": True}
        if constrained:
            body["structured_outputs"] = {"json": SCHEMA}
        threads.append(threading.Thread(target=complete, args=(url, body, tokens)))
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=18765)
    options = parser.parse_args()
    server = subprocess.Popen([options.quire, "serve", "--model", options.model, "--alias", "m", "--port", str(options.port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{options.port}"
    try:
        while True:
            try:
                urllib.request.urlopen(base + "/v1/models", timeout=5)
                break
            except OSError:
                assert server.poll() is None, "the server has ended"
                time.sleep(0.2)
        url = base + "/v1/completions"
        run(url, options.streams, 8, True, "warm")
        run(url, options.streams, 8, False, "warm")
        free, constrained = [], []
        for i in range(options.rounds):
            free.append(run(url, options.streams, options.tokens, False, f"free {i}"))
            constrained.append(run(url, options.streams, options.tokens, True, f"held {i}"))
        print("free       ", " ".join(f"{t:.2f}" for t in free), "s")
        print("constrained", " ".join(f"{t:.2f}" for t in constrained), "s")
        print(f"ratio of medians {statistics.median(constrained) / statistics.median(free):.3f}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
