#!/usr/bin/env python3
"""Retrieval-augmented answers: rag.py QUESTION FILE...

Files are cut into passages and embedded; the nearest ones to the question are reranked, and the best are given to the model. One model
serves all three steps here; with an encoder and a reranker beside the chat model (section `models` of the configuration), name them:
QUIRE_EMBEDDER, QUIRE_RERANKER, QUIRE_CHAT."""
import json
import os
import sys
import urllib.request

URL = os.environ.get("QUIRE_URL", "http://127.0.0.1:8080")
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('QUIRE_KEY', 'none')}"}
PASSAGE_WORDS, NUM_NEAREST, NUM_GIVEN = 60, 8, 3


def post(path, model, **fields):
    if os.environ.get(model):
        fields["model"] = os.environ[model]
    with urllib.request.urlopen(urllib.request.Request(URL + path, json.dumps(fields).encode(), HEADERS)) as response:
        return json.load(response)


def passages(path):
    with open(path, encoding="utf-8") as file:
        words = file.read().split()
    return [" ".join(words[i:i + PASSAGE_WORDS]) for i in range(0, len(words), PASSAGE_WORDS)]


def embed(texts, kind):
    rows = post("/v1/embeddings", "QUIRE_EMBEDDER", input=texts, input_type=kind, truncate=True)["data"]
    return [row["embedding"] for row in rows]


def nearest(question, texts):
    """The passages whose vectors are nearest to the question's; vectors have length 1."""
    target = embed([question], "query")[0]
    scores = [sum(a * b for a, b in zip(target, vector)) for vector in embed(texts, "document")]
    return [texts[i] for i in sorted(range(len(texts)), key=lambda i: -scores[i])[:NUM_NEAREST]]


def main(question, *files):
    texts = [text for path in files for text in passages(path)]
    found = nearest(question, texts)
    ranked = post("/v1/rerank", "QUIRE_RERANKER", query=question, documents=found, top_n=NUM_GIVEN)["results"]
    best = [found[row["index"]] for row in ranked]
    for row, text in zip(ranked, best):
        print(f"[{row['relevance_score']:.3f}] {text[:100]}", file=sys.stderr)
    # What all questions share comes first, so that its blocks are computed once.
    messages = [{"role": "system", "content": "Answer from these passages:\n\n" + "\n\n".join(best)}, {"role": "user", "content": question}]
    print(post("/v1/chat/completions", "QUIRE_CHAT", messages=messages, max_tokens=200)["choices"][0]["message"]["content"])


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
