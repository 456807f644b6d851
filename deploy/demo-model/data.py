"""Turns documents into token chunks with targets.

Only what the assistant says is learned from (and all of a plain text); the rest is context. Chunks of several lengths
are filled with whole documents, so that positions up to the full context are trained.
"""
import numpy as np

import chat
import corpus
from tokenizer import END_OF_TEXT, TURN_END, TURN_START

LENGTHS = [128, 256, 512, 1024, 2048]
LENGTH_SHARES = [0.47, 0.33, 0.16, 0.03, 0.01]
LOOKAHEAD, MAX_WAITING = 48, 500


def as_text(document):
    if "text" in document:
        return document["text"] + TURN_END
    return chat.render(document["messages"], document["tools"])


def learned_from(tokenizer, ids):
    """True for the tokens of assistant turns, their end included; for all tokens of a plain text."""
    start, end = tokenizer.ids[TURN_START], tokenizer.ids[TURN_END]
    if ids[0] != start:
        return [True] * len(ids)
    role = tokenizer.encode("assistant\n")
    mask, speaking, after = [], False, 0
    for i, token in enumerate(ids):
        if token == start:
            speaking = ids[i + 1:i + 1 + len(role)] == role
            after = i + 1 + len(role)
        mask.append(speaking and i >= after)
        if token == end:
            speaking = False
    return mask


def encode_document(tokenizer, document):
    """(ids, mask) as small arrays."""
    ids = tokenizer.encode(as_text(document))
    return np.array(ids, np.uint16), np.array(learned_from(tokenizer, ids))


def encode_corpus(tokenizer, seed, indices):
    """A list of encoded documents, for those with these indices."""
    return [encode_document(tokenizer, corpus.document(seed, i)) for i in indices]


class Chunks:
    """Deals chunks of a wanted length; each document is used once per pass. Documents that do not fit into the shortest
    chunk wait for a longer one; when more than MAX_WAITING do, the oldest is dropped."""

    def __init__(self, encoded, tokenizer):
        self.encoded, self.separator = encoded, tokenizer.ids[END_OF_TEXT]
        self.next = 0
        self.short, self.long = [], []

    def refill(self):
        while len(self.short) < LOOKAHEAD:
            document = self.encoded[self.next % len(self.encoded)]
            self.next += 1
            num_tokens = len(document[0])
            if num_tokens <= LENGTHS[0]:
                self.short.append(document)
            elif num_tokens <= LENGTHS[-1]:
                self.long = self.long[-MAX_WAITING:] + [document]

    def take(self, room):
        """A waiting document of fewer than `room` tokens, long ones first; None when none fits."""
        self.refill()
        for waiting in (self.long, self.short):
            for i, (ids, _) in enumerate(waiting):
                if len(ids) < room:
                    return waiting.pop(i)
        return None

    def chunk(self, length):
        """Inputs and targets, each [length]; a target of -1 is not learned from."""
        ids = np.full(length + 1, self.separator, np.int64)
        learn = np.zeros(length + 1, bool)
        filled = 0
        while document := self.take(length + 2 - filled):
            num_tokens = len(document[0])
            ids[filled:filled + num_tokens], learn[filled:filled + num_tokens] = document
            filled += num_tokens + 1
        return ids[:-1], np.where(learn[1:], ids[1:], -1)

    def batch(self, length, num_tokens):
        pairs = [self.chunk(length) for _ in range(max(1, num_tokens // length))]
        return np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
