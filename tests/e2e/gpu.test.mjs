// A daemon whose device is an emulated GPU: texts as on the processor, alone and in a crowd; and what is missing or fails
// is one line. QUIRE_EMULATED: that daemon.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { QuireServer, sse_events } from "./server_process.mjs";

const binary = process.env.QUIRE_EMULATED;
const folder = mkdtempSync(join(tmpdir(), "quire-gpu-"));
after(() => rmSync(folder, { recursive: true }));

let server;
afterEach(() => server?.kill());

// Small random models, and the demo model, whose weights are of several quantised types.
const shapes = [["tiny-llama", "Q4_K"], ["tiny-qwen2", "Q8_0"], ["tiny-qwen3", "Q6_K"]];
const models = [["the demo model", process.env.QUIRE_MODEL]];
for (const [shape, type] of shapes) {
  const path = join(folder, `${shape}.gguf`);
  const made = spawnSync(binary, ["synth", "--shape", shape, "--type", type, path], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  models.push([`${shape} of ${type}`, path]);
}

const prompts = ["Once upon a time", "What is a KV block?", "The river is cold and the boat is small. ".repeat(12)];

async function tokens(body) {
  const response = await server.post("/v1/completions", { max_tokens: 24, ignore_eos: true, return_token_ids: true, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].token_ids;
}

const greedy = (prompt) => tokens({ prompt, temperature: 0 });
const drawn = (prompt) => tokens({ prompt, temperature: 1, seed: 7 });

async function serve(model, flags, env = {}) {
  server = await QuireServer.start([...flags, "--num-blocks", "256", "--max-model-len", "512"], { model, binary, env });
}

for (const [name, model] of models) {
  test(`${name} says on the GPU what it says on the processor, alone and in a crowd`, async () => {
    await serve(model, ["--device", "cpu", "--isa", "scalar"]);
    const expected = [];
    for (const prompt of prompts) expected.push(await greedy(prompt));
    await server.stop();
    await serve(model, [], { QUIRE_EMULATED_SEED: "3" });
    assert.ok(server.log.some((line) => line.includes("cuda-emulated/")), "the GPU is chosen by itself");
    const alone = [];
    for (const prompt of prompts) alone.push([await greedy(prompt), await drawn(prompt)]);
    assert.deepEqual(alone.map(([text]) => text), expected);
    const together = await Promise.all(prompts.map((prompt) => Promise.all([greedy(prompt), drawn(prompt)])));
    assert.deepEqual(together, alone);
    await server.stop();
  });
}

test("a smaller model and the text itself draft on the GPU, and change no text", async () => {
  const model = models[3][1];
  const text = "the cat and the dog and the cat and the dog and the cat ";
  const drafted = async () => (await server.metrics())["vllm:spec_decode_num_draft_tokens_total"];
  await serve(model, []);
  const expected = [await greedy(text), await drawn(text)];
  await server.stop();
  for (const flags of [["--model-draft", model], ["--speculation", "prompt_lookup"]]) {
    await serve(model, flags);
    assert.deepEqual([await greedy(text), await drawn(text)], expected, flags.join(" "));
    if (flags[0] === "--model-draft") assert.ok(await drafted() > 0);
    await server.stop();
  }
});

// Reads one token of a stream, then hangs up.
async function abandon(body) {
  const hang_up = new AbortController();
  try {
    const response = await server.post("/v1/completions", { ...body, max_tokens: 200, stream: true }, { signal: hang_up.signal });
    for await (const event of sse_events(response)) {
      assert.equal(event.error, undefined);
      hang_up.abort();
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

test("64 streams in a small pool, some abandoned, say what each says alone", async () => {
  const model = models[1][1];
  const bodies = Array.from({ length: 64 }, (_, i) => ({
    prompt: `${i} the river`, max_tokens: 14 + (i % 8), temperature: i % 3 === 0 ? 0 : 1, seed: i,
  }));
  await serve(model, ["--kv-cache.prefix-caching", "false"]);
  const alone = [];
  for (const body of bodies) alone.push(await tokens(body));
  await server.stop();
  server = await QuireServer.start(["--num-blocks", "72", "--max-num-seqs", "64", "--max-num-batched-tokens", "256"],
    { model, binary, env: { QUIRE_EMULATED_SEED: "9" } });
  const abandoned = bodies.filter((_, i) => i % 4 === 1).map(abandon);
  const together = await Promise.all(bodies.map(tokens));
  await Promise.all(abandoned);
  assert.deepEqual(together, alone);
  await server.metric_becomes("quire:kv_blocks_used", (value) => value === 0);
  await server.stop();
});

// What `quire serve` says before it ends.
function refusal(program, flags) {
  const { status, stderr } = spawnSync(program, ["serve", "--port", "0", ...flags], { encoding: "utf8", timeout: 60_000 });
  const lines = stderr.split("\n").filter((line) => line.startsWith("quire: "));
  assert.equal(lines.length, 1, stderr);
  return { status, line: lines[0] };
}

test("a GPU that is not there ends the daemon with one line", () => {
  const model = ["--model", process.env.QUIRE_MODEL];
  assert.deepEqual(refusal(binary, [...model, "--device", "cuda:1"]),
    { status: 2, line: 'quire: backend.device is "cuda:1", and this machine has one GPU, an emulated one' });
  const { status, line } = refusal(process.env.QUIRE_BINARY, [...model, "--device", "cuda:77"]);
  assert.equal(status, 2);
  assert.match(line, /^quire: backend\.device is "cuda:77", and /);
});

test("a KV cache of a type that the GPU does not keep ends the daemon with one line", () => {
  const { status, line } = refusal(binary, ["--model", process.env.QUIRE_MODEL, "--kv-cache-dtype", "i4"]);
  assert.equal(status, 2);
  assert.match(line, /cuda-emulated\/\d+ keeps no KV cache of the type i4: set kv_cache.dtype to i8, or backend.device to cpu/);
});

test("a model that the GPU does not compute ends the daemon with one line", () => {
  const families = join(process.env.QUIRE_SOURCE, "deploy/demo-model/families");
  for (const [family, what] of [["hybrid", "recurrent layers"]]) {
    const { status, line } = refusal(binary, ["--model", join(families, `quire-${family}.gguf`)]);
    assert.equal(status, 2);
    assert.match(line, new RegExp(`cuda-emulated/\\d+ does not compute ${what}, .*: set backend.device to cpu`));
  }
});

test("a pool that does not fit the GPU ends the daemon with one line that names the GPU", () => {
  const { status, line } = refusal(binary, ["--model", process.env.QUIRE_MODEL, "--kv-cache-memory", "8GiB"]);
  assert.equal(status, 2);
  assert.match(line, /the KV cache does not fit: .* GPU 0 \(emulated\) has .* left/);
});

test("a GPU that fails while it serves: the request gets 500, readiness and liveness are red, the log has one line", async () => {
  await serve(process.env.QUIRE_MODEL, [], { QUIRE_EMULATED_FAILURE: "300" });
  const body = { prompt: prompts[0], max_tokens: 400, ignore_eos: true };
  const response = await server.post("/v1/completions", body);
  assert.equal(response.status, 500);
  assert.equal((await response.json()).error.code, "device_failed");
  assert.equal((await fetch(`${server.url}/readyz`)).status, 503);
  assert.equal((await fetch(`${server.url}/livez`)).status, 503);
  assert.notEqual((await server.post("/v1/completions", body)).status, 200);
  const failures = server.log.filter((line) => line.includes("the GPU failed in a kernel"));
  assert.equal(failures.length, 1, server.log.join("\n"));
});
