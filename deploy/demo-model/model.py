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


def rope_table(shape):
    """Unit complex numbers [context, head_dim / 2]; pair i of a head is its elements 2i and 2i + 1."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), shape.rope_base ** -exponents)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x, turns):
    """x is [batch, time, heads, head_dim]."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(-2)


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


class NormFunction(torch.autograd.Function):
    """x by its root mean square, times the weights: with a gradient of few passes over memory."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx, grad):
        unit, scale, weight = ctx.saved_tensors
        product = grad * unit
        grad_weight = product.flatten(0, -2).sum(0)
        along = (product @ weight).div_(-weight.numel()).unsqueeze(-1)
        return (grad * weight).addcmul_(unit, along).mul_(scale), grad_weight, None


class Norm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return NormFunction.apply(x, self.weight, self.eps)


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

    def attention(self, x, turns, mask):
        s, (num_seqs, time, _) = self.shape, x.shape
        group = s.heads // s.kv_heads
        q = rotate(self.attn_q(x).view(num_seqs, time, s.heads, s.head_dim), turns * (1 / math.sqrt(s.head_dim)))
        k = rotate(self.attn_k(x).view(num_seqs, time, s.kv_heads, s.head_dim), turns)
        v = self.attn_v(x).view(num_seqs, time, s.kv_heads, s.head_dim).transpose(1, 2)
        q = q.to(v.dtype).transpose(1, 2).reshape(num_seqs, s.kv_heads, group * time, s.head_dim)
        k = k.to(v.dtype).permute(0, 2, 3, 1)
        scores = (q @ k).view(num_seqs, s.kv_heads, group, time, time) + mask
        weights = scores.softmax(-1).view(num_seqs, s.kv_heads, group * time, time)
        mixed = (weights @ v).view(num_seqs, s.heads, time, s.head_dim).transpose(1, 2)
        return self.attn_output(mixed.reshape(num_seqs, time, s.dim))

    def look_back(self, x, turns, mask):
        return x + self.attention(self.attn_norm(x).to(Linear.compute), turns, mask)

    def feed(self, x):
        h = self.ffn_norm(x).to(Linear.compute)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class DemoModel(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Parameter(torch.randn(shape.vocab, shape.dim))
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.dim, shape.norm_eps)
        self.output = Linear(shape.dim, shape.vocab, 0.0)
        self.register_buffer("turns", rope_table(shape), persistent=False)

    def before_last_feed(self, ids):
        """ids [sequences, time] -> the last layer's state after its attention, f32."""
        time = ids.shape[1]
        turns, mask = self.turns[:time], torch.full((time, time), float("-inf"), dtype=Linear.compute).triu(1)
        x = F.embedding(ids, self.token_embd)
        for block in self.blk[:-1]:
            x = block.feed(block.look_back(x, turns, mask))
        return self.blk[-1].look_back(x, turns, mask)

    def forward(self, ids):
        """ids [sequences, time] -> normed hidden states [sequences, time, dim], f32."""
        return self.output_norm(self.blk[-1].feed(self.before_last_feed(ids)))

    def loss(self, ids, targets):
        """Mean cross entropy over the targets that are not -1; what follows the last attention runs on those rows only.
        Some rows without a target fill their number up, for few different shapes of matrices."""
        targets = targets.flatten()
        rows = (targets >= 0).nonzero()[:, 0]
        filling = (targets < 0).nonzero()[:-len(rows) % 64, 0]
        rows = torch.cat((rows, filling))
        hidden = self.output_norm(self.blk[-1].feed(self.before_last_feed(ids).flatten(0, 1)[rows]))
        return F.cross_entropy(self.output(hidden).float(), targets[rows], ignore_index=-1)


@torch.no_grad()
def begin_with_copying(model, constant=4.0, sharpness=2.0, near_pairs=10):
    """Starts the first two layers as a circuit that copies (an induction head, Olsson et al. 2022), which a small model
    otherwise spends most of its training to find; every weight then learns on.

    Layer 0, heads 0 and 1 look one and two tokens back, by the fast pairs of the rotation and element 0 of the embeddings, which is
    the same for all tokens. Layer 1, head 0 looks for the place behind an earlier copy of the current token, by the slow
    pairs, and writes what stands there, turned by `turn`, which the head of the model reads."""
    s, half, near = model.shape, model.shape.head_dim // 2, 2 * near_pairs
    first, second = model.blk[0], model.blk[1]
    basis = nn.init.orthogonal_(torch.empty(s.dim, s.dim))
    basis[:, 0] = 0
    read, one_back, two_back, copied = basis.split(s.head_dim)
    model.token_embd[:, 0] = constant
    angles = s.rope_base ** (-torch.arange(near_pairs) * 2.0 / s.head_dim)
    for part in (first.attn_q, first.attn_k):
        part.weight[:, 0] = 0
        part.weight[:2 * s.head_dim].mul_(0.3)
    first.attn_k.weight[:near] = 0
    first.attn_k.weight[0:near:2, 0] = sharpness
    for head, place in enumerate((one_back, two_back)):
        rows, turned = first.attn_q.weight[head * s.head_dim:][:near], (head + 1) * angles
        rows.zero_()
        rows[0::2, 0], rows[1::2, 0] = sharpness * turned.cos(), -sharpness * turned.sin()
        first.attn_output.weight[:, head * s.head_dim:][:, :s.head_dim] = 2 * place.T
    first.attn_v.weight[:s.head_dim] = read
    second.attn_q.weight[half:s.head_dim] = 1.6 * read[half:]
    second.attn_k.weight[half:s.head_dim] = 0.9 * one_back[half:]
    second.attn_q.weight[:half] = second.attn_k.weight[:half] = 0
    second.attn_v.weight[:s.head_dim] = copied
    turn = nn.init.orthogonal_(torch.empty(s.dim, s.dim))
    second.attn_output.weight[:, :s.head_dim] = 4 * (copied @ turn).T
    model.output.weight.copy_(0.08 * model.token_embd @ turn)
    model.output.weight.sub_(model.output.weight.mean(0))
