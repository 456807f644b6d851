"""Writes the trained checkpoint as a GGUF file."""
import argparse
from pathlib import Path

import torch

import chat
import gguf_file
from model import Shape
from tokenizer import CONTROL, END_OF_TEXT, TURN_END, Tokenizer

NORMAL_TOKEN, CONTROL_TOKEN = 1, 3
MOSTLY_Q8_0 = 7


def general_metadata(num_parameters, architecture, name, description):
    return [
        ("general.architecture", gguf_file.STRING, architecture),
        ("general.name", gguf_file.STRING, name),
        ("general.description", gguf_file.STRING, description),
        ("general.license", gguf_file.STRING, "apache-2.0"),
        ("general.size_label", gguf_file.STRING, f"{num_parameters / 1e6:.1f}M"),
        ("general.file_type", gguf_file.U32, MOSTLY_Q8_0),
        ("general.quantization_version", gguf_file.U32, 2),
        ("general.alignment", gguf_file.U32, gguf_file.ALIGNMENT),
    ]


def sampling_metadata():
    """What a request without sampling of its own is sampled by: its likely words, so that answers stay sentences."""
    return [
        ("general.sampling.temp", gguf_file.F32, 0.7),
        ("general.sampling.top_k", gguf_file.I32, 40),
        ("general.sampling.top_p", gguf_file.F32, 0.95),
    ]


def llama_metadata(shape):
    return [
        ("llama.context_length", gguf_file.U32, shape.context),
        ("llama.embedding_length", gguf_file.U32, shape.dim),
        ("llama.block_count", gguf_file.U32, shape.layers),
        ("llama.feed_forward_length", gguf_file.U32, shape.ffn),
        ("llama.attention.head_count", gguf_file.U32, shape.heads),
        ("llama.attention.head_count_kv", gguf_file.U32, shape.kv_heads),
        ("llama.attention.layer_norm_rms_epsilon", gguf_file.F32, shape.norm_eps),
        ("llama.rope.dimension_count", gguf_file.U32, shape.head_dim),
        ("llama.rope.freq_base", gguf_file.F32, shape.rope_base),
        ("llama.vocab_size", gguf_file.U32, shape.vocab),
    ]


def tokenizer_metadata(tokenizer):
    types = [CONTROL_TOKEN if t in CONTROL else NORMAL_TOKEN for t in tokenizer.tokens]
    return [
        ("tokenizer.ggml.model", gguf_file.STRING, "gpt2"),
        ("tokenizer.ggml.pre", gguf_file.STRING, "qwen2"),
        ("tokenizer.ggml.tokens", gguf_file.ARRAY, (gguf_file.STRING, tokenizer.tokens)),
        ("tokenizer.ggml.token_type", gguf_file.ARRAY, (gguf_file.I32, types)),
        ("tokenizer.ggml.merges", gguf_file.ARRAY, (gguf_file.STRING, [f"{a} {b}" for a, b in tokenizer.merges])),
        ("tokenizer.ggml.bos_token_id", gguf_file.U32, tokenizer.ids[END_OF_TEXT]),
        ("tokenizer.ggml.eos_token_id", gguf_file.U32, tokenizer.ids[TURN_END]),
        ("tokenizer.ggml.padding_token_id", gguf_file.U32, tokenizer.ids[END_OF_TEXT]),
        ("tokenizer.ggml.add_bos_token", gguf_file.BOOL, False),
        ("tokenizer.chat_template", gguf_file.STRING, chat.TEMPLATE_PATH.read_text(encoding="utf-8")),
    ]


def named_tensors(weights):
    """The checkpoint's names in the file's order: embeddings, layers, final norm, head."""
    tensors = {"token_embd.weight": weights["token_embd"].numpy()}
    for name, value in weights.items():
        if name.startswith("blk."):
            tensors[name] = value.numpy()
    for name in ("output_norm.weight", "output.weight"):
        tensors[name] = weights[name].numpy()
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "quire-demo.gguf")
    args = parser.parse_args()
    state = torch.load(args.folder / "checkpoint.pt", map_location="cpu")
    tokenizer = Tokenizer.load(args.folder / "tokenizer.json")
    tensors = named_tensors(state["model"])
    count = sum(t.size for t in tensors.values())
    general = general_metadata(count, "llama", "Quire Demo", "A very small chat model that shows that the server works")
    metadata = general + sampling_metadata() + llama_metadata(Shape(**state["shape"])) + tokenizer_metadata(tokenizer)
    gguf_file.write(args.out, metadata, tensors)
    print(f"{args.out}: {count} parameters, {args.out.stat().st_size} bytes, step {state['step']}")


if __name__ == "__main__":
    main()
