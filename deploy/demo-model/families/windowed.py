"""A windowed model in the form of Gemma 3: scaled embeddings, norms on both sides of each branch, three layers that see
64 tokens and a fourth that sees all."""
import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
from families.shapes import (Decoder, GatedFeedForward, NormedAttention, Shape, attention_metadata, causal_mask,
                             inherit_layer)
from model import Norm

ARCHITECTURE, NAME = "gemma3", "Quire Demo Windowed"
SHAPE = Shape()
WINDOW, PERIOD = 64, 4
STEPS = 16
SCALE = SHAPE.dim ** 0.5
SLOPE = 1.702  # GELU(x) is nearly x times the sigmoid of this times x


class Tanh(GatedFeedForward):
    """Gated by GELU in its tanh form; starts as the demo's SiLU, which is nearly the GELU of another scale."""

    @torch.no_grad()
    def inherit(self, weights, layer):
        super().inherit(weights, layer)
        self.ffn_gate.weight.div_(SLOPE)
        self.ffn_up.weight.mul_(SLOPE)

    def __call__(self, x):
        gate = self.ffn_gate(x)
        gelu = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate ** 3)))
        return self.ffn_down(gelu * self.ffn_up(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            setattr(self, name, Norm(shape.dim, shape.norm_eps))
        self.mixer, self.ffn = NormedAttention(shape), Tanh(shape)

    def forward(self, x, mask):
        mixed = self.mixer.mix(self.attn_norm(x), mask)
        x = x + self.post_attention_norm(mixed)
        fed = self.ffn(self.ffn_norm(x))
        self.branches = mixed, fed
        return x + self.post_ffw_norm(fed)


class Model(Decoder):
    def __init__(self):
        super().__init__(SHAPE, [Layer(SHAPE) for _ in range(SHAPE.layers)])

    @torch.no_grad()
    def inherit(self, weights, sizes, ids):
        """Norms behind a branch start as the size that the branch has for a typical token."""
        self.inherit_ends(weights, SCALE)
        mask, x = causal_mask(ids.shape[1]), SCALE * self.token_embd[ids]
        for i, layer in enumerate(self.blk):
            inherit_layer(layer, weights, i, sizes[i])
            for norm, branch in ((layer.post_attention_norm, 0), (layer.post_ffw_norm, 1)):
                layer(x, mask)
                norm.weight.fill_(layer.branches[branch].square().mean().sqrt())
            x = layer(x, mask)

    def hidden(self, ids):
        whole, near = causal_mask(ids.shape[1]), causal_mask(ids.shape[1], WINDOW)
        x = SCALE * self.token_embd[ids]
        for i, layer in enumerate(self.blk):
            x = layer(x, near if (i + 1) % PERIOD else whole)
        return self.output_norm(x)

    def loss(self, ids, targets):
        hidden, wanted = self.hidden(ids), targets >= 0
        return F.cross_entropy(self.output(hidden[wanted]), targets[wanted])


def metadata():
    return attention_metadata(SHAPE) + [
        ("attention.sliding_window", gguf_file.U32, WINDOW),
        ("attention.sliding_window_pattern", gguf_file.U32, PERIOD),
        ("rope.freq_base_swa", gguf_file.F32, SHAPE.rope_base),
    ]
