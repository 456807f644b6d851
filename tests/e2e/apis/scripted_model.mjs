// A scripted model: a GGUF file of some two megabytes that writes chosen texts token by token, so that template, grammar,
// reader and API are driven by known output. One layer whose attention and feed-forward are zero: each token's row of the
// output matrix names the one that follows it. A request picks a text by logit_bias on its first token, at temperature 0.
import { writeFileSync } from "node:fs";

const kControls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const kEnd = 2;
const kString = 8;
const kTypes = { u32: 4, i32: 5, f32: 6, bool: 7, string: kString, array: 9 };

const u32 = (value) => { const out = Buffer.alloc(4); out.writeUInt32LE(value); return out; };
const u64 = (value) => { const out = Buffer.alloc(8); out.writeBigUInt64LE(BigInt(value)); return out; };
const f32 = (value) => { const out = Buffer.alloc(4); out.writeFloatLE(value); return out; };
const text = (value) => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
const padded = (buffer) => Buffer.concat([buffer, Buffer.alloc((32 - (buffer.length % 32)) % 32)]);

const key = (name, type, bytes) => Buffer.concat([text(name), u32(kTypes[type]), bytes]);
const array = (name, type, items) =>
  key(name, "array", Buffer.concat([u32(kTypes[type]), u64(items.length), ...items.map(type === "string" ? text : u32)]));

// The letters that stand for bytes in vocabularies of this kind.
function byte_letters() {
  const letters = [];
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) {
    const shown = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    letters.push(String.fromCodePoint(shown ? byte : next++));
  }
  return letters;
}

// Pieces are tokens that any text holding them is cut into, so that a history has the tokens that the model wrote.
function vocabulary(scripts) {
  const letters = byte_letters();
  const tokens = [...kControls, ...letters, letters[1] + letters[2]];
  const kinds = tokens.map((_, i) => (i < kControls.length ? 3 : 1));
  const follower = new Map();
  const first = {};
  for (const [name, pieces] of Object.entries(scripts)) {
    const ids = pieces.map((piece) => {
      if (tokens.includes(piece)) throw new Error(`'${piece}' is a token already`);
      kinds.push(4);
      return tokens.push(piece) - 1;
    });
    first[name] = ids[0];
    ids.forEach((id, i) => follower.set(id, ids[i + 1] ?? kEnd));
  }
  return { tokens, kinds, follower, first, merge: `${letters[1]} ${letters[2]}` };
}

function tensors({ tokens, follower, first }, width) {
  const matrix = (rows, columns) => ({ shape: [columns, rows], values: new Float32Array(rows * columns) });
  const ones = () => ({ shape: [width], values: new Float32Array(width).fill(1) });
  const embedding = matrix(tokens.length, width);
  const output = matrix(tokens.length, width);
  const scale = Math.sqrt(width);  // a row of one 1 leaves its norm as this
  for (let token = 0; token < tokens.length; ++token) {
    embedding.values[token * width + token] = 1;
    const next = follower.get(token);
    if (next !== undefined) output.values[next * width + token] = 20 / scale;
    else for (const begin of Object.values(first)) output.values[begin * width + token] = 10 / scale;
  }
  return {
    "token_embd.weight": embedding, "blk.0.attn_norm.weight": ones(), "blk.0.attn_q.weight": matrix(width, width),
    "blk.0.attn_k.weight": matrix(64, width), "blk.0.attn_v.weight": matrix(64, width),
    "blk.0.attn_output.weight": matrix(width, width), "blk.0.ffn_norm.weight": ones(),
    "blk.0.ffn_gate.weight": matrix(64, width), "blk.0.ffn_up.weight": matrix(64, width),
    "blk.0.ffn_down.weight": matrix(width, 64), "output_norm.weight": ones(), "output.weight": output,
  };
}

// Writes the file; returns each text's first token by the text's name.
export function write_scripted_model(path, scripts, chat_template, context = 32768) {
  const words = vocabulary(scripts);
  const width = Math.ceil(words.tokens.length / 64) * 64;
  const number = (name, value) => key(`llama.${name}`, "u32", u32(value));
  const keys = [
    key("general.architecture", "string", text("llama")), key("general.name", "string", text("scripted")),
    number("context_length", context), number("embedding_length", width), number("block_count", 1),
    number("feed_forward_length", 64), number("attention.head_count", width / 64), number("attention.head_count_kv", 1),
    key("llama.attention.layer_norm_rms_epsilon", "f32", f32(1e-6)), number("rope.dimension_count", 64),
    number("vocab_size", words.tokens.length), key("tokenizer.ggml.model", "string", text("gpt2")),
    key("tokenizer.ggml.pre", "string", text("qwen2")), array("tokenizer.ggml.tokens", "string", words.tokens),
    array("tokenizer.ggml.token_type", "i32", words.kinds), array("tokenizer.ggml.merges", "string", [words.merge]),
    key("tokenizer.ggml.eos_token_id", "u32", u32(kEnd)), key("tokenizer.ggml.add_bos_token", "bool", Buffer.from([0])),
    key("tokenizer.chat_template", "string", text(chat_template)),
  ];
  const table = [];
  const data = [];
  let offset = 0;
  for (const [name, { shape, values }] of Object.entries(tensors(words, width))) {
    table.push(text(name), u32(shape.length), ...shape.map(u64), u32(0), u64(offset));
    data.push(padded(Buffer.from(values.buffer)));
    offset += data.at(-1).length;
  }
  const head = [Buffer.from("GGUF"), u32(3), u64(data.length), u64(keys.length), ...keys, ...table];
  writeFileSync(path, Buffer.concat([padded(Buffer.concat(head)), ...data]));
  return words.first;
}
