#!/usr/bin/env python3
"""Compares the texts of a daemon for arm64, run under qemu on each of its levels, with those of this machine's daemon: scalar with
scalar, the others with avx512, whose bits they have. Where this machine has no AVX-512 the others are compared with each other, and
their greedy texts with those of this machine's best level.
Usage: texts.py QUIRE QUIRE-OF-ARM64 SYSROOT. Exit 1 where a text, a number of tokens or the reason of an end differs."""
import json
import re
import subprocess
import sys
import urllib.request

PROMPTS = ["Hello", "The capital of France is", "2 + 3 =", "def add(a, b):", "List three colours.", "Quire is a"]
MODEL = "deploy/demo-model/quire-demo.gguf"


def questions():
    """Greedy and drawn, plain and as a chat, with the tokens' probabilities left out: they are floats."""
    for number, prompt in enumerate(PROMPTS):
        for extra in [{"temperature": 0}, {"temperature": 0.8, "seed": number}]:
            yield "/v1/completions", {"prompt": prompt, "max_tokens": 48, **extra}
            yield "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "max_tokens": 48, **extra}


def answers(command, level):
    """What a daemon says to every question, in order."""
    words = [*command, "serve", "--model", MODEL, "--host", "127.0.0.1", "--port", "0", "--threads", "2", "--isa", level]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as daemon:
        address = None
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            found = re.search(r"listening on ([0-9.:]+)", line)
            address = found[1] if found else address
            if "is ready after" in line:
                break
        else:
            raise SystemExit("".join(lines) + " ".join(words) + " did not start")
        said = []
        for path, body in questions():
            request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                answer = json.load(response)
            said.append([(choice.get("text") or choice.get("message"), choice["finish_reason"])
                         for choice in answer["choices"]] + [answer["usage"]])
        daemon.terminate()
        daemon.stderr.read()
    if daemon.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit {daemon.returncode} on SIGTERM")
    return said


def differing(expected, said, greedy_only):
    """The questions that were answered differently."""
    pairs = zip(questions(), expected, said)
    return [question for question, a, b in pairs if a != b and not (greedy_only and question[1]["temperature"] > 0)]


def main():
    here, there, root = sys.argv[1:4]
    emulated = ["qemu-aarch64-static", "-cpu", "max", "-L", root, there]
    with open("/proc/cpuinfo", encoding="ascii") as info:
        best = "avx512" if "avx512_vnni" in info.read() else "auto"
    said = {level: answers(emulated, level) for level in ["scalar", "neon", "dotprod", "i8mm"]}
    comparisons = [("scalar", "scalar here", answers([here], "scalar"), False)]
    reference = answers([here], best)
    for level in ["neon", "dotprod", "i8mm"]:
        comparisons.append((level, f"{best} here", reference, best != "avx512"))
        comparisons.append((level, "neon", said["neon"], False))
    failed = False
    for level, name, expected, greedy_only in comparisons:
        wrong = differing(expected, said[level], greedy_only)
        print(f"{level} and {name}{', greedy' if greedy_only else ''}: {len(wrong)} answers differ", flush=True)
        for path, body in wrong:
            print(f"  {path} {json.dumps(body)}")
        failed |= bool(wrong)
    sys.exit(1 if failed else 0)


main()
