"""An expert model in the form of Qwen3-MoE: eight experts of which four see a token, weights renormalised."""
import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
from families.shapes import Decoder, NormedAttention, Shape, attention_metadata, causal_mask, inherit_layer
from model import Linear, Norm

ARCHITECTURE, NAME = "qwen3moe", "Quire Demo Experts"
SHAPE = Shape()
EXPERTS, CHOSEN, EXPERT_SIZE = 8, 4, 192
STEPS = 16
BALANCE = 0.01  # weight of the loss that keeps the experts equally used


class Experts(nn.Module):
    """Tensors as the file stacks them: [expert, rows, columns]."""

    def __init__(self, shape):
        super().__init__()
        self.ffn_gate_inp = Linear(shape.dim, EXPERTS, 0.02)
        self.ffn_gate_exps = Stack(EXPERTS, EXPERT_SIZE, shape.dim)
        self.ffn_up_exps = Stack(EXPERTS, EXPERT_SIZE, shape.dim)
        self.ffn_down_exps = Stack(EXPERTS, shape.dim, EXPERT_SIZE)

    @torch.no_grad()
    def inherit(self, weights, layer):
        """Experts 0 to 3 are the quarters of the demo's network, 4 to 7 the same again. A router of two opposite rows
        chooses either four for a token, so the layer starts as the demo's; each copy then learns from other tokens."""
        quarters = weights[f"blk.{layer}.ffn_gate.weight"].view(CHOSEN, EXPERT_SIZE, -1)
        self.ffn_gate_exps.weight.copy_(torch.cat((quarters, quarters)))
        quarters = weights[f"blk.{layer}.ffn_up.weight"].view(CHOSEN, EXPERT_SIZE, -1)
        self.ffn_up_exps.weight.copy_(torch.cat((quarters, quarters)))
        down = weights[f"blk.{layer}.ffn_down.weight"]
        quarters = down.view(len(down), CHOSEN, EXPERT_SIZE).transpose(0, 1) * CHOSEN
        self.ffn_down_exps.weight.copy_(torch.cat((quarters, quarters)))
        row = torch.randn(1, len(down)) * len(down) ** -0.5
        noise = torch.randn(EXPERTS, len(down)) * 0.02 * len(down) ** -0.5
        self.ffn_gate_inp.weight.copy_(torch.cat([row] * CHOSEN + [-row] * CHOSEN) + noise)

    def __call__(self, x):
        rows = x.reshape(-1, x.shape[-1])
        probabilities = self.ffn_gate_inp(rows).softmax(-1)
        best, chosen = probabilities.topk(CHOSEN, -1)
        best = best / best.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            at, place = (chosen == expert).nonzero(as_tuple=True)
            h = rows[at]
            gated = F.silu(h @ self.ffn_gate_exps.weight[expert].T) * (h @ self.ffn_up_exps.weight[expert].T)
            out = out.index_add(0, at, (gated @ self.ffn_down_exps.weight[expert].T) * best[at, place, None])
        used = torch.zeros_like(probabilities).scatter_(1, chosen, 1.0).mean(0)
        self.balance = EXPERTS / CHOSEN * (used * probabilities.mean(0)).sum()
        return out.view_as(x)


class Stack(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*sizes))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(shape.dim, shape.norm_eps), Norm(shape.dim, shape.norm_eps)
        self.mixer, self.ffn = NormedAttention(shape), Experts(shape)

    def forward(self, x, mask):
        x = x + self.mixer.mix(self.attn_norm(x), mask)
        return x + self.ffn(self.ffn_norm(x))


class Model(Decoder):
    def __init__(self):
        super().__init__(SHAPE, [Layer(SHAPE) for _ in range(SHAPE.layers)])

    def inherit(self, weights, sizes, _ids):
        for i, layer in enumerate(self.blk):
            inherit_layer(layer, weights, i, sizes[i])
        self.inherit_ends(weights)

    def hidden(self, ids):
        mask, x = causal_mask(ids.shape[1]), self.token_embd[ids]
        for layer in self.blk:
            x = layer(x, mask)
        return self.output_norm(x)

    def loss(self, ids, targets):
        hidden, wanted = self.hidden(ids), targets >= 0
        balance = sum(layer.ffn.balance for layer in self.blk) / len(self.blk)
        loss = F.cross_entropy(self.output(hidden[wanted]), targets[wanted])
        self.shown = {"text": loss.item(), "balance": balance.item()}
        return loss + BALANCE * balance


def metadata():
    return attention_metadata(SHAPE) + [
        ("rope.dimension_count", gguf_file.U32, SHAPE.head_dim),
        ("expert_count", gguf_file.U32, EXPERTS),
        ("expert_used_count", gguf_file.U32, CHOSEN),
        ("expert_feed_forward_length", gguf_file.U32, EXPERT_SIZE),
    ]
