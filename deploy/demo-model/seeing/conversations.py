"""Conversations about pictures as token ids, positions and targets: batches of pictures of one size."""
import random

import numpy as np
import torch

from corpus import facts, topics
from seeing import pictures, questions
from seeing.network import MERGE, PATCH, SIDE
from tokenizer import CONTROL, END_OF_TEXT, TURN_END, TURN_START, Tokenizer

VISION_BEGIN, VISION_END, VISION_PAD = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"
SIZES = [(SIDE, SIDE), (SIDE, 48), (48, SIDE)]  # width, height
SIZE_SHARES = [8, 1, 1]
TURNS = 4


class Vocabulary:
    """The demo model's tokens and three more behind them."""

    def __init__(self, merges):
        self.base = Tokenizer(merges)
        self.tokens = self.base.tokens + [VISION_BEGIN, VISION_END, VISION_PAD]
        self.control = CONTROL + [VISION_BEGIN, VISION_END, VISION_PAD]
        self.begin, self.end = len(self.base.tokens), len(self.base.tokens) + 1
        self.separator = self.base.ids[END_OF_TEXT]
        self.turn_end = self.base.ids[TURN_END]

    def user(self, question, rows=0, text_first=False):
        picture = [self.begin] + [-1] * rows + [self.end] if rows else []
        text = self.base.encode(question)
        return (self.base.encode(f"{TURN_START}user\n") + (text + picture if text_first else picture + text) +
                self.base.encode(f"{TURN_END}\n{TURN_START}assistant\n"))

    def answer(self, text):
        return self.base.encode(text + TURN_END)


def positions_of(ids, columns):
    """Time, row and column of each token; a picture takes as many positions as its longer side has rows."""
    out, at, i = [], 0, 0
    while i < len(ids):
        if ids[i] >= 0:
            out.append((at, at, at))
            at, i = at + 1, i + 1
            continue
        rows = next((j for j in range(i, len(ids)) if ids[j] >= 0), len(ids)) - i
        out += [(at, at + j // columns, at + j % columns) for j in range(rows)]
        at, i = at + max(columns, rows // columns), i + rows
    return out


class Batches:
    def __init__(self, vocabulary, seed, size):
        self.vocabulary, self.seed, self.size, self.next = vocabulary, seed, size, 0
        rng = random.Random(f"{seed}/others")
        documents = [theme(rng) for module in (topics, facts) for _, theme in module.THEMES for _ in range(20)]
        self.others = sorted({message["content"] for document in documents for message in document.get("messages", ())
                              if message["role"] == "user" and len(message["content"]) < 60})

    def sequence(self, turns, rows, rng):
        v, ids, learned = self.vocabulary, [], []
        for i, (question, answer) in enumerate(turns):
            asked = v.user(question, 0 if i else rows, rng.random() < 0.4)
            if i:
                asked = v.base.encode("\n") + asked
            said = v.answer(answer)
            ids += asked + said
            learned += [False] * len(asked) + [True] * len(said)
        return ids, learned

    def batch(self):
        """ids, positions, targets, pixels and hints of sequences; None where there are no pictures, or no square ones."""
        self.next += 1
        rng = random.Random(f"{self.seed}/{self.next}")
        width, height = rng.choices(SIZES, SIZE_SHARES)[0]
        columns, rows = width // PATCH // MERGE, width * height // (PATCH * MERGE) ** 2
        with_pictures = rng.random() < 0.92
        sequences, pixels, hints = [], [], []
        for _ in range(self.size):
            if with_pictures:
                scene = pictures.scene(rng)
                pixels.append(pictures.draw(scene, rng, width, height))
                hints.append(pictures.hints(scene))
                sequences.append(self.sequence(questions.turns(rng, scene, TURNS), rows, rng))
            else:
                sequences.append(self.sequence(questions.turns_without_picture(rng, self.others), 0, rng))
        longest = max(len(ids) for ids, _ in sequences)
        ids = np.full((self.size, longest), self.vocabulary.separator)
        targets, positions = np.full((self.size, longest), -1), np.zeros((self.size, longest, 3), np.int64)
        for i, (tokens, learned) in enumerate(sequences):
            ids[i, :len(tokens)] = tokens
            targets[i, :len(tokens) - 1] = np.where(learned[1:], tokens[1:], -1)
            positions[i, :len(tokens)] = positions_of(tokens, columns)
        batch = [torch.from_numpy(ids), torch.from_numpy(positions), torch.from_numpy(targets)]
        return batch + [scaled(np.stack(pixels)) if pixels else None, torch.tensor(hints) if hints and width == height else None]


def scaled(pixels):
    """[pictures, height, width, 3] of bytes to [pictures, 3, height, width] from -1 to 1."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1
