"""Parts of the four trained families, and what they inherit from the demo model's file.

Module names are the names of the tensors in the GGUF file. Matrices that a family shares with the demo model start as
the demo model's; the demo rotates neighbouring elements of a head and these families its two halves, so the rows of
queries and keys are put into another order first.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
import model
from model import Linear, Norm


@dataclass(frozen=True)
class Shape(model.Shape):
    head_dim: int = 64


class Vector(nn.Module):
    """A tensor of one dimension under its GGUF name, `weight` or `bias`."""

    def __init__(self, values, name="weight"):
        super().__init__()
        setattr(self, name, nn.Parameter(values.clone().float()))


def turn_halves(x, cos, sin):
    """x is [..., time, heads, head_dim], cos and sin are [..., time, half]; pair i of a head is the elements i and i + half."""
    half = cos.shape[-1]
    cos, sin = cos[..., None, :], sin[..., None, :]
    one, two, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat((one * cos - two * sin, one * sin + two * cos, rest), -1)


def rotate_halves(x, rotary_dim, base):
    """x is [batch, time, heads, head_dim]; the first `rotary_dim` elements of a head turn by its place in the sequence."""
    time, half = x.shape[1], rotary_dim // 2
    rates = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(time, dtype=torch.float64), rates)
    return turn_halves(x, angles.cos().float(), angles.sin().float())


def order_of_rows(head_dim, rotary_dim):
    """Which element of a head of the demo model stands where: pairs with the wanted rates first, the others unrotated."""
    step = head_dim // rotary_dim
    kept = [i for i in range(head_dim // 2) if i % step == 0]
    others = [i for i in range(head_dim // 2) if i % step != 0]
    return [2 * i for i in kept] + [2 * i + 1 for i in kept] + [2 * i + j for i in others for j in (0, 1)]


def reordered(matrix, head_dim, rotary_dim):
    rows = matrix.view(-1, head_dim, matrix.shape[1])
    return rows[:, order_of_rows(head_dim, rotary_dim)].reshape(matrix.shape)


def attend(q, k, v, mask, scale):
    """q, k, v are [batch, time, heads, head_dim], k and v of fewer heads; the result is [batch, time, heads * head_dim]."""
    num_seqs, time, heads, head_dim = q.shape
    group = heads // k.shape[2]
    q = (q.transpose(1, 2) * scale).reshape(num_seqs, k.shape[2], group * time, head_dim)
    scores = (q @ k.permute(0, 2, 3, 1)).view(num_seqs, -1, group, time, time) + mask
    weights = scores.softmax(-1).view(num_seqs, -1, group * time, time)
    return (weights @ v.transpose(1, 2)).view(num_seqs, heads, time, head_dim).transpose(1, 2).reshape(num_seqs, time, -1)


def causal_mask(time, window=0):
    """0 where a row sees a column, else minus infinity; a window counts the row itself."""
    seen = torch.ones(time, time).tril()
    if window:
        seen = seen.triu(1 - window)
    return torch.zeros(time, time).masked_fill(seen == 0, -math.inf)


class NormedAttention(nn.Module):
    """Attention whose queries and keys are normed for each head; the result may be gated by the query's product."""

    def __init__(self, shape, rotary_dim=0, gated=False):
        super().__init__()
        self.shape, self.rotary_dim, self.gated = shape, rotary_dim or shape.head_dim, gated
        std, width = shape.dim ** -0.5, shape.heads * shape.head_dim
        self.attn_q = Linear(shape.dim, 2 * width if gated else width, std)
        self.attn_k = Linear(shape.dim, shape.kv_heads * shape.head_dim, std)
        self.attn_v = Linear(shape.dim, shape.kv_heads * shape.head_dim, std)
        self.attn_q_norm, self.attn_k_norm = Norm(shape.head_dim, shape.norm_eps), Norm(shape.head_dim, shape.norm_eps)
        self.attn_output = Linear(width, shape.dim, 0.0)

    @torch.no_grad()
    def inherit(self, weights, layer, sizes):
        """`sizes`: the typical size of an element of the demo's queries and keys."""
        s, name = self.shape, f"blk.{layer}.attn_"
        q = reordered(weights[name + "q.weight"], s.head_dim, self.rotary_dim)
        if self.gated:  # [query | gate] for each head; a gate of one half at the start
            both = torch.zeros(s.heads, 2, s.head_dim, s.dim)
            both[:, 0] = q.view(s.heads, s.head_dim, s.dim)
            q = both.view(-1, s.dim)
        self.attn_q.weight.copy_(q)
        self.attn_k.weight.copy_(reordered(weights[name + "k.weight"], s.head_dim, self.rotary_dim))
        self.attn_v.weight.copy_(weights[name + "v.weight"])
        self.attn_output.weight.copy_(weights[name + "output.weight"] * (2 if self.gated else 1))
        self.attn_q_norm.weight.fill_(sizes[0])
        self.attn_k_norm.weight.fill_(sizes[1])

    def turned(self, heads, _positions):
        return rotate_halves(heads, self.rotary_dim, self.shape.rope_base)

    def mix(self, x, mask, positions=None):
        s, (num_seqs, time, _) = self.shape, x.shape
        q = self.attn_q(x).view(num_seqs, time, s.heads, -1)
        gate = q[..., s.head_dim:]
        k = self.attn_k(x).view(num_seqs, time, s.kv_heads, s.head_dim)
        v = self.attn_v(x).view(num_seqs, time, s.kv_heads, s.head_dim)
        q = self.turned(self.attn_q_norm(q[..., :s.head_dim]), positions)
        k = self.turned(self.attn_k_norm(k), positions)
        mixed = attend(q, k, v, mask, s.head_dim ** -0.5)
        if self.gated:
            mixed = mixed * torch.sigmoid(gate.reshape(num_seqs, time, -1))
        return self.attn_output(mixed)


class GatedFeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        std = shape.dim ** -0.5
        self.ffn_gate = Linear(shape.dim, shape.ffn, std)
        self.ffn_up = Linear(shape.dim, shape.ffn, std)
        self.ffn_down = Linear(shape.ffn, shape.dim, 0.0)

    @torch.no_grad()
    def inherit(self, weights, layer):
        for part in ("gate", "up", "down"):
            getattr(self, "ffn_" + part).weight.copy_(weights[f"blk.{layer}.ffn_{part}.weight"])

    def __call__(self, x):
        return self.ffn_down(F.silu(self.ffn_gate(x)) * self.ffn_up(x))


class Decoder(nn.Module):
    """Embeddings, layers, the last norm and a separate head, all but the layers as the demo's."""

    def __init__(self, shape, layers):
        super().__init__()
        self.token_embd = nn.Parameter(torch.zeros(shape.vocab, shape.dim))
        self.blk = nn.ModuleList(layers)
        self.output_norm = Norm(shape.dim, shape.norm_eps)
        self.output = Linear(shape.dim, shape.vocab, 0.0)

    @torch.no_grad()
    def inherit_ends(self, weights, scale=1.0):
        """`scale`: what the family multiplies its embeddings by."""
        self.token_embd.copy_(weights["token_embd.weight"] / scale)
        self.output_norm.weight.copy_(weights["output_norm.weight"])
        self.output.weight.copy_(weights["output.weight"])

    def new_matrices(self):
        return []


@torch.no_grad()
def inherit_layer(layer, weights, i, sizes):
    """A layer with the demo's two norms before its branches."""
    layer.ffn.inherit(weights, i)
    layer.mixer.inherit(weights, i, sizes)
    layer.attn_norm.weight.copy_(weights[f"blk.{i}.attn_norm.weight"])
    layer.ffn_norm.weight.copy_(weights[f"blk.{i}.ffn_norm.weight"])


def attention_metadata(shape):
    return [
        ("block_count", gguf_file.U32, shape.layers),
        ("attention.key_length", gguf_file.U32, shape.head_dim),
        ("attention.value_length", gguf_file.U32, shape.head_dim),
        ("attention.layer_norm_rms_epsilon", gguf_file.F32, shape.norm_eps),
    ]
