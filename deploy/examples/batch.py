#!/usr/bin/env python3
"""A file of prompts, many at a time: batch.py PROMPTS.jsonl ANSWERS.jsonl [CONCURRENCY]

Each line of PROMPTS is {"id": ..., "prompt": ...} with any fields of /v1/chat/completions; each line of ANSWERS has the id with the
answer or the error. A 429 or 503 is tried again after the server's Retry-After. Ids that are in ANSWERS already are left out, so that
an interrupted run continues where it stopped."""
import concurrent.futures
import json
import os
import sys
import time
import urllib.error
import urllib.request

URL = os.environ.get("QUIRE_URL", "http://127.0.0.1:8080")
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('QUIRE_KEY', 'none')}"}
MOST_TRIES = 10


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def ask(job):
    fields = {name: value for name, value in job.items() if name not in ("id", "prompt")}
    body = json.dumps({"messages": [{"role": "user", "content": job["prompt"]}], **fields}).encode()
    for last in [False] * (MOST_TRIES - 1) + [True]:
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/chat/completions", body, HEADERS)) as response:
                choice = json.load(response)["choices"][0]
                return {"id": job["id"], "answer": choice["message"]["content"], "finish_reason": choice["finish_reason"]}
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503) or last:
                return {"id": job["id"], "error": json.load(error)["error"]["message"]}
            time.sleep(float(error.headers.get("Retry-After", 1)))


def main(prompts, answers, concurrency="16"):
    done = {line["id"] for line in read_lines(answers) if "answer" in line}
    jobs = [job for job in read_lines(prompts) if job["id"] not in done]
    began, failed = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(int(concurrency)) as pool, open(answers, "a", encoding="utf-8") as file:
        for result in concurrent.futures.as_completed([pool.submit(ask, job) for job in jobs]):
            line = result.result()
            failed += "error" in line
            print(json.dumps(line), file=file, flush=True)
    print(f"{len(jobs)} prompts in {time.monotonic() - began:.1f} s, {failed} failed, {len(done)} were there already")
    return 1 if failed else 0


if len(sys.argv) < 3:
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
