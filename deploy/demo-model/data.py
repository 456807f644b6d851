"""Turns documents into rows of tokens with targets.

Only what the assistant says is learned from (and all of a plain text); the rest is context. A row is one document from its
beginning, as a chat is served: what stands before it in a batch is not seen, so looking back finds its own words.
"""
from collections import defaultdict

import numpy as np
import torch

import chat
import corpus
from tokenizer import END_OF_TEXT, TURN_END, TURN_START

LONGEST = 2048


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


class Documents:
    """Encoded when asked for: those of one of several workers, or all."""

    def __init__(self, tokenizer, seed, make=corpus.document, first=0, step=1):
        self.tokenizer, self.seed, self.make, self.first, self.step = tokenizer, seed, make, first, step

    def __getitem__(self, number):
        return encode_document(self.tokenizer, self.make(self.seed, self.first + number * self.step))


def room_for(num_tokens):
    """The length of a row: few different ones, because each shape of matrix is prepared when it is first multiplied."""
    unit = 8 if num_tokens <= 64 else 16 if num_tokens <= 128 else 64 if num_tokens <= 512 else 256
    return -(-num_tokens // unit) * unit


class Groups:
    """Deals groups of rows of one length, some `num_tokens` places each, as soon as there are documents enough for one."""

    def __init__(self, documents, tokenizer, num_tokens, room=room_for):
        self.documents, self.separator, self.num_tokens, self.room = documents, tokenizer.ids[END_OF_TEXT], num_tokens, room
        self.next, self.waiting = 0, defaultdict(list)

    def group(self):
        """Inputs and targets, each [rows, length]; a target of -1 is not learned from."""
        while True:
            document = self.documents[self.next]
            self.next += 1
            length = self.room(len(document[0]) - 1)
            if length > LONGEST:
                continue
            waiting = self.waiting[length]
            waiting.append(document)
            if len(waiting) == max(1, self.num_tokens // length):
                del self.waiting[length]
                return self.filled(waiting, length)

    def filled(self, documents, length):
        ids = np.full((len(documents), length + 1), self.separator, np.int64)
        learn = np.zeros(ids.shape, bool)
        for row, (tokens, mask) in enumerate(documents):
            ids[row, :len(tokens)], learn[row, :len(tokens)] = tokens, mask
        return torch.from_numpy(ids[:, :-1].copy()), torch.from_numpy(np.where(learn[:, 1:], ids[:, 1:], -1))
