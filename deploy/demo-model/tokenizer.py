"""Byte-level BPE: training, encoding, decoding.

The split is the one GGUF files call `qwen2`: words with one leading space or sign, and every digit alone,
which is what lets a small model do sums. Control tokens follow the learned vocabulary.
"""
import json
from collections import Counter, defaultdict

import regex

SPLIT = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL = [END_OF_TEXT, TURN_START, TURN_END]
CONTROL_SPLIT = regex.compile("(" + "|".join(regex.escape(t) for t in CONTROL) + ")")


def byte_alphabet():
    """The printable character that stands for each byte in vocabularies of this family (GPT-2's table)."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    table = {b: chr(b) for b in visible}
    table.update({b: chr(256 + i) for i, b in enumerate(hidden)})
    return [table[b] for b in range(256)]


ALPHABET = byte_alphabet()
BYTE_OF = {c: b for b, c in enumerate(ALPHABET)}


def to_symbols(word):
    return tuple(ALPHABET[b] for b in word.encode("utf-8"))


def count_words(texts):
    counts = Counter()
    for text in texts:
        for part in CONTROL_SPLIT.split(text):
            if part not in CONTROL:
                counts.update(SPLIT.findall(part))
    return counts


def replace_pair(word, left, right):
    merged, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and word[i] == left and word[i + 1] == right:
            merged.append(left + right)
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return tuple(merged)


def learn_merges(word_counts, num_merges):
    """Greedy BPE; ties go to the alphabetically first pair, so the result depends on the counts only."""
    words = [to_symbols(w) for w in word_counts]
    weights = list(word_counts.values())
    pair_counts, where = Counter(), defaultdict(set)
    for index, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pair_counts[pair] += weights[index]
            where[pair].add(index)
    merges = []
    while len(merges) < num_merges and pair_counts:
        best = min(pair_counts, key=lambda p: (-pair_counts[p], p))
        if pair_counts[best] < 2:
            break
        merges.append(best)
        for index in where.pop(best):
            old = words[index]
            new = replace_pair(old, *best)
            for pair in zip(old, old[1:]):
                pair_counts[pair] -= weights[index]
                if pair_counts[pair] <= 0:
                    del pair_counts[pair]
            for pair in zip(new, new[1:]):
                pair_counts[pair] += weights[index]
                where[pair].add(index)
            words[index] = new
    return merges


class Tokenizer:
    """Immutable but for the cache of encoded words."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = sorted(ALPHABET) + [a + b for a, b in self.merges] + CONTROL
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.rank = {pair: i for i, pair in enumerate(self.merges)}
        self.cache = {}

    @classmethod
    def of_file(cls, file):
        """That of a model file (gguf_file.Reader)."""
        return cls(m.split(" ") for m in file.metadata["tokenizer.ggml.merges"])

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file)["merges"])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"merges": self.merges}, file, ensure_ascii=False)

    def encode_word(self, word):
        if word not in self.cache:
            symbols = to_symbols(word)
            while len(symbols) > 1:
                pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
                if pair not in self.rank:
                    break
                symbols = replace_pair(symbols, *pair)
            self.cache[word] = [self.ids[s] for s in symbols]
        return self.cache[word]

    def encode(self, text):
        """Control tokens written in the text are taken as such: only templates and the trainer call this."""
        ids = []
        for part in CONTROL_SPLIT.split(text):
            if part in CONTROL:
                ids.append(self.ids[part])
            else:
                for word in SPLIT.findall(part):
                    ids.extend(self.encode_word(word))
        return ids

    def decode(self, ids):
        data = bytearray()
        for i in ids:
            token = self.tokens[i]
            data += token.encode() if token in CONTROL else bytes(BYTE_OF[c] for c in token)
        return data.decode("utf-8", errors="replace")
