// The bundled model with a longer context, for prompts of agents: about ten thousand tokens.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const kContext = 65536;

// Writes it into the folder; its path.
export function long_model(folder) {
  const bytes = readFileSync(process.env.QUIRE_MODEL);
  const key = "llama.context_length";
  const at = bytes.indexOf(key) + key.length;
  if (bytes.readUInt32LE(at) !== 4) throw new Error(`${key} is no 32-bit number`);
  bytes.writeUInt32LE(kContext, at + 4);
  const path = join(folder, "quire-long.gguf");
  writeFileSync(path, bytes);
  return path;
}
