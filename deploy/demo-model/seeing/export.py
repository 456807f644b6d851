"""Writes the seeing model as two GGUF files, the decoder's and the tower's: python3 -m seeing.export, in the folder above."""
import argparse
from pathlib import Path

import torch

import export as demo
import gguf_file
from seeing.network import MERGE, PATCH, SECTIONS, SIDE, Shape, TowerShape
from seeing.train import FOLDER, vocabulary

NAME = "Quire Demo Seeing"
DESCRIPTION = "A very small trained model that names shapes, colours, numbers and places in drawn pictures"


def text_metadata(shape):
    values = [
        ("block_count", gguf_file.U32, shape.layers),
        ("context_length", gguf_file.U32, shape.context),
        ("embedding_length", gguf_file.U32, shape.dim),
        ("feed_forward_length", gguf_file.U32, shape.ffn),
        ("attention.head_count", gguf_file.U32, shape.heads),
        ("attention.head_count_kv", gguf_file.U32, shape.kv_heads),
        ("attention.key_length", gguf_file.U32, shape.head_dim),
        ("attention.value_length", gguf_file.U32, shape.head_dim),
        ("attention.layer_norm_rms_epsilon", gguf_file.F32, shape.norm_eps),
        ("rope.dimension_count", gguf_file.U32, shape.head_dim),
        ("rope.dimension_sections", gguf_file.ARRAY, (gguf_file.I32, SECTIONS + [0])),
        ("rope.freq_base", gguf_file.F32, shape.rope_base),
        ("vocab_size", gguf_file.U32, shape.vocab),
        ("n_deepstack_layers", gguf_file.U32, 1),
    ]
    return [("qwen3vl." + key, kind, value) for key, kind, value in values]


def tokenizer_metadata(words):
    """The demo's, with the tokens around a picture."""
    types = [demo.CONTROL_TOKEN if token in words.control else demo.NORMAL_TOKEN for token in words.tokens]
    changed = {"tokenizer.ggml.tokens": (gguf_file.STRING, words.tokens), "tokenizer.ggml.token_type": (gguf_file.I32, types)}
    return [(key, kind, changed.get(key, value)) for key, kind, value in demo.tokenizer_metadata(words.base)]


def tower_metadata(shape, out):
    levels = [block == shape.deepstack for block in range(shape.blocks)]
    vision = [
        ("projection_dim", gguf_file.U32, out),
        ("image_size", gguf_file.U32, SIDE),
        ("image_min_pixels", gguf_file.U32, SIDE * SIDE),
        ("image_max_pixels", gguf_file.U32, SIDE * SIDE),
        ("patch_size", gguf_file.U32, PATCH),
        ("spatial_merge_size", gguf_file.U32, MERGE),
        ("embedding_length", gguf_file.U32, shape.dim),
        ("feed_forward_length", gguf_file.U32, shape.ffn),
        ("block_count", gguf_file.U32, shape.blocks),
        ("attention.head_count", gguf_file.U32, shape.heads),
        ("attention.layer_norm_epsilon", gguf_file.F32, shape.norm_eps),
        ("image_mean", gguf_file.ARRAY, (gguf_file.F32, [0.5] * 3)),
        ("image_std", gguf_file.ARRAY, (gguf_file.F32, [0.5] * 3)),
        ("is_deepstack_layers", gguf_file.ARRAY, (gguf_file.BOOL, levels)),
    ]
    return [("general.type", gguf_file.STRING, "mmproj"), ("clip.has_vision_encoder", gguf_file.BOOL, True),
            ("clip.projector_type", gguf_file.STRING, "qwen3vl_merger"), ("clip.use_gelu", gguf_file.BOOL, True)] + [
                ("clip.vision." + key, kind, value) for key, kind, value in vision]


def name_in_file(name):
    """The tensor's name for a value of the network's state."""
    if name in ("token_embd", "v.position_embd"):
        return name + ".weight"
    if name.startswith("v."):
        return name.replace("v.mm.", "mm.")
    return name.replace("mixer.", "").replace(".ffn.", ".")


def divided(state):
    """Tensors of the decoder and of the tower, by the names of the files."""
    text, tower = {}, {}
    for name, value in state.items():
        value = value.numpy()
        if name.startswith("hint."):
            continue
        if name == "v.patch_embd.weight":  # the two frames of a still picture are equal
            tower[name] = tower[name + ".1"] = value / 2
        else:
            (tower if name.startswith("v.") else text)[name_in_file(name)] = value
    return text, tower


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER / "out")
    args = parser.parse_args()
    state = torch.load(args.folder / "seeing.pt", map_location="cpu")
    words = vocabulary()
    text, tower = divided(state["model"])
    shape = Shape(len(words.tokens))
    for path, architecture, tensors, metadata in (
            (FOLDER / "quire-seeing.gguf", "qwen3vl", text, text_metadata(shape) + tokenizer_metadata(words)),
            (FOLDER / "mmproj-quire-seeing.gguf", "clip", tower, tower_metadata(TowerShape(), shape.dim))):
        count = sum(tensor.size for tensor in tensors.values())
        gguf_file.write(path, demo.general_metadata(count, architecture, NAME, DESCRIPTION) + metadata, tensors)
        print(f"{path}: {count} parameters, {path.stat().st_size} bytes, step {state['step']}")


if __name__ == "__main__":
    main()
