// A daemon whose models run on two emulated GPUs together (QUIRE_EMULATED): texts equal those of one GPU, alone and in
// a crowd, with blocks swapped and kept in tiers; a model that cannot be divided, or a failing device, gives a one-line
// error.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const binary = process.env.QUIRE_EMULATED;
const model = process.env.QUIRE_MODEL;
const folder = mkdtempSync(join(tmpdir(), "quire-gpus-"));
after(() => rmSync(folder, { recursive: true }));

let server;
afterEach(() => server?.kill());

const prompts = ["Once upon a time", "What is a KV block?", "The river is cold and the boat is small. ".repeat(12)];

async function tokens(body) {
  const response = await server.post("/v1/completions", { max_tokens: 20, ignore_eos: true, return_token_ids: true, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].token_ids;
}

const greedy = (prompt) => tokens({ prompt, temperature: 0 });
const drawn = (prompt) => tokens({ prompt, temperature: 1, seed: 7 });

// A greedy answer, and by how much the first token of each place leads the second.
async function greedy_with_leads(prompt) {
  const response = await server.post("/v1/completions",
    { prompt, temperature: 0, max_tokens: 20, ignore_eos: true, return_token_ids: true, logprobs: 2 });
  assert.equal(response.status, 200);
  const [{ token_ids, logprobs }] = (await response.json()).choices;
  const leads = logprobs.top_logprobs.map((top) => {
    const [first, second] = Object.values(top).sort((a, b) => b - a);
    return first - second;
  });
  return { token_ids, leads };
}

const kTie = 0.1;  // in log probability

// Sums that are rounded elsewhere may decide between two tokens that are nearly as likely, and all behind that differs.
function assert_same_but_for_ties(ids, { token_ids, leads }) {
  const at = token_ids.findIndex((id, i) => id !== ids[i]);
  if (at >= 0) assert.ok(leads[at] < kTie, `token ${at} is ${ids[at]}, not ${token_ids[at]}, which leads by ${leads[at]}`);
  return at < 0;
}

async function serve(flags, env = {}, served = model) {
  server = await QuireServer.start(["--max-model-len", "512", ...flags], { model: served, binary, env });
}

const two = (env = {}) => ({ QUIRE_EMULATED_DEVICES: "2", ...env });
const together = ["--tensor-parallel-size", "2"];

test("two GPUs say what one says, with the same bits in any order of their streams, alone and in a crowd", async () => {
  await serve(["--num-blocks", "256"], { QUIRE_EMULATED_SEED: "3" });
  const expected = await Promise.all(prompts.map(greedy_with_leads));
  await server.stop();
  const runs = [];
  for (const seed of ["4", "11"]) {
    await serve(["--num-blocks", "256", ...together], two({ QUIRE_EMULATED_SEED: seed }));
    assert.ok(server.log.some((line) => /cuda-emulated\/\d+\/tp2: on each of 2 devices: weights/.test(line)), server.log.join("\n"));
    const alone = [];
    for (const prompt of prompts) alone.push([await greedy(prompt), await drawn(prompt)]);
    const crowd = await Promise.all(prompts.map((prompt) => Promise.all([greedy(prompt), drawn(prompt)])));
    assert.deepEqual(crowd, alone);
    runs.push(alone);
    await server.stop();
  }
  assert.deepEqual(runs[1], runs[0]);
  const are_same = runs[0].map(([ids], i) => assert_same_but_for_ties(ids, expected[i]));
  assert.ok(are_same.includes(true), "some text is the same to its end");
});

test("streams of two GPUs that preempt each other into the host's memory say what each says alone", async () => {
  const bodies = Array.from({ length: 16 }, (_, i) => ({
    prompt: `${i} the river`, max_tokens: 24 + (i % 8), temperature: i % 3 === 0 ? 0 : 1, seed: i,
  }));
  await serve(["--num-blocks", "256", ...together, "--kv-cache.prefix-caching", "false"], two());
  const alone = [];
  for (const body of bodies) alone.push(await tokens(body));
  await server.stop();
  await serve(["--num-blocks", "34", "--kv-cache.host-tier-bytes", "64MiB", "--scheduler.preemption", "swap", ...together],
    two({ QUIRE_EMULATED_SEED: "9" }));
  assert.deepEqual(await Promise.all(bodies.map(tokens)), alone);
  await server.metric_becomes("quire:kv_blocks_used", (value) => value === 0);
  await server.stop();
});

test("blocks of two GPUs outlive the process on disk, and one GPU does not take them for its own", async () => {
  const tier = ["--num-blocks", "256", "--kv-cache.disk-tier-path", join(folder, "tier")];
  const body = { prompt: prompts[2], temperature: 0, max_tokens: 12, ignore_eos: true };
  const ask = async () => {
    const response = await server.post("/v1/completions", body);
    assert.equal(response.status, 200);
    const { choices, usage } = await response.json();
    return { text: choices[0].text, cached: usage.prompt_tokens_details.cached_tokens };
  };
  await serve([...tier, ...together], two());
  const first = await ask();
  assert.equal(first.cached, 0);
  await server.stop();
  await serve([...tier, ...together], two());
  const second = await ask();
  assert.ok(second.cached > 0, "the blocks are found on disk");
  assert.equal(second.text, first.text);
  await server.stop();
  await serve(tier, two());
  assert.equal((await ask()).cached, 0);
  await server.stop();
});

// What `quire serve` says before it ends.
function refusal(flags, env, served = model) {
  const { status, stderr } = spawnSync(binary, ["serve", "--port", "0", "--model", served, ...flags],
    { encoding: "utf8", timeout: 60_000, env: { ...process.env, ...env } });
  const lines = stderr.split("\n").filter((line) => line.startsWith("quire: "));
  assert.equal(lines.length, 1, stderr);
  return { status, line: lines[0] };
}

test("GPUs that are not there, and models that they cannot divide, end the daemon with one line", () => {
  assert.deepEqual(refusal(together, {}),
    { status: 2, line: "quire: backend.tensor_parallel is 2, and this machine has one GPU, an emulated one" });
  assert.deepEqual(refusal([...together, "--device", "cuda:1"], two()),
    { status: 2, line: "quire: backend.tensor_parallel is 2, and this machine has 2 emulated GPUs" });
  assert.deepEqual(refusal([...together, "--device", "cpu"], two()),
    { status: 2, line: "quire: backend.tensor_parallel is 2, and backend.device is cpu: set it to cuda, or backend.tensor_parallel to 1" });
  const { status, line } = refusal(["--tensor-parallel-size", "4"], { QUIRE_EMULATED_DEVICES: "4" });
  assert.equal(status, 2);
  assert.match(line, /llama cannot be computed by 4 devices together: 4 heads of attention over 2 of K and V cannot be divided; 2 fits, or one device/);
});

test("inspect plans for two GPUs that are not there", () => {
  const plan = (...flags) => spawnSync(binary, ["inspect", model, "--device-memory", "2GiB", ...flags], { encoding: "utf8" }).stdout;
  assert.match(plan(...together), /on each of 2 devices: weights /);
  assert.doesNotMatch(plan(), /on each of/);
  assert.match(plan("--tensor-parallel-size", "3"), /cannot be served: llama cannot be computed by 3 devices together: .*2 fits/);
});

test("one of two GPUs fails while they serve: the request gets 500, readiness and liveness are red, the log names the GPU", async () => {
  await serve(["--num-blocks", "256", ...together], two({ QUIRE_EMULATED_FAILURE: "300" }));
  const body = { prompt: prompts[0], max_tokens: 400, ignore_eos: true };
  const response = await server.post("/v1/completions", body);
  assert.equal(response.status, 500);
  assert.equal((await response.json()).error.code, "device_failed");
  assert.equal((await fetch(`${server.url}/readyz`)).status, 503);
  assert.equal((await fetch(`${server.url}/livez`)).status, 503);
  const is_failure = (line) => line.includes("GPU 1 (emulated) failed in a kernel");
  await server.logged(is_failure);
  assert.equal(server.log.filter(is_failure).length, 1, server.log.join("\n"));
});
