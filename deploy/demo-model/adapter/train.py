"""Trains a LoRA adapter for the demo model and writes it as a GGUF file: python3 -m adapter.train, in the folder above.

The demo model's weights stay as they are; beside each matrix of its layers a pair of low-rank ones learns (arXiv
2106.09685). One thread; the same seed gives the same weights on the same kind of processor with the same libraries.
"""
import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import gguf_file
from adapter import sailor
from data import Documents, Groups
from families.train import demo_model, demo_weights
from model import Linear
from train import schedule

FOLDER = Path(__file__).parent
LENGTH = 256
ALPHA = 8.0


class Changed(nn.Module):
    """A matrix that stays, and the change beside it: the second factor starts at zero, so the first step is the demo model's."""

    def __init__(self, linear, rank):
        super().__init__()
        outputs, inputs = linear.weight.shape
        self.linear, self.scale = linear, ALPHA / rank
        self.lora_a = nn.Parameter(torch.randn(rank, inputs) * inputs ** -0.5)
        self.lora_b = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return self.linear(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)


def change_matrices(model, rank):
    """{GGUF name: Changed} for every matrix of the layers."""
    model.requires_grad_(False)
    changes = {}
    for number, block in enumerate(model.blk):
        for name, part in list(block.named_children()):
            if isinstance(part, Linear):
                changes[f"blk.{number}.{name}.weight"] = changed = Changed(part, rank)
                setattr(block, name, changed)
    return changes


def write(path, changes):
    metadata = [
        ("general.type", gguf_file.STRING, "adapter"),
        ("general.architecture", gguf_file.STRING, "llama"),
        ("general.name", gguf_file.STRING, "Quire Sailor"),
        ("general.description", gguf_file.STRING, "Makes the demo model answer as a sailor: a LoRA adapter to test with"),
        ("general.license", gguf_file.STRING, "apache-2.0"),
        ("adapter.type", gguf_file.STRING, "lora"),
        ("adapter.lora.alpha", gguf_file.F32, ALPHA),
    ]
    tensors = {}
    for name, changed in changes.items():
        tensors[name + ".lora_a"] = changed.lora_a.detach().numpy()
        tensors[name + ".lora_b"] = changed.lora_b.detach().numpy()
    gguf_file.write(path, metadata, tensors)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step")
    parser.add_argument("--rate", type=float, default=0.006)
    parser.add_argument("--seed", default="adapter-1")
    parser.add_argument("--out", type=Path, default=FOLDER / "quire-sailor.gguf")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(20)
    torch.set_num_threads(1)
    tokenizer, weights = demo_weights(FOLDER.parent / "quire-demo.gguf")
    model = demo_model(weights)
    changes = change_matrices(model, args.rank)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], betas=(0.9, 0.97), weight_decay=0.0)
    dealt, began = Groups(Documents(tokenizer, args.seed, sailor.document), tokenizer, LENGTH * args.batch), time.time()
    for step in range(args.steps):
        optimizer.zero_grad(set_to_none=True)
        optimizer.param_groups[0]["lr"] = args.rate * schedule(step, args.steps)
        loss = model.loss(*dealt.group())
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.4f} {time.time() - began:.0f} s", flush=True)
    write(args.out, changes)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
