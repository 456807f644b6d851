#!/usr/bin/env python3
"""What LoRA adapters cost: 32 streams of one model, with none, with one adapter and with sixteen.

    adapters.py QUIRE MODEL.gguf [--rank 16] [--streams 32] [--tokens 48] [--rounds 3]

Makes sixteen adapters of random weights (f16) that change every matrix of attention and feed-forward, serves the model with them, and lets all
streams decode together, in turns. Prints output tokens a second of each and its ratio to none; the machine must be quiet."""

import argparse
import array
import json
import pathlib
import random
import re
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

CHANGED = re.compile(r"blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight")
NUM_ADAPTERS = 16
F16 = 1  # GGUF's number of the type


def matrices(quire, model):
    """The architecture, and {name: [inputs, outputs]}."""
    report = json.loads(subprocess.check_output([quire, "inspect", "--json", "--tensors", model]))
    return report["model"]["architecture"], {each["name"]: each["shape"] for each in report["tensors"] if CHANGED.fullmatch(each["name"])}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write_adapter(path, architecture, shapes, rank, seed):
    source = random.Random(seed)
    largest = max(rank * size for shape in shapes.values() for size in shape)
    # Halves between 2^-7 and 2^-6, of either sign.
    numbers = array.array("H", (0x2000 + source.randrange(0x400) + 0x8000 * source.randrange(2) for _ in range(2 * largest)))
    keys = [text(key) + struct.pack("<I", 8) + text(value)
            for key, value in (("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", architecture))]
    keys.append(text("adapter.lora.alpha") + struct.pack("<If", 6, rank))
    table, data, offset = [], [], 0
    for name, (inputs, outputs) in shapes.items():
        for ending, shape in (("lora_a", (inputs, rank)), ("lora_b", (rank, outputs))):
            count = shape[0] * shape[1]
            begin = source.randrange(len(numbers) - count)
            values = numbers[begin:begin + count].tobytes()
            values += bytes(-len(values) % 32)
            table.append(text(f"{name}.{ending}") + struct.pack("<IQQIQ", 2, *shape, F16, offset))
            data.append(values)
            offset += len(values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(keys)) + b"".join(keys) + b"".join(table)
    path.write_bytes(head + bytes(-len(head) % 32) + b"".join(data))


def ask(url, model, i, tokens):
    body = {"model": model, "prompt": [100 + i, 5, 6, 7], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=600))["usage"]["completion_tokens"]


def rate(url, models, streams, tokens):
    begin = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(url, models[i % len(models)], i, tokens)) for i in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return streams * tokens / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = [f"adapter-{i}" for i in range(NUM_ADAPTERS)]
    with tempfile.TemporaryDirectory() as folder:
        flags = []
        for i, name in enumerate(names):
            path = pathlib.Path(folder) / name
            write_adapter(path, *matrices(options.quire, options.model), options.rank, i)
            flags += ["--adapters", f"{name}={path}"]
        server = subprocess.Popen([options.quire, "serve", "--model", options.model, "--alias", "plain", "--port", "0", *flags],
                                  stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        url = None
        for line in server.stderr:
            url = url or (found := re.search(r"listening on (.*:\d+)", line)) and "http://" + found.group(1)
            if " is ready after " in line:
                break
        threading.Thread(target=server.stderr.read, daemon=True).start()
        loads = {"none": ["plain"], "one adapter": names[:1], "sixteen adapters": names}
        ask(url, "plain", 0, options.tokens)
        rates = {what: [] for what in loads}
        for _ in range(options.rounds):
            for what, models in loads.items():
                rates[what].append(rate(url, models, options.streams, options.tokens))
        server.terminate()
        server.wait()
    for what, each in rates.items():
        print(f"{what}: {statistics.median(each):.1f} tok/s, {statistics.median(each) / statistics.median(rates['none']):.2f} of none")


if __name__ == "__main__":
    main()
