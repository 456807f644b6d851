#!/usr/bin/env python3
"""A streamed conversation with the standard library alone: chat.py [QUESTION...]. Without questions it reads them from the terminal."""
import json
import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("QUIRE_URL", "http://127.0.0.1:8080")
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('QUIRE_KEY', 'none')}"}


def stream_chat(messages, **options):
    """Yields the pieces of an answer's text."""
    body = json.dumps({"messages": messages, "stream": True, **options}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/chat/completions", body, HEADERS)) as response:
        for line in response:
            if not line.startswith(b"data: "):
                continue
            data = line[len(b"data: "):].strip()
            if data == b"[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise RuntimeError(event["error"]["message"])
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""


def answer(messages):
    text = ""
    for piece in stream_chat(messages, max_tokens=256):
        print(piece, end="", flush=True)
        text += piece
    print()
    return text


def main(questions):
    messages = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        try:
            messages.append({"role": "assistant", "content": answer(messages)})
        except urllib.error.HTTPError as error:
            sys.exit(f"{error.code}: {json.load(error)['error']['message']}")


def typed():
    while True:
        try:
            yield input("> ")
        except EOFError:
            return


main(sys.argv[1:] or typed())
