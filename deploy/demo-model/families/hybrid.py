"""A hybrid in the form of Qwen3.5: gated delta nets and gated attention in turn, and a block that predicts the token
after the next one (multi-token prediction)."""
import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
from families.shapes import Decoder, GatedFeedForward, NormedAttention, Shape, Vector, causal_mask
from model import Linear, Norm

ARCHITECTURE, NAME = "qwen35", "Quire Demo Hybrid"
SHAPE = Shape(context=8192)
INTERVAL, ROTARY_DIM = 2, 32
KEY_HEADS, VALUE_HEADS, STATE_SIZE, TAPS = 2, 4, 64, 4
CHUNK = 64
STEPS, IMITATION_STEPS = 120, 80
MTP_SHARE = 0.3  # of the second prediction in the loss


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def delta_rule(q, k, v, g, beta):
    """The gated delta rule (arXiv 2412.06464) by chunks; all are [sequences, heads, time, ...], g is the log of the decay.

    Within a chunk the state S_t = exp(G_t) S_0 + sum of exp(G_t - G_i) k_i u_i, where the u solve a triangular system."""
    state, outs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1]), []
    lower = torch.ones(CHUNK, CHUNK).tril()
    for begin in range(0, k.shape[2], CHUNK):
        part = slice(begin, begin + CHUNK)
        qc, kc, vc, b = q[:, :, part], k[:, :, part], v[:, :, part], beta[:, :, part, None]
        total = g[:, :, part].cumsum(-1)
        decay = (total[..., :, None] - total[..., None, :]).masked_fill(lower == 0, -1e9).exp()
        system = b * decay * (kc @ kc.transpose(-1, -2)) * lower.tril(-1) + torch.eye(CHUNK)
        grown = total.exp()[..., None]
        u = torch.linalg.solve_triangular(system, b * (vc - grown * (kc @ state)), upper=False, unitriangular=True)
        outs.append(grown * (qc @ state) + (qc @ kc.transpose(-1, -2) * decay) @ u)
        last = (total[..., -1:] - total).exp()[..., None]
        state = grown[..., -1:, :] * state + (kc * last).transpose(-1, -2) @ u
    return torch.cat(outs, 2)


class DeltaNet(nn.Module):
    def __init__(self, shape):
        super().__init__()
        keys, values = KEY_HEADS * STATE_SIZE, VALUE_HEADS * STATE_SIZE
        std = shape.dim ** -0.5
        self.attn_qkv = Linear(shape.dim, 2 * keys + values, std)
        self.attn_gate = Linear(shape.dim, values, std)
        self.ssm_alpha = Linear(shape.dim, VALUE_HEADS, 0.02)
        self.ssm_beta = Linear(shape.dim, VALUE_HEADS, 0.02)
        taps = torch.zeros(2 * keys + values, TAPS)
        taps[:, -1], taps[:, -2] = 1.0, 0.5
        self.ssm_conv1d = Vector(taps)
        # Half of what a head keeps is forgotten after some 2, 10, 40 and 200 tokens.
        self.ssm_dt = Vector(torch.tensor([0.3, 0.07, 0.017, 0.0035]).expm1().log(), "bias")
        self.ssm_a_log = nn.Parameter(torch.zeros(VALUE_HEADS))
        self.ssm_norm = Norm(STATE_SIZE, shape.norm_eps)
        self.ssm_out = Linear(values, shape.dim, 0.0)

    def mix(self, x, _mask):
        num_seqs, time, _ = x.shape
        mixed = self.attn_qkv(x).transpose(1, 2)
        weight = self.ssm_conv1d.weight[:, None, :]
        mixed = F.silu(F.conv1d(F.pad(mixed, (TAPS - 1, 0)), weight, groups=weight.shape[0])).transpose(1, 2)
        keys = KEY_HEADS * STATE_SIZE
        q, k, v = (part.reshape(num_seqs, time, -1, STATE_SIZE).transpose(1, 2)
                   for part in mixed.split([keys, keys, VALUE_HEADS * STATE_SIZE], -1))
        # Value head i uses key head i modulo their number.
        q, k = (unit(part).repeat(1, VALUE_HEADS // KEY_HEADS, 1, 1) for part in (q, k))
        g = -self.ssm_a_log.exp() * F.softplus(self.ssm_alpha(x) + self.ssm_dt.bias)
        beta = torch.sigmoid(self.ssm_beta(x))
        out = delta_rule(q * STATE_SIZE ** -0.5, k, v, g.transpose(1, 2), beta.transpose(1, 2))
        out = self.ssm_norm(out.transpose(1, 2)).reshape(num_seqs, time, -1)
        return self.ssm_out(out * F.silu(self.attn_gate(x)))


class Layer(nn.Module):
    def __init__(self, shape, mixer):
        super().__init__()
        self.attn_norm = Norm(shape.dim, shape.norm_eps)
        self.mixer = mixer
        self.post_attention_norm = Norm(shape.dim, shape.norm_eps)
        self.ffn = GatedFeedForward(shape)

    def forward(self, x, mask):
        x = x + self.mixer.mix(self.attn_norm(x), mask)
        return x + self.ffn(self.post_attention_norm(x))


class NextTokens(nn.Module):
    """nextn.*: the last hidden state and the embedding of the token behind it, joined, go through one more layer."""

    def __init__(self, shape):
        super().__init__()
        self.enorm, self.hnorm = Norm(shape.dim, shape.norm_eps), Norm(shape.dim, shape.norm_eps)
        self.eh_proj = Linear(2 * shape.dim, shape.dim, (2 * shape.dim) ** -0.5)
        self.shared_head_norm = Norm(shape.dim, shape.norm_eps)


def attention(shape):
    return NormedAttention(shape, ROTARY_DIM, gated=True)


class Model(Decoder):
    def __init__(self):
        s = SHAPE
        mixers = [attention(s) if (i + 1) % INTERVAL == 0 else DeltaNet(s) for i in range(s.layers)]
        layers = [Layer(s, mixer) for mixer in mixers] + [Layer(s, attention(s))]
        layers[-1].nextn = NextTokens(s)
        super().__init__(s, layers)

    @torch.no_grad()
    def inherit(self, weights, sizes, _ids):
        """The predicting block starts as the last layer, between identities."""
        last = SHAPE.layers - 1
        for i, layer in enumerate(self.blk):
            of = min(i, last)
            layer.ffn.inherit(weights, of)
            layer.attn_norm.weight.copy_(weights[f"blk.{of}.attn_norm.weight"])
            layer.post_attention_norm.weight.copy_(weights[f"blk.{of}.ffn_norm.weight"])
            if isinstance(layer.mixer, NormedAttention):
                layer.mixer.inherit(weights, of, sizes[of])
        self.inherit_ends(weights)
        self.blk[-1].nextn.shared_head_norm.weight.copy_(weights["output_norm.weight"])

    def imitators(self):
        return {i: layer.mixer for i, layer in enumerate(self.blk) if isinstance(layer.mixer, DeltaNet)}

    def new_matrices(self):
        nets = [p for layer in self.blk if isinstance(layer.mixer, DeltaNet)
                for part in ("attn_qkv", "attn_gate", "ssm_out") for p in getattr(layer.mixer, part).parameters()]
        return nets + [self.blk[-1].nextn.eh_proj.weight]

    def hidden(self, ids):
        mask, x = causal_mask(ids.shape[1]), self.token_embd[ids]
        for layer in self.blk[:-1]:
            x = layer(x, mask)
        return self.output_norm(x)

    def second(self, ids, hidden):
        """What predicts the token after next: at each place the hidden state and the token that follows."""
        block, nextn = self.blk[-1], self.blk[-1].nextn
        joined = torch.cat((nextn.enorm(self.token_embd[ids[:, 1:]]), nextn.hnorm(hidden[:, :-1])), -1)
        return nextn.shared_head_norm(block(nextn.eh_proj(joined), causal_mask(joined.shape[1])))

    def loss(self, ids, targets):
        hidden, wanted = self.hidden(ids), targets >= 0
        first = F.cross_entropy(self.output(hidden[wanted]), targets[wanted])
        further = targets[:, 1:]
        wanted = further >= 0
        second = F.cross_entropy(self.output(self.second(ids, hidden)[wanted]), further[wanted])
        self.shown = {"second": second.item()}
        return first + MTP_SHARE * second


def metadata():
    s = SHAPE
    return [
        ("block_count", gguf_file.U32, s.layers + 1),
        ("nextn_predict_layers", gguf_file.U32, 1),
        ("attention.key_length", gguf_file.U32, s.head_dim),
        ("attention.value_length", gguf_file.U32, s.head_dim),
        ("attention.layer_norm_rms_epsilon", gguf_file.F32, s.norm_eps),
        ("rope.dimension_count", gguf_file.U32, ROTARY_DIM),
        ("rope.dimension_sections", gguf_file.ARRAY, (gguf_file.I32, [6, 5, 5, 0])),
        ("full_attention_interval", gguf_file.U32, INTERVAL),
        ("ssm.conv_kernel", gguf_file.U32, TAPS),
        ("ssm.group_count", gguf_file.U32, KEY_HEADS),
        ("ssm.time_step_rank", gguf_file.U32, VALUE_HEADS),
        ("ssm.state_size", gguf_file.U32, STATE_SIZE),
        ("ssm.inner_size", gguf_file.U32, VALUE_HEADS * STATE_SIZE),
    ]


def exported(name, value):
    if name.endswith("ssm_a_log"):
        return name.replace("ssm_a_log", "ssm_a"), -value.exp()
    return name, value
