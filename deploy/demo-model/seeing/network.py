"""The network in the form of Qwen3-VL: a tower over patches, whose rows stand for tokens, and a decoder with rotations by
time, row and column. Names of modules are names of tensors in the two files.

Tower: patches of a still picture, learned positions, rotation by row and column, layer norms, GELU, a merger of four
patches; deepstack: rows after one of its blocks, added behind the decoder's first layer.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from families.shapes import GatedFeedForward, NormedAttention, attend, causal_mask, turn_halves
from model import Linear, Norm
from seeing import pictures

PATCH, MERGE, SIDE = 8, 2, 64  # pixels of a patch; patches of a row's side; pixels of a square picture's side
SECTIONS = [6, 5, 5]  # pairs of a head that turn by time, row and column, in turn


@dataclass(frozen=True)
class Shape:
    vocab: int
    dim: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 384
    context: int = 2048
    rope_base: float = 10000.0
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class TowerShape:
    dim: int = 128
    blocks: int = 4
    heads: int = 4
    ffn: int = 320
    deepstack: int = 1
    norm_eps: float = 1e-6


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.ln1, self.ln2 = nn.LayerNorm(shape.dim, shape.norm_eps), nn.LayerNorm(shape.dim, shape.norm_eps)
        self.attn_qkv, self.attn_out = nn.Linear(shape.dim, 3 * shape.dim), nn.Linear(shape.dim, shape.dim)
        self.ffn_up, self.ffn_down = nn.Linear(shape.dim, shape.ffn), nn.Linear(shape.ffn, shape.dim)
        for last in (self.attn_out, self.ffn_down):
            nn.init.zeros_(last.weight)

    def forward(self, x, angles):
        num, places, dim = x.shape
        q, k, v = (part.view(num, places, self.heads, -1) for part in self.attn_qkv(self.ln1(x)).chunk(3, -1))
        q, k = (turn_halves(part, angles.cos(), angles.sin()) for part in (q, k))
        x = x + self.attn_out(attend(q, k, v, 0.0, (dim // self.heads) ** -0.5))
        return x + self.ffn_down(F.gelu(self.ffn_up(self.ln2(x)), approximate="tanh"))


class Branch(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(dim, 1e-6), nn.Linear(dim, dim), nn.Linear(dim, out)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


def blockwise(grid):
    """[..., rows, columns, n] to [..., patches, n]: the four patches of a row of the output are neighbours."""
    *lead, rows, columns, n = grid.shape
    grid = grid.reshape(*lead, rows // MERGE, MERGE, columns // MERGE, MERGE, n).transpose(-4, -3)
    return grid.reshape(*lead, rows * columns, n)


class Tower(nn.Module):
    def __init__(self, shape, out):
        super().__init__()
        self.shape = shape
        merged = MERGE * MERGE * shape.dim
        self.patch_embd = nn.Conv2d(3, shape.dim, PATCH, PATCH)
        self.position_embd = nn.Parameter(torch.randn((SIDE // PATCH) ** 2, shape.dim) * 0.1)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.blocks))
        self.deepstack = nn.ModuleDict({str(shape.deepstack): Branch(merged, out)})
        self.post_ln = nn.LayerNorm(shape.dim, shape.norm_eps)
        self.mm = nn.ModuleDict({"0": nn.Linear(merged, merged), "2": nn.Linear(merged, out)})

    def positions(self, rows, columns):
        """The learned ones, whose corners are the picture's."""
        side = SIDE // PATCH
        square = self.position_embd.t().view(1, -1, side, side)
        sized = F.interpolate(square, (rows, columns), mode="bilinear", align_corners=True)
        return blockwise(sized[0].permute(1, 2, 0))

    def angles(self, rows, columns):
        quarter = self.shape.dim // self.shape.heads // 4
        rates = 10000.0 ** (-torch.arange(quarter) / quarter)
        ys, xs = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        return torch.cat([blockwise(axis[..., None].float()) * rates for axis in (ys, xs)], -1)

    def forward(self, pixels):
        """pixels [pictures, 3, height, width] from -1 to 1; rows and those of the branch, each [pictures, rows, out]."""
        x = self.patch_embd(pixels)
        rows, columns = x.shape[-2:]
        x, angles = blockwise(x.permute(0, 2, 3, 1)) + self.positions(rows, columns), self.angles(rows, columns)
        merged = lambda x: x.reshape(len(x), -1, MERGE * MERGE * self.shape.dim)
        for i, block in enumerate(self.blk):
            x = block(x, angles)
            if i == self.shape.deepstack:
                branch = self.deepstack[str(i)](merged(x))
        return self.mm["2"](F.gelu(self.mm["0"](merged(self.post_ln(x))))), branch


class Attention(NormedAttention):
    """Heads turn by given angles, not by their place in the sequence."""

    def turned(self, heads, angles):
        return turn_halves(heads, angles.cos(), angles.sin())


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(shape.dim, shape.norm_eps), Norm(shape.dim, shape.norm_eps)
        self.mixer, self.ffn = Attention(shape), GatedFeedForward(shape)

    def forward(self, x, angles, mask):
        x = x + self.mixer.mix(self.attn_norm(x), mask, angles)
        return x + self.ffn(self.ffn_norm(x))


def axis_of_pair(i):
    """0: time, 1: row, 2: column; the sections of Qwen3-VL are interleaved."""
    return i % 3 if i < 3 * SECTIONS[i % 3] else 0


class Model(nn.Module):
    def __init__(self, shape, tower=TowerShape()):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Parameter(torch.randn(shape.vocab, shape.dim))
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.dim, shape.norm_eps)
        self.output = Linear(shape.dim, shape.vocab, 0.0)
        self.v = Tower(tower, shape.dim)
        half = shape.head_dim // 2
        # Says in training what stands in each of nine places of a square picture, so that the tower learns sooner; not exported.
        self.hint = nn.Linear((SIDE // PATCH // MERGE) ** 2 * shape.dim, 9 * pictures.NUM_HINTS)
        self.right = self.hinted = 0.0  # shares of the last loss's guesses that were right
        self.register_buffer("rates", shape.rope_base ** (-torch.arange(half) / half), persistent=False)
        self.axes = [axis_of_pair(i) for i in range(half)]

    def forward(self, ids, positions, pixels=None):
        """ids [sequences, time], -1 where a row of the picture stands; positions [sequences, time, 3]; one picture of `pixels`
        for each sequence. Normed hidden states."""
        x = self.token_embd[ids.clamp(min=0)]
        is_row, branch = ids < 0, None
        if pixels is not None:
            rows, branch = self.v(pixels)
            self.rows = rows
            x = x.index_put((is_row,), rows.reshape(-1, self.shape.dim))
        angles = positions[..., self.axes].float() * self.rates
        mask = causal_mask(ids.shape[1])
        for i, layer in enumerate(self.blk):
            x = layer(x, angles, mask)
            if i == 0 and branch is not None:
                x = x.index_put((is_row,), branch.reshape(-1, self.shape.dim), accumulate=True)
        return self.output_norm(x)

    def loss(self, ids, positions, targets, pixels=None, hints=None):
        """Mean cross entropy over the targets that are not -1, and that of the hints [pictures, 9], where there are any."""
        wanted = targets >= 0
        logits = self.output(self(ids, positions, pixels)[wanted])
        self.right = (logits.argmax(-1) == targets[wanted]).float().mean().item()
        loss = F.cross_entropy(logits, targets[wanted])
        if hints is not None:
            guesses = self.hint(self.rows.flatten(1)).view(-1, pictures.NUM_HINTS)
            self.hinted = (guesses.argmax(-1) == hints.flatten()).float().mean().item()
            loss = loss + F.cross_entropy(guesses, hints.flatten())
        return loss
