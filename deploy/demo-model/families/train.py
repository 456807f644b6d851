"""Trains one of the families from the demo model's weights: python3 -m families.train hybrid, in the folder above.

One thread, no workers: with inherited weights some hundred steps are enough. `--resume` goes on from the last checkpoint.
"""
import argparse
import importlib
import time
from pathlib import Path

import torch
from torch import distributed

import gguf_file
from data import Documents, Groups
from families import talk
from model import DemoModel, Linear, Norm, Shape
from tokenizer import Tokenizer
from train import Muon, begin_step, rates_of, restore, schedule, state_of

FOLDER = Path(__file__).parent
PIECE, GROUP = 64, 256  # delta nets read pieces of that length; tokens of a group for each unit of --batch
SEED = "families-1"


def demo_weights(path):
    file = gguf_file.Reader(path)
    return Tokenizer.of_file(file), {name: torch.from_numpy(value).float() for name, value in file.tensors.items()}


def demo_model(weights):
    demo = DemoModel(Shape(vocab=len(weights["token_embd.weight"])))
    demo.load_state_dict({name if name != "token_embd.weight" else "token_embd": value for name, value in weights.items()})
    return demo


@torch.no_grad()
def sizes_of_heads(demo, ids):
    """The root mean square of the demo's queries and keys in each layer: what the norms of the families replace."""
    seen = []
    hooks = [part.register_forward_hook(lambda _module, _input, out: seen.append(out.square().mean().sqrt().item()))
             for block in demo.blk for part in (block.attn_q, block.attn_k)]
    demo(ids)
    for hook in hooks:
        hook.remove()
    return list(zip(seen[0::2], seen[1::2]))


def imitate(demo, mixers, batches, steps):
    """Before the training itself: `mixers`, by layer, learn to give what the demo's attention gives there."""
    seen = {}
    for i in mixers:
        demo.blk[i].attn_norm.register_forward_hook(lambda _module, _input, out, i=i: seen.__setitem__((i, "in"), out))
        demo.blk[i].attn_output.register_forward_hook(lambda _module, _input, out, i=i: seen.__setitem__((i, "out"), out))
    params = [p for mixer in mixers.values() for p in mixer.parameters()]
    optimizers = [Muon([p for p in params if min(p.shape) > 8 and p.ndim == 2], lr=0.02, rank=0, workers=1),
                  torch.optim.AdamW([p for p in params if min(p.shape) <= 8 or p.ndim != 2], lr=0.01, weight_decay=0.0)]
    rates, began = rates_of(optimizers), time.time()
    for step in range(steps):
        with torch.no_grad():
            demo(next(batches)[0])
        loss = 0
        for i, mixer in mixers.items():
            wanted = seen[i, "out"]
            loss = loss + (mixer.mix(seen[i, "in"], None) - wanted).square().mean() / wanted.square().mean()
        begin_step(optimizers, rates, schedule(step, steps))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 10 == 0:
            print(f"imitation {step} loss {loss.item():.4f} {time.time() - began:.0f} s", flush=True)


def optimizers_of(model):
    """Orthogonal updates for matrices that start from nothing, small ones for what the demo model brings."""
    new = model.new_matrices()
    known = {id(p) for p in new}
    rest = [p for p in model.parameters() if id(p) not in known]
    groups = [{"params": [p for p in rest if p.ndim > 1], "lr": 0.001}, {"params": [p for p in rest if p.ndim == 1], "lr": 0.004}]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.97), eps=1e-9, weight_decay=0.0)
    return [adam] + ([Muon(new, lr=0.015, rank=0, workers=1)] if new else [])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=["hybrid", "experts", "windowed", "reranker"])
    parser.add_argument("--steps", type=int, help="instead of the family's own number")
    parser.add_argument("--batch", type=int, default=8, help="times 256 tokens a step")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--folder", type=Path, default=FOLDER / "out")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def in_pieces(num_tokens):
    return -(-num_tokens // PIECE) * PIECE


def make_batches(args, family, tokenizer):
    if hasattr(family, "batches"):
        return family.batches(args.seed, args.batch)
    dealt = Groups(Documents(tokenizer, args.seed, talk.document), tokenizer, GROUP * args.batch, in_pieces)
    return (dealt.group() for _ in iter(int, 1))


def main():
    args = parse_arguments()
    torch.manual_seed(20)
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    family = importlib.import_module("families." + args.family)
    args.steps = args.steps or family.STEPS
    tokenizer, weights = demo_weights(FOLDER.parent / "quire-demo.gguf")
    batches = make_batches(args, family, tokenizer)
    first_batch = next(batches)
    model = family.Model()
    optimizers, path, first = optimizers_of(model), args.folder / f"{args.family}.pt", 0
    rates = rates_of(optimizers)
    is_resumed = args.resume and path.exists()
    if hasattr(model, "inherit") and not is_resumed:
        demo = demo_model(weights)
        model.inherit(weights, sizes_of_heads(demo, first_batch[0]), first_batch[0])
        if hasattr(model, "imitators"):
            imitate(demo, model.imitators(), batches, family.IMITATION_STEPS)
    if is_resumed:
        first = restore(path, model, optimizers)
    began = time.time()
    for step in range(args.steps):
        batch = next(batches)
        if step < first:
            continue
        begin_step(optimizers, rates, schedule(step, args.steps))
        loss = model.loss(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} {getattr(model, 'shown', '')} {time.time() - began:.0f} s", flush=True)
        if step % 50 == 49 or step == args.steps - 1:
            torch.save(state_of(model, optimizers, step + 1), path)


if __name__ == "__main__":
    main()
