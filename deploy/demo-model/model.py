"""The network: a Llama block as llama.cpp runs it (RMS norm, interleaved RoPE, grouped queries, SwiGLU, separate head)."""
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    vocab: int = 3072
    dim: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 768
    context: int = 2048
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self):
        return self.dim // self.heads


def rope_tables(shape):
    """cos and sin, each [context, head_dim / 2]; pair i of a head is its elements 2i and 2i + 1."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), shape.rope_base ** -exponents)
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x is [batch, time, heads, head_dim]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Linear(nn.Module):
    """A matrix kept in f32 and multiplied in `compute`, bf16 where the processor has it.

    Matrices that write to the residual start at zero and embeddings at one, so that a token is not drowned by the first
    layer before the network has learned to copy it."""
    compute = torch.float32

    def __init__(self, num_in, num_out, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_out, num_in) * std)

    def forward(self, x):
        return F.linear(x.to(self.compute), self.weight.to(self.compute))


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        kv_dim = shape.kv_heads * shape.head_dim
        std = shape.dim ** -0.5
        self.attn_norm = Norm(shape.dim, shape.norm_eps)
        self.ffn_norm = Norm(shape.dim, shape.norm_eps)
        self.attn_q = Linear(shape.dim, shape.dim, std)
        self.attn_k = Linear(shape.dim, kv_dim, std)
        self.attn_v = Linear(shape.dim, kv_dim, std)
        self.attn_output = Linear(shape.dim, shape.dim, 0.0)
        self.ffn_gate = Linear(shape.dim, shape.ffn, std)
        self.ffn_up = Linear(shape.dim, shape.ffn, std)
        self.ffn_down = Linear(shape.ffn, shape.dim, 0.0)

    def attention(self, x, cos, sin, mask):
        s, (num_seqs, time, _) = self.shape, x.shape
        group = s.heads // s.kv_heads
        q = rotate(self.attn_q(x).view(num_seqs, time, s.heads, s.head_dim).float(), cos, sin)
        k = rotate(self.attn_k(x).view(num_seqs, time, s.kv_heads, s.head_dim).float(), cos, sin)
        v = self.attn_v(x).view(num_seqs, time, s.kv_heads, s.head_dim)
        q = q.to(v.dtype).transpose(1, 2) * (1 / math.sqrt(s.head_dim))
        q = q.reshape(num_seqs, s.kv_heads, group * time, s.head_dim)
        k, v = k.to(v.dtype).permute(0, 2, 3, 1), v.transpose(1, 2)
        scores = (q @ k).view(num_seqs, s.kv_heads, group, time, time) + mask
        weights = scores.softmax(-1).view(num_seqs, s.kv_heads, group * time, time)
        mixed = (weights @ v).view(num_seqs, s.heads, time, s.head_dim).transpose(1, 2)
        return self.attn_output(mixed.reshape(num_seqs, time, s.dim))

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.attn_norm(x), cos, sin, mask)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h).float()) * self.ffn_up(h))


class DemoModel(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Parameter(torch.randn(shape.vocab, shape.dim))
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.dim, shape.norm_eps)
        self.output = Linear(shape.dim, shape.vocab, 0.0)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids):
        """ids [sequences, time] -> normed hidden states [sequences, time, dim], f32."""
        time = ids.shape[1]
        mask = torch.full((time, time), float("-inf"), dtype=Linear.compute).triu(1)
        x = self.token_embd[ids]
        for block in self.blk:
            x = block(x, self.cos[:time], self.sin[:time], mask)
        return self.output_norm(x)

    def logits(self, hidden):
        return self.output(hidden).float()

    def loss(self, ids, targets):
        """Mean cross entropy over the targets that are not -1; the head runs on those rows only."""
        hidden = self(ids)
        wanted = targets >= 0
        return F.cross_entropy(self.logits(hidden[wanted]), targets[wanted])
