#!/usr/bin/env python3
"""Measures Quire and a peer (llama-bench, llama-server or a fork of them) in turns and prints medians and ratios.

  compare.py engine --quire Q --peer-bench B --model M.gguf [...] --results R.jsonl     prefill and decode, one stream
  compare.py serve  --quire Q --peer-server S --model M.gguf --concurrency 1,8,32 --results R.jsonl
  compare.py embed  --quire Q --peer-server S --model ENCODER.gguf --results R.jsonl    512 texts of about 128 tokens
  compare.py image  --quire Q --peer-server S --model M.gguf --mmproj T.gguf --results R.jsonl     one picture, asked about twice
  compare.py report --results R.jsonl

Every call appends one line per measurement, so that several short calls at quiet times make one table.
"""

import argparse
import base64
import collections
import concurrent.futures
import contextlib
import json
import os
import random
import shlex
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zlib


def run_json(command, folder):
    path = os.path.join(folder, "out.json")
    subprocess.run(command + ["--json", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path) as file:
        return json.load(file)


def quire_engine(args, model, folder):
    command = [args.quire, "bench", "throughput", "--model", model, "--prompt", str(args.prompt), "--output", str(args.output),
               "--sequences", "1", "--repeats", "1", "--threads", str(args.threads), "--isa", args.isa]
    row = run_json(command, folder)["rows"][0]
    return {"prefill": row["prompt_tokens_per_second"], "decode": row["decode_tokens_per_second"],
            "weights GB/s": row["weight_gigabytes_per_second"]}


def peer_engine(args, model):
    command = [args.peer_bench, "-m", model, "-p", str(args.prompt), "-n", str(args.output), "-t", str(args.threads), "-r", "1",
               "-o", "json"] + shlex.split(args.peer_options)
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    out = {}
    for row in json.loads(text[text.index("["):]):
        out["prefill" if row["n_prompt"] > 0 else "decode"] = row["avg_ts"]
    return out


def append(args, record):
    with open(args.results, "a") as file:
        file.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)


def engine(args):
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for model in args.model:
                name = f"{os.path.basename(model)}, prompt {args.prompt}"
                if args.quire:
                    append(args, {"what": name, "who": args.name, **quire_engine(args, model, folder)})
                if args.peer_bench:
                    append(args, {"what": name, "who": "peer", **peer_engine(args, model)})


def wait_ready(url, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("the server ended before it was ready")
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    raise SystemExit("the server was not ready within a minute")


def peak_megabytes(process):
    with open(f"/proc/{process.pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0


@contextlib.contextmanager
def running_server(command, ready_url):
    """The process of a server that is ready, in a folder of its own for the logs that it writes; both end with the block."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        try:
            wait_ready(ready_url, process)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def serve_once(args, who, command, port, ready, concurrency, folder):
    started = time.monotonic()
    with running_server(command, f"http://127.0.0.1:{port}{ready}") as process:
        seconds = time.monotonic() - started
        requests = max(args.requests_per_stream * concurrency, 4)
        load = [args.quire, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--concurrency",
                str(concurrency), "--requests", str(requests), "--prompt", args.prompts, "--output", args.outputs]
        if args.shared_prefix:
            load += ["--shared-prefix", str(args.shared_prefix)]
        report = run_json(load, folder)
        append(args, {"what": f"{os.path.basename(args.model[0])}, {concurrency} streams"
                      + (f", prefix {args.shared_prefix}" if args.shared_prefix else ""), "who": who,
                      "output tok/s": report["output_tokens_per_second"], "TTFT p50 ms": report["ttft_ms"]["p50"],
                      "ITL p99 ms": report["itl_ms"]["p99"], "ready s": seconds, "peak MB": peak_megabytes(process)})


def embed_all(url, texts):
    """Tokens of the texts, sent as eight lists side by side."""
    with urllib.request.urlopen(url + "/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]

    def send(part):
        body = json.dumps({"model": model, "input": part}).encode()
        request = urllib.request.Request(url + "/v1/embeddings", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            reply = json.load(answer)
        assert len(reply["data"]) == len(part)
        return reply["usage"]["prompt_tokens"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return sum(pool.map(send, [texts[first::8] for first in range(8)]))


def embed_once(args, who, command, port, ready):
    words = random.Random(1)
    texts = [" ".join(f"{words.randrange(100, 1000)}" for _ in range(args.words)) for _ in range(512)]
    with running_server(command, f"http://127.0.0.1:{port}{ready}") as process:
        embed_all(f"http://127.0.0.1:{port}", texts[:16])
        for _ in range(args.rounds):
            began = time.monotonic()
            tokens = embed_all(f"http://127.0.0.1:{port}", texts)
            append(args, {"what": f"{os.path.basename(args.model[0])}, {tokens / len(texts):.0f} tokens a text", "who": who,
                          "tokens/s": tokens / (time.monotonic() - began), "peak MB": peak_megabytes(process)})


def embed(args):
    command = [args.quire, "serve", "--model", args.model[0], "--server.port", str(args.port)]
    embed_once(args, args.name, command + shlex.split(args.quire_options), args.port, "/readyz")
    if args.peer_server:
        command = [args.peer_server, "-m", args.model[0], "--port", str(args.port + 1), "-t", str(args.threads)]
        embed_once(args, "peer", command + shlex.split(args.peer_options), args.port + 1, "/health")


def random_picture(width, height):
    """A PNG of squares in random colours, as a data URL."""
    side = 40
    rows = []
    for _ in range(0, height, side):
        row = b"".join(random.randbytes(3) * side for _ in range(0, width, side))[:3 * width]
        rows += [b"\0" + row] * side

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(rows[:height]))) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def first_token_seconds(url, picture, question):
    parts = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": question}]
    body = json.dumps({"messages": [{"role": "user", "content": parts}], "max_tokens": 1, "temperature": 0}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=600) as answer:
        json.load(answer)
    return time.monotonic() - began


def image(args):
    width, height = (int(side) for side in args.image_size.split("x"))
    servers = [(args.name, [args.quire, "serve", "--model", args.model[0], "--mmproj", args.mmproj, "--server.port", str(args.port)]
                + shlex.split(args.quire_options), args.port, "/readyz")]
    if args.peer_server:
        servers.append(("peer", [args.peer_server, "-m", args.model[0], "--mmproj", args.mmproj, "--port", str(args.port + 1), "-t",
                                 str(args.threads)] + shlex.split(args.peer_options), args.port + 1, "/health"))
    for _ in range(args.rounds):
        picture = random_picture(width, height)
        for who, command, port, ready in servers:
            with running_server(command, f"http://127.0.0.1:{port}{ready}") as process:
                url = f"http://127.0.0.1:{port}"
                append(args, {"what": f"{os.path.basename(args.mmproj)}, {args.image_size}", "who": who,
                              "first token s": first_token_seconds(url, picture, "What is there?"),
                              "again s": first_token_seconds(url, picture, "Which colours are there?"),
                              "peak MB": peak_megabytes(process)})


def serve(args):
    peer_port = args.port + 1  # a port that was just closed may not be free yet
    with tempfile.TemporaryDirectory() as folder:
        for concurrency in [int(text) for text in args.concurrency.split(",")]:
            if args.who in ("both", "quire"):
                command = [args.quire, "serve", "--model", args.model[0], "--server.port", str(args.port)]
                serve_once(args, args.name, command + shlex.split(args.quire_options), args.port, "/readyz",
                           concurrency, folder)
            if args.peer_server and args.who in ("both", "peer"):
                command = [args.peer_server, "-m", args.model[0], "--port", str(peer_port), "-t", str(args.threads)]
                serve_once(args, "peer", command + shlex.split(args.peer_options), peer_port, "/health", concurrency,
                           folder)


def report(args):
    figures = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(args.results) as file:
        for line in file:
            record = json.loads(line)
            for key, value in record.items():
                if key not in ("what", "who"):
                    figures[record["what"], key][record["who"]].append(value)
    print("| model | measure | quire | peer | ratio |\n| --- | --- | --- | --- | --- |")
    for (what, key), who in figures.items():
        names = [name for name in who if name != "peer"]
        for name in names:
            ours = statistics.median(who[name])
            theirs = statistics.median(who["peer"]) if "peer" in who else None
            ratio = f"{ours / theirs:.2f}" if theirs else ""
            label = what if name == "quire" else f"{what} ({name})"
            print(f"| {label} | {key} | {ours:.4g} | {'' if theirs is None else f'{theirs:.4g}'} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["engine", "serve", "embed", "image", "report"])
    parser.add_argument("--quire", type=os.path.abspath, help="the quire binary")
    parser.add_argument("--name", default="quire", help="what Quire's rows are called, such as quire-avx2")
    parser.add_argument("--peer-bench", help="llama-bench")
    parser.add_argument("--peer-server", type=os.path.abspath, help="llama-server")
    parser.add_argument("--peer-options", default="", help="further flags of the peer")
    parser.add_argument("--quire-options", default="", help="further flags of quire serve")
    parser.add_argument("--model", type=os.path.abspath, nargs="+", default=[])
    parser.add_argument("--mmproj", type=os.path.abspath, help="the tower of the model that sees")
    parser.add_argument("--image-size", default="1920x1080")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the engine's prompt")
    parser.add_argument("--output", type=int, default=32, help="tokens decoded")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--requests-per-stream", type=int, default=2)
    parser.add_argument("--prompts", default="128-512", help="words of the server's prompts")
    parser.add_argument("--outputs", default="64-128", help="tokens of its answers")
    parser.add_argument("--words", type=int, default=42, help="of a text to embed, each of about three tokens")
    parser.add_argument("--shared-prefix", type=int, default=0)
    parser.add_argument("--who", choices=["both", "quire", "peer"], default="both")
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--results", required=True)
    args = parser.parse_args()
    {"engine": engine, "serve": serve, "embed": embed, "image": image, "report": report}[args.command](args)


if __name__ == "__main__":
    main()
