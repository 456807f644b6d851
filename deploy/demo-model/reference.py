"""An independent forward pass in 64-bit numpy, from the GGUF file alone: greedy ids and text for a prompt.

Written from the description of the architecture and not from model.py, so that the two check each other.
"""
import argparse
import json

import numpy as np

import chat
import gguf_file
from tokenizer import Tokenizer


class Reference:
    """One sequence with its cache; `feed` returns the logits after the last of the given tokens."""

    def __init__(self, path):
        file = gguf_file.Reader(path)
        self.meta, self.weights = file.metadata, file.tensors
        self.tokenizer = Tokenizer.of_file(file)
        assert self.tokenizer.tokens == self.meta["tokenizer.ggml.tokens"]
        self.heads = self.meta["llama.attention.head_count"]
        self.kv_heads = self.meta["llama.attention.head_count_kv"]
        self.layers = self.meta["llama.block_count"]
        self.head_dim = self.meta["llama.rope.dimension_count"]
        self.end = self.meta["tokenizer.ggml.eos_token_id"]
        self.reset()

    def reset(self):
        self.keys = [np.zeros((0, self.kv_heads, self.head_dim)) for _ in range(self.layers)]
        self.values = [np.zeros((0, self.kv_heads, self.head_dim)) for _ in range(self.layers)]

    def norm(self, x, name):
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.meta["llama.attention.layer_norm_rms_epsilon"]) * self.weights[name]

    def turn(self, x, first):
        """Rotates the complex number made of elements 2i and 2i + 1; x is [time, heads, head_dim]."""
        positions = np.arange(first, first + len(x))
        rates = self.meta["llama.rope.freq_base"] ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.outer(positions, rates))[:, None, :]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def attend(self, x, layer):
        name = f"blk.{layer}.attn_"
        first, time = len(self.keys[layer]), len(x)
        q = self.turn((x @ self.weights[name + "q.weight"].T).reshape(time, self.heads, -1), first)
        k = self.turn((x @ self.weights[name + "k.weight"].T).reshape(time, self.kv_heads, -1), first)
        v = (x @ self.weights[name + "v.weight"].T).reshape(time, self.kv_heads, -1)
        self.keys[layer] = np.concatenate([self.keys[layer], k])
        self.values[layer] = np.concatenate([self.values[layer], v])
        out = np.empty_like(q)
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ self.keys[layer][:, shared].T / np.sqrt(self.head_dim)
            scores[np.arange(first + time)[None, :] > np.arange(first, first + time)[:, None]] = -np.inf
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = scores / scores.sum(axis=1, keepdims=True) @ self.values[layer][:, shared]
        return out.reshape(time, -1) @ self.weights[name + "output.weight"].T

    def feed(self, ids):
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            name = f"blk.{layer}."
            x = x + self.attend(self.norm(x, name + "attn_norm.weight"), layer)
            h = self.norm(x, name + "ffn_norm.weight")
            gate = h @ self.weights[name + "ffn_gate.weight"].T
            gated = gate / (1 + np.exp(-gate)) * (h @ self.weights[name + "ffn_up.weight"].T)
            x = x + gated @ self.weights[name + "ffn_down.weight"].T
        return self.norm(x[-1], "output_norm.weight") @ self.weights["output.weight"].T

    def greedy(self, prompt_ids, max_tokens=200):
        self.reset()
        logits, out = self.feed(prompt_ids), []
        while len(out) < max_tokens:
            token = int(np.argmax(logits))
            if token == self.end:
                break
            out.append(token)
            logits = self.feed([token])
        return out

    def answer(self, messages, tools=None, max_tokens=200):
        prompt = chat.render(messages, tools, add_generation_prompt=True)
        return self.tokenizer.decode(self.greedy(self.tokenizer.encode(prompt), max_tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("prompt", help="a user message, or plain text with --raw")
    parser.add_argument("--raw", action="store_true", help="continue the text instead of answering it")
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()
    reference = Reference(args.model)
    text = args.prompt if args.raw else chat.render([{"role": "user", "content": args.prompt}], add_generation_prompt=True)
    prompt_ids = reference.tokenizer.encode(text)
    ids = reference.greedy(prompt_ids, args.max_tokens)
    print(json.dumps({"prompt_ids": prompt_ids, "ids": ids, "text": reference.tokenizer.decode(ids)}, ensure_ascii=False))


if __name__ == "__main__":
    main()
