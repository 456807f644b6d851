#!/usr/bin/env python3
"""A file of requests through /v1/files and /v1/batches: openai_batch.py REQUESTS.jsonl ANSWERS.jsonl

Each line of REQUESTS is one of OpenAI's batches: {"custom_id", "method": "POST", "url": "/v1/chat/completions", "body": {...}}. The server
(started with --batches.directory) works on them while it has time, across restarts; ANSWERS gets a line for each. Interrupting this
program does not end the batch."""
import json
import os
import sys
import time
import urllib.request
import uuid

URL = os.environ.get("QUIRE_URL", "http://127.0.0.1:8080")
AUTHORIZATION = {"Authorization": f"Bearer {os.environ.get('QUIRE_KEY', 'none')}"}
ENDED = ("completed", "failed", "expired", "cancelled")


def call(path, body=None, content_type="application/json"):
    headers = {**AUTHORIZATION, "Content-Type": content_type} if body is not None else AUTHORIZATION
    with urllib.request.urlopen(urllib.request.Request(URL + path, body, headers)) as response:
        return response.read()


def upload(path):
    edge = uuid.uuid4().hex
    with open(path, "rb") as file:
        content = file.read()
    head = (f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{os.path.basename(path)}"\r\n\r\n')
    form = head.encode() + content + f"\r\n--{edge}--\r\n".encode()
    return json.loads(call("/v1/files", form, f"multipart/form-data; boundary={edge}"))["id"]


def main(requests, answers):
    with open(requests, encoding="utf-8") as file:
        endpoint = json.loads(file.readline())["url"]
    fields = {"input_file_id": upload(requests), "endpoint": endpoint, "completion_window": "24h"}
    batch = json.loads(call("/v1/batches", json.dumps(fields).encode()))
    while batch["status"] not in ENDED:
        time.sleep(1)
        batch = json.loads(call(f"/v1/batches/{batch['id']}"))
        counts = batch["request_counts"]
        print(f"{batch['status']}: {counts['completed']} of {counts['total']} answered, {counts['failed']} failed", flush=True)
    for error in (batch["errors"] or {"data": []})["data"]:
        print(f"line {error['line']}: {error['message']}", file=sys.stderr)
    with open(answers, "wb") as file:
        for name in ("output_file_id", "error_file_id"):
            if batch[name]:
                file.write(call(f"/v1/files/{batch[name]}/content"))
    return 0 if batch["status"] == "completed" and counts["failed"] == 0 else 1


if len(sys.argv) != 3:
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
