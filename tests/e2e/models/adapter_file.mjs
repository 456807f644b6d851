import { writeFileSync } from "node:fs";

const kWidth = 256;
const kRank = 4;

// A GGUF adapter that changes the attention's output of the bundled model's four layers, by numbers made from `seed`.
export function write_adapter(path, seed, architecture = "llama") {
  let state = seed;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  const u32 = (value) => { const out = Buffer.alloc(4); out.writeUInt32LE(value); return out; };
  const u64 = (value) => { const out = Buffer.alloc(8); out.writeBigUInt64LE(BigInt(value)); return out; };
  const text = (value) => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
  const f32 = (values) => Buffer.from(Float32Array.from(values).buffer);
  const keys = [["general.type", "adapter"], ["adapter.type", "lora"], ["general.architecture", architecture]]
    .map(([key, value]) => Buffer.concat([text(key), u32(8), text(value)]));
  keys.push(Buffer.concat([text("adapter.lora.alpha"), u32(6), f32([8])]));
  const table = [];
  const data = [];
  let offset = 0;
  for (let layer = 0; layer < 4; ++layer) {
    for (const [ending, shape] of [["lora_a", [kWidth, kRank]], ["lora_b", [kRank, kWidth]]]) {
      table.push(text(`blk.${layer}.attn_output.weight.${ending}`), u32(2), ...shape.map(u64), u32(0), u64(offset));
      data.push(f32(Array.from({ length: kWidth * kRank }, random)));
      offset += data.at(-1).length;
    }
  }
  const head = Buffer.concat([Buffer.from("GGUF"), u32(3), u64(8), u64(keys.length), ...keys, ...table]);
  writeFileSync(path, Buffer.concat([head, Buffer.alloc((32 - (head.length % 32)) % 32), ...data]));
  return path;
}
