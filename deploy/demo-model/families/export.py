"""Writes a trained family as a GGUF file: python3 -m families.export hybrid, in the folder above."""
import argparse
import importlib
from pathlib import Path

import torch

import export as demo
import gguf_file
from families.train import FOLDER, SEED, demo_weights

DESCRIPTION = "A very small trained model that shows that its family is computed right"


def family_metadata(family):
    s = family.SHAPE
    shared = [
        ("context_length", gguf_file.U32, s.context),
        ("embedding_length", gguf_file.U32, s.dim),
        ("feed_forward_length", gguf_file.U32, s.ffn),
        ("attention.head_count", gguf_file.U32, s.heads),
        ("attention.head_count_kv", gguf_file.U32, s.kv_heads),
        ("vocab_size", gguf_file.U32, s.vocab),
    ]
    if family.ARCHITECTURE != "bert":
        shared.append(("rope.freq_base", gguf_file.F32, s.rope_base))
    return [(f"{family.ARCHITECTURE}.{key}", kind, value) for key, kind, value in shared + family.metadata()]


def named_tensors(family, state):
    """Modules that only group parts of a layer have no name in the file."""
    tensors = {}
    for name, value in state.items():
        name = name.replace("mixer.", "").replace("ffn.", "")
        name, value = family.exported(name, value) if hasattr(family, "exported") else (name, value)
        tensors["token_embd.weight" if name == "token_embd" else name] = value.numpy()
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family")
    parser.add_argument("--folder", type=Path, default=FOLDER / "out")
    args = parser.parse_args()
    family = importlib.import_module("families." + args.family)
    state = torch.load(args.folder / f"{args.family}.pt", map_location="cpu")
    tensors = named_tensors(family, state["model"])
    count = sum(t.size for t in tensors.values())
    if hasattr(family, "tokenizer_metadata"):
        tokens = family.tokenizer_metadata(SEED)
    else:
        tokens = demo.tokenizer_metadata(demo_weights(FOLDER.parent / "quire-demo.gguf")[0])
    general = demo.general_metadata(count, family.ARCHITECTURE, family.NAME, DESCRIPTION)
    out = FOLDER / f"quire-{args.family}.gguf"
    gguf_file.write(out, general + family_metadata(family) + tokens, tensors)
    print(f"{out}: {count} parameters, {out.stat().st_size} bytes, step {state['step']}")


if __name__ == "__main__":
    main()
