"""An encoder with a rank head in the form of BERT: it reads a question and a text together and says how well the text
answers it. It inherits nothing and starts as a count of shared words; its vocabulary of word pieces is made from the corpus."""
import random
import re
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
from corpus import facts, smalltalk, topics
from families.shapes import Shape, Vector, attend
from model import Linear

ARCHITECTURE, NAME = "bert", "Quire Demo Reranker"
SHAPE = Shape(vocab=2048, dim=128, layers=3, kv_heads=4, head_dim=32, ffn=384, context=256, norm_eps=1e-6)
CONTROL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNKNOWN, CLS, SEP, MASK = range(5)
WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
STEPS = 300
WORDS = 112  # elements of a hidden state that begin as the word's own
CANDIDATES = 4  # texts that a question is judged against
SHARES = [(60, topics), (25, smalltalk), (15, facts)]


def asked_and_answered(seed, index):
    """The first question of a document and its answer."""
    rng = random.Random(f"{seed}/{index}")
    while True:
        module = rng.choices([m for _, m in SHARES], [share for share, _ in SHARES])[0]
        made = rng.choices([theme for _, theme in module.THEMES], [weight for weight, _ in module.THEMES])[0](rng)
        turns = [m for m in made.get("messages", []) if m["role"] != "system"]
        if len(turns) > 1 and len(turns[0]["content"]) + len(turns[1]["content"]) < 220:
            return turns[0]["content"], turns[1]["content"]


def make_vocabulary(seed):
    """Characters, then the most frequent words and word ends; as GGUF files write them: a beginning has U+2581 before it."""
    words, ends = Counter(), Counter()
    for i in range(4000):
        for word in WORD.findall(" ".join(asked_and_answered(seed + "/vocabulary", i)).lower()):
            words[word] += 1
            for cut in range(1, len(word)):
                ends[word[cut:]] += 1 if len(word) - cut < 5 else 0
    characters = sorted({c for word in words for c in word})
    tokens = CONTROL + ["\u2581" + c for c in characters] + characters
    known = set(tokens)
    for pieces, count, mark in ((ends, 200, ""), (words, SHAPE.vocab, "\u2581")):
        frequent = sorted(pieces, key=lambda piece: (-pieces[piece], piece))
        fresh = [mark + piece for piece in frequent if mark + piece not in known][:count]
        known.update(fresh)
        tokens += fresh
    return tokens[:SHAPE.vocab]


class WordPieces:
    """The longest known piece first, from the left; a word with an unknown part is unknown as a whole."""

    def __init__(self, tokens):
        self.tokens, self.ids = tokens, {token: i for i, token in enumerate(tokens)}

    def encode(self, text):
        return [i for word in WORD.findall(text.lower()) for i in self.encode_word(word)]

    def encode_word(self, word):
        ids, at = [], 0
        while at < len(word):
            end = len(word)
            while end > at and ("" if at else "\u2581") + word[at:end] not in self.ids:
                end -= 1
            if end == at:
                return [UNKNOWN]
            ids.append(self.ids[("" if at else "\u2581") + word[at:end]])
            at = end
        return ids

    def pair(self, question, text):
        """Ids and the part that each belongs to."""
        one, two = [CLS] + self.encode(question) + [SEP], self.encode(text) + [SEP]
        return (one + two)[:SHAPE.context], ([0] * len(one) + [1] * len(two))[:SHAPE.context]


def batches(seed, size):
    """Questions with their answers first and those of other questions behind, forever."""
    pieces, index = WordPieces(make_vocabulary(seed)), 0
    while True:
        pairs = [asked_and_answered(seed, index + i) for i in range(2 * size)]
        index += 2 * size
        rng = random.Random(f"{seed}/candidates/{index}")
        rows = []
        for question, answer in pairs:
            others = sorted({other for _, other in pairs if other != answer})
            rows += [pieces.pair(question, text) for text in [answer] + rng.sample(others, CANDIDATES - 1)]
        width = max(len(ids) for ids, _ in rows)
        padded = [[row + [PAD] * (width - len(row)) for row in column] for column in zip(*rows)]
        yield torch.tensor(padded[0]), torch.tensor(padded[1])


class LayerNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, SHAPE.norm_eps)


class Affine(Linear):
    def __init__(self, num_in, num_out):
        super().__init__(num_in, num_out, 0.7 * num_in ** -0.5)
        self.bias = nn.Parameter(torch.zeros(num_out))

    def forward(self, x):
        return super().forward(x) + self.bias


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            setattr(self, name, Affine(s.dim, s.dim))
        self.attn_output_norm, self.layer_output_norm = LayerNorm(s.dim), LayerNorm(s.dim)
        self.ffn_up, self.ffn_down = Affine(s.dim, s.ffn), Affine(s.ffn, s.dim)

    def forward(self, x, mask):
        q, k, v = (part(x).view(*x.shape[:2], SHAPE.heads, -1) for part in (self.attn_q, self.attn_k, self.attn_v))
        x = self.attn_output_norm(x + self.attn_output(attend(q, k, v, mask, SHAPE.head_dim ** -0.5)))
        h = self.ffn_up(x)
        gelu = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h ** 3)))
        return self.layer_output_norm(x + self.ffn_down(gelu))


class Rank(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(dim, dim) * dim ** -0.5), nn.Parameter(torch.zeros(dim))
        self.output = Vector(torch.randn(dim) * dim ** -0.5)
        self.output.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.tanh(x @ self.weight.T + self.bias) @ self.output.weight + self.output.bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        s = SHAPE
        self.token_embd = Vector(torch.randn(s.vocab, s.dim) * 0.3)
        self.position_embd = Vector(torch.randn(s.context, s.dim) * 0.02)
        self.token_types = Vector(torch.randn(2, s.dim) * 0.3)
        self.token_embd_norm = LayerNorm(s.dim)
        self.blk = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.cls = Rank(s.dim)
        self.begin_with_equal_words()

    @torch.no_grad()
    def begin_with_equal_words(self):
        """The start: each word sees itself and its like in the other text, and the score counts words that have one.

        Words lie in the elements below WORDS. WORDS holds which text a word is of, the next what the words that it sees
        are of, then whether these differ in the first and in the second text, then the shares of such words."""
        own, seen, found, share = WORDS, WORDS + 1, WORDS + 2, WORDS + 4
        self.token_embd.weight[:, WORDS:] = 0.0
        self.position_embd.weight[:, WORDS:] = 0.0
        self.token_types.weight.zero_()
        self.token_types.weight[:, own] = torch.tensor([1.5, -1.5])
        for layer in self.blk:
            for name in ("attn_output", "ffn_down", "attn_v"):
                getattr(layer, name).weight.mul_(0.3)
            for name in ("attn_output", "ffn_down"):
                getattr(layer, name).weight[WORDS:] = 0.0
            layer.attn_q.weight.mul_(0.3)
        first, second = self.blk[0], self.blk[1]
        first.attn_q.weight.normal_(0.0, 0.12)
        first.attn_q.weight[:, WORDS:] = 0.0
        first.attn_k.weight.copy_(first.attn_q.weight)
        for head in range(SHAPE.heads):
            at = head * SHAPE.head_dim
            first.attn_v.weight[at].zero_()
            first.attn_v.weight[at, own] = 1.0
            first.attn_output.weight[seen, at] = 1.0 / SHAPE.heads
        for text, sign in ((0, 1.0), (1, -1.0)):
            first.ffn_up.weight[text].zero_()
            first.ffn_up.weight[text, own], first.ffn_up.weight[text, seen] = sign, -sign
            first.ffn_up.bias[text] = -1.5
            first.ffn_down.weight[found + text, text] = 0.7
            second.attn_v.weight[text].zero_()
            second.attn_v.weight[text, found + text] = 1.0
            second.attn_output.weight[share + text, text] = 3.0
        self.cls.weight.mul_(0.3)
        self.cls.weight[0].zero_()
        self.cls.weight[0, share:share + 2] = 0.5
        self.cls.output.weight.mul_(0.3)
        self.cls.output.weight[0] = 3.0

    def new_matrices(self):
        return []

    def scores(self, ids, types):
        mask = torch.zeros(ids.shape).masked_fill(ids == PAD, -1e9)[:, None, None, None, :]
        x = self.token_embd.weight[ids] + self.position_embd.weight[:ids.shape[1]] + self.token_types.weight[types]
        x = self.token_embd_norm(x)
        for layer in self.blk:
            x = layer(x, mask)
        return self.cls(x[:, 0])

    def loss(self, ids, types):
        """The right text above the others, and its score above zero."""
        scores = self.scores(ids, types).view(-1, CANDIDATES)
        right = torch.zeros(CANDIDATES)
        right[0] = 1.0
        self.shown = {"right": (scores.argmax(-1) == 0).float().mean().item()}
        best = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        return best + F.binary_cross_entropy_with_logits(scores, right.expand_as(scores))


def metadata():
    s = SHAPE
    return [
        ("block_count", gguf_file.U32, s.layers),
        ("attention.layer_norm_epsilon", gguf_file.F32, s.norm_eps),
        ("attention.causal", gguf_file.BOOL, False),
        ("pooling_type", gguf_file.U32, 4),
    ]


def tokenizer_metadata(seed):
    tokens = make_vocabulary(seed)
    types = [3 if token in CONTROL and token != "[UNK]" else 1 for token in tokens]
    ids = [("padding", PAD), ("unknown", UNKNOWN), ("cls", CLS), ("seperator", SEP), ("mask", MASK), ("bos", CLS), ("eos", SEP)]
    return [
        ("tokenizer.ggml.model", gguf_file.STRING, "bert"),
        ("tokenizer.ggml.pre", gguf_file.STRING, "default"),
        ("tokenizer.ggml.tokens", gguf_file.ARRAY, (gguf_file.STRING, tokens)),
        ("tokenizer.ggml.token_type", gguf_file.ARRAY, (gguf_file.I32, types)),
        ("tokenizer.ggml.token_type_count", gguf_file.U32, 2),
    ] + [(f"tokenizer.ggml.{name}_token_id", gguf_file.U32, i) for name, i in ids]
