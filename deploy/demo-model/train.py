"""Trains the demo model for a fixed number of steps and saves checkpoints; `--resume` goes on from the last one.

Each worker is a process with one thread and its own share of the documents; they meet twice per step, which on a busy
machine is far faster than threads that meet in every operation.
"""
import argparse
import time
from pathlib import Path

import torch
from torch import distributed, multiprocessing

from data import Documents, Groups, as_text
from model import DemoModel, Linear, Shape, begin_with_copying
from tokenizer import CONTROL, Tokenizer, count_words, learn_merges

import corpus
import gguf_file

TOKENIZER_DOCUMENTS = 30000
SHIPPED = Path(__file__).with_name("quire-demo.gguf")


def make_tokenizer(folder, seed, vocab):
    """The shipped file's, which the families and the adapter share; learned from the text where there is no such file."""
    path = folder / "tokenizer.json"
    if not path.exists() and SHIPPED.exists():
        Tokenizer.of_file(gguf_file.Reader(SHIPPED)).save(path)
    elif not path.exists():
        texts = (as_text(corpus.document(seed, i)) for i in range(TOKENIZER_DOCUMENTS))
        merges = learn_merges(count_words(texts), vocab - 256 - len(CONTROL))
        Tokenizer(merges).save(path)


def add_over_workers(tensors):
    """The sums of the tensors over all workers, by one exchange."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    distributed.all_reduce(flat)
    parts = flat.split([t.numel() for t in tensors])
    return [part.view_as(t) for part, t in zip(parts, tensors)]


def average_gradients(model, workers):
    params = list(model.parameters())
    for p, total in zip(params, add_over_workers([p.grad for p in params])):
        p.grad = total / workers


@torch.no_grad()
def orthogonal(update):
    """The nearest matrix with equal singular values, by five Newton-Schulz steps (Muon, Jordan et al. 2024)."""
    x = update.to(Linear.compute)
    x = x / (x.norm() + 1e-7)
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return (x.T if flip else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonal updates, for the matrices inside the layers. The workers share the updates out."""

    def __init__(self, params, lr, rank, workers, momentum=0.95, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.rank, self.workers = rank, workers

    @torch.no_grad()
    def step(self, closure=None):
        group, = self.param_groups
        updates = [torch.zeros_like(p) for p in group["params"]]
        for i, p in enumerate(group["params"]):
            mean = self.state[p].setdefault("mean", torch.zeros_like(p))
            mean.lerp_(p.grad, 1 - group["momentum"])
            if i % self.workers == self.rank:
                updates[i] = orthogonal(p.grad.lerp(mean, group["momentum"]))
        for p, update in zip(group["params"], add_over_workers(updates)):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(update, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def make_optimizers(model, rank, workers):
    matrices = [p for p in model.blk.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    rest = [{"params": [model.token_embd], "lr": 0.03}, {"params": [model.output.weight], "lr": 0.004}, {"params": vectors, "lr": 0.01}]
    adam = torch.optim.AdamW(rest, betas=(0.9, 0.97), eps=1e-9, weight_decay=0.0)
    return [Muon(matrices, lr=0.015, rank=rank, workers=workers), adam]


def schedule(step, num_steps, warmup=20, decay_share=0.6):
    """Warm-up, a plateau, then a straight line down to 2 %."""
    left = (num_steps - step) / (num_steps * decay_share)
    return min(1.0, (step + 1) / warmup, max(0.02, left))


@torch.no_grad()
def held_out_loss(model, batches):
    return sum(model.loss(x, y).item() for x, y in batches) / len(batches)


def rates_of(optimizers):
    """The learning rates before any schedule; a checkpoint has those of its step."""
    return [[group["lr"] for group in o.param_groups] for o in optimizers]


def begin_step(optimizers, base_rates, share):
    """Forgets the gradients and sets the learning rates to a share of the given ones."""
    for optimizer, rates in zip(optimizers, base_rates):
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * share


def state_of(model, optimizers, step):
    return {"model": model.state_dict(), "step": step, "optimizers": [o.state_dict() for o in optimizers]}


def restore(path, model, optimizers):
    """Continues from a checkpoint; the next step."""
    state = torch.load(path)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"]):
        optimizer.load_state_dict(saved)
    return state["step"]


def save(folder, model, optimizers, step):
    state = {"shape": vars(model.shape)} | state_of(model, optimizers, step)
    torch.save(state, folder / "checkpoint.tmp")
    (folder / "checkpoint.tmp").rename(folder / "checkpoint.pt")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--seed", default="quire-1")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--group-tokens", type=int, default=1024)
    parser.add_argument("--groups", type=int, default=2, help="of each worker in a step")
    parser.add_argument("--vocab", type=int, default=3072)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compute", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def prepare(args, rank):
    """The tokenizer, the model, its optimizers with their rates before any schedule, and the first step."""
    torch.manual_seed(20)
    torch.set_num_threads(1)
    Linear.compute = getattr(torch, args.compute)
    tokenizer = Tokenizer.load(args.folder / "tokenizer.json")
    model = DemoModel(Shape(vocab=len(tokenizer.tokens)))
    begin_with_copying(model)
    optimizers = make_optimizers(model, rank, args.workers)
    base_rates = rates_of(optimizers)
    is_resumed = args.resume and (args.folder / "checkpoint.pt").exists()
    first = restore(args.folder / "checkpoint.pt", model, optimizers) if is_resumed else 0
    return tokenizer, model, optimizers, base_rates, first


def one_step(args, model, optimizers, base_rates, step, groups):
    """Every learned token of a worker's groups counts the same; the worker's mean loss."""
    begin_step(optimizers, base_rates, schedule(step, args.steps))
    learned = [(targets >= 0).sum().item() for _, targets in groups]
    mean = 0.0
    for (ids, targets), count in zip(groups, learned):
        loss = model.loss(ids, targets) * (count / sum(learned))
        loss.backward()
        mean += loss.item()
    average_gradients(model, args.workers)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return mean


def work(rank, args):
    began = time.time()
    distributed.init_process_group("gloo", f"file://{args.folder.resolve()}/meeting", rank=rank, world_size=args.workers)
    tokenizer, model, optimizers, base_rates, first = prepare(args, rank)
    dealt = Groups(Documents(tokenizer, args.seed, first=rank, step=args.workers), tokenizer, args.group_tokens)
    checks = Groups(Documents(tokenizer, args.seed + "/held-out", first=corpus.MIXED_FROM), tokenizer, 1024)
    checks = [checks.group() for _ in range(20)]
    for step in range(args.steps):
        groups = [dealt.group() for _ in range(args.groups)]
        if step < first:
            continue
        loss = one_step(args, model, optimizers, base_rates, step, groups)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss:.4f} documents {dealt.next * args.workers} {time.time() - began:.0f} s", flush=True)
        if rank == 0 and (step % 100 == 99 or step == args.steps - 1):
            print(f"step {step} held-out loss {held_out_loss(model, checks):.4f}", flush=True)
            save(args.folder, model, optimizers, step + 1)


def main():
    args = parse_arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "meeting").unlink(missing_ok=True)
    make_tokenizer(args.folder, args.seed, args.vocab)
    multiprocessing.spawn(work, (args,), args.workers)


if __name__ == "__main__":
    main()
