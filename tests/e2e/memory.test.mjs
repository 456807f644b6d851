// Peak memory: what a daemon with a real model's shape takes at most, from its start through a full batch.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "./server_process.mjs";

const kMiB = 1 << 20;
const kPool = 64 * kMiB;
const kBesides = 300e6;

const folder = mkdtempSync(join(tmpdir(), "quire-memory-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function peak_bytes(pid) {
  return 1024 * Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
}

test("memory stays within weights, KV pool and 300 MB, from loading through 32 streams behind long prompts", async () => {
  const model = join(folder, "model.gguf");
  execFileSync(process.env.QUIRE_BINARY, ["synth", "--shape", "qwen2.5-0.5b", "--type", "Q8_0", model], { stdio: "ignore" });
  const server = await QuireServer.start(["--kv-cache-memory", `${kPool / kMiB}MiB`, "--max-num-seqs", "32"], { model });
  try {
    const weights = 1.03 * statSync(model).size;  // packed for any level
    assert.ok(peak_bytes(server.pid) > 0.5 * weights);
    assert.ok(peak_bytes(server.pid) < weights + kPool + kBesides, `${peak_bytes(server.pid)} bytes after loading`);
    const answers = await Promise.all(Array.from({ length: 32 }, async (_, number) => {
      const prompt = Array.from({ length: number === 0 ? 600 : 20 }, (_unused, i) => 1000 + 37 * number + i);
      const body = JSON.stringify({ model: "model", prompt, max_tokens: 4, ignore_eos: true, logprobs: 5 });
      const answer = await fetch(`${server.url}/v1/completions`, {
        method: "POST", headers: { "content-type": "application/json" }, body });
      return { status: answer.status, tokens: (await answer.json()).usage?.completion_tokens };
    }));
    for (const { status, tokens } of answers) assert.deepEqual([status, tokens], [200, 4]);
    assert.ok(peak_bytes(server.pid) < weights + kPool + kBesides, `${peak_bytes(server.pid)} bytes at the peak`);
    await server.stop();
  } finally {
    server.kill();
  }
});
