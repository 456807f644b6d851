"""Trains the seeing model from nothing: python3 -m seeing.train, in the folder above. `--resume` goes on from the last checkpoint."""
import argparse
import time
from pathlib import Path

import torch
from torch import distributed

from families.train import demo_weights
from seeing.conversations import Batches, Vocabulary
from seeing.network import Model, Shape
from train import Muon, begin_step, rates_of, restore, schedule, state_of

FOLDER = Path(__file__).parent
SEED = "seeing-1"


def vocabulary():
    return Vocabulary(demo_weights(FOLDER.parent / "quire-demo.gguf")[0].merges)


def optimizers_of(model):
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".blk." in f".{name}"]
    known = {id(p) for p in matrices}
    rates = {"token_embd": 0.01, "output.weight": 0.003}
    rest = [{"params": [p], "lr": rates.get(name, 0.002)} for name, p in model.named_parameters() if id(p) not in known]
    return [Muon(matrices, lr=0.015, rank=0, workers=1), torch.optim.AdamW(rest, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=48, help="pictures of a step")
    parser.add_argument("--folder", type=Path, default=FOLDER / "out")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(20)
    torch.set_num_threads(args.threads)
    args.folder.mkdir(parents=True, exist_ok=True)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    words = vocabulary()
    model, batches = Model(Shape(len(words.tokens))), Batches(words, SEED, args.batch)
    optimizers, path, first = optimizers_of(model), args.folder / "seeing.pt", 0
    rates = rates_of(optimizers)
    if args.resume and path.exists():
        first = batches.next = restore(path, model, optimizers)
    began = time.time()
    for step in range(first, args.steps):
        begin_step(optimizers, rates, schedule(step, args.steps))
        ids, positions, targets, pixels, hints = batches.batch()
        loss = model.loss(ids, positions, targets, pixels, hints)
        loss.backward()
        for p in model.parameters():  # a batch without pictures leaves the tower as it is
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} right {model.right:.3f} hints {model.hinted:.3f} {'' if pixels is not None else 'no picture '}{time.time() - began:.0f} s", flush=True)
        if step % 100 == 99 or step == args.steps - 1:
            torch.save(state_of(model, optimizers, step + 1), path)


if __name__ == "__main__":
    main()
