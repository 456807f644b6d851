// Drafted tokens: a daemon with prompt lookup writes the same text as one without, in fewer steps, and counts the
// drafts.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

let plain;
let drafting;
before(async () => {
  plain = await QuireServer.start(["--seed", "1", "--speculation", "none"]);
  drafting = await QuireServer.start(["--seed", "1", "--speculation", "prompt_lookup", "--speculation.max-tokens", "6"]);
});
after(async () => {
  await plain?.stop();
  await drafting?.stop();
});

const kAccepted = "vllm:spec_decode_num_accepted_tokens_total";
const quoted = "one two three four five six seven eight nine ten, ";

async function ask(server, body) {
  const response = await server.post("/v1/completions", { max_tokens: 60, seed: 3, ignore_eos: true, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  const { choices, usage } = await response.json();
  return { choices, usage };
}

const bodies = [
  { temperature: 0 },
  { temperature: 0, logprobs: 3 },
  { temperature: 0.9, top_p: 0.95, logprobs: 1 },
  { temperature: 0, repetition_penalty: 1.1, frequency_penalty: 0.2 },
  { temperature: 0.7, dry_multiplier: 0.8, xtc_probability: 0.3 },
  { temperature: 0.8, n: 3 },
  { temperature: 0, stop: ["four", "x"] },
  { temperature: 0, structured_outputs: { regex: "((one|two|three|four|five) ){40}" } },
  { temperature: 0, structured_outputs: { regex: "((one|two|three|four|five) ){40}" }, logprobs: 2 },
  { temperature: 0, logit_bias: { 5: 4, 6: 4 }, min_tokens: 20, ignore_eos: false },
];

test("the answer is the same with drafts and without", async () => {
  for (const [i, body] of bodies.entries()) {
    const whole = { prompt: quoted.repeat(4), ...body };
    assert.deepEqual(await ask(drafting, whole), await ask(plain, whole), `request ${i}`);
  }
});

test("drafts are counted, and a text that repeats itself is drafted", async () => {
  // One word may be said, so that the text repeats itself.
  const body = { prompt: quoted, temperature: 0, structured_outputs: { regex: "(one two three ){60}" }, max_tokens: 120, logprobs: 0 };
  const repeated = { prompt: quoted, temperature: 0, allowed_token_ids: [65], max_tokens: 120 };
  for (const each of [body, repeated]) assert.deepEqual(await ask(drafting, each), await ask(plain, each));
  const metrics = await drafting.metrics();
  assert.ok(metrics[kAccepted] > 40, `${metrics[kAccepted]} accepted`);
  assert.ok(metrics["vllm:spec_decode_num_draft_tokens_total"] >= metrics[kAccepted]);
  assert.ok(metrics["vllm:spec_decode_num_drafts_total"] > 0);
  assert.equal(metrics["vllm:spec_decode_num_accepted_tokens_per_pos_total"], metrics[kAccepted]);
  assert.equal((await plain.metrics())["vllm:spec_decode_num_drafts_total"], 0);
});

test("a request turns drafts on and off", async () => {
  const body = { prompt: quoted, temperature: 0, allowed_token_ids: [65], max_tokens: 100 };
  const num_before = (await drafting.metrics())["vllm:spec_decode_num_drafts_total"];
  await ask(drafting, { ...body, speculative_config: "off" });
  await ask(drafting, { ...body, speculative_config: { method: "none" } });
  assert.equal((await drafting.metrics())["vllm:spec_decode_num_drafts_total"], num_before);
  await ask(plain, { ...body, speculative_config: { method: "ngram", num_speculative_tokens: 2 } });
  const asked = await plain.metrics();
  assert.ok(asked[kAccepted] > 0);
  assert.ok(asked["vllm:spec_decode_num_draft_tokens_total"] <= 2 * asked["vllm:spec_decode_num_drafts_total"]);
  for (const [config, param] of [
    [{ method: "eagle", num_speculative_tokens: 2 }, "speculative_config"],
    [{ method: "ngram", num_speculative_tokens: 0 }, "speculative_config"],
    [{ method: "ngram", model: "other" }, "speculative_config"],
    [{ num_speculative_tokens: 2 }, "speculative_config"],
    ["on", "speculative_config"],
  ]) {
    const response = await drafting.post("/v1/completions", { ...body, speculative_config: config });
    assert.equal(response.status, 400, JSON.stringify(config));
    assert.equal((await response.json()).error.param, param);
  }
});

test("the block of a qwen35 file drafts: the same answers, logprobs too", async () => {
  const model = join(process.env.QUIRE_SOURCE, "deploy/demo-model/families/quire-hybrid.gguf");
  const servers = [];
  for (const method of ["none", "mtp"]) servers.push(await QuireServer.start(["--seed", "1", "--speculation", method], { model }));
  const [without, own] = servers;
  try {
    const prompt = "<|im_start|>user\nWhat is continuous batching?<|im_end|>\n<|im_start|>assistant\n";
    for (const [i, body] of bodies.entries()) {
      const whole = { prompt, ...body };
      assert.deepEqual(await ask(own, whole), await ask(without, whole), `request ${i}`);
    }
    const metrics = await own.metrics();
    // How many follows from the time that this machine takes.
    assert.ok(metrics[kAccepted] > 0, `${metrics[kAccepted]} accepted`);
    await ask(own, { prompt, temperature: 0, speculative_config: "off" });
    assert.equal((await own.metrics())["vllm:spec_decode_num_drafts_total"], metrics["vllm:spec_decode_num_drafts_total"]);
    await ask(own, { prompt, temperature: 0, speculative_config: { method: "mtp", num_speculative_tokens: 1 } });
    const body = { prompt, max_tokens: 4, speculative_config: { method: "mtp", num_speculative_tokens: 2 } };
    const response = await without.post("/v1/completions", body);
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, /speculation\.method/);
  } finally {
    for (const server of servers) await server.stop();
  }
});

test("a model without such a block is refused in one line", () => {
  const flags = ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0", "--speculation", "mtp"];
  const { status, stderr } = spawnSync(process.env.QUIRE_BINARY, flags, { encoding: "utf8", timeout: 60_000 });
  assert.equal(status, 2);
  assert.match(stderr, /has no block that predicts further tokens/);
});

test("a draft model drafts: the same answers, logprobs too, and requests choose it", async () => {
  const folder = join(process.env.QUIRE_SOURCE, "deploy/demo-model");
  const model = join(folder, "families/quire-windowed.gguf");
  const drafter = join(folder, "families/quire-experts.gguf");
  const without = await QuireServer.start(["--seed", "1"], { model });
  const servers = [without];
  try {
    for (const file of [model, drafter]) {
      const flags = ["--seed", "1", "--model-draft", file, "--draft-max", "4", "--kv-cache.num-blocks", "300"];
      servers.push(await QuireServer.start(flags, { model }));
    }
    const prompt = "<|im_start|>user\nWhat is continuous batching?<|im_end|>\n<|im_start|>assistant\n";
    for (const [i, body] of bodies.entries()) {
      const expected = await ask(without, { prompt, ...body });
      for (const server of servers.slice(1)) assert.deepEqual(await ask(server, { prompt, ...body }), expected, `request ${i}`);
    }
    // The model itself is always right; how much it drafts follows from the time that this machine takes.
    const [, own] = servers;
    const metrics = await own.metrics();
    assert.ok(metrics[kAccepted] > 0);
    const num_before = metrics["vllm:spec_decode_num_drafts_total"];
    await ask(own, { prompt, temperature: 0, speculative_config: "off" });
    assert.equal((await own.metrics())["vllm:spec_decode_num_drafts_total"], num_before);
    await ask(own, { prompt, temperature: 0, speculative_config: { method: "draft_model", num_speculative_tokens: 2 } });
    const response = await without.post("/v1/completions", { prompt, speculative_config: { method: "draft" } });
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, /speculation\.draft_model/);
  } finally {
    for (const server of servers) await server.stop();
  }
});

test("a model that cannot draft is refused in one line", () => {
  const folder = join(process.env.QUIRE_SOURCE, "deploy/demo-model/families");
  const refusals = [
    [["--model-draft", join(folder, "quire-hybrid.gguf")], /quire-hybrid\.gguf: cannot draft for .*: its recurrent layers cannot go back/],
    [["--model-draft", join(folder, "quire-reranker.gguf")], /generates no text/],
    [["--speculation", "draft"], /speculation\.method is draft without speculation\.draft_model/],
  ];
  for (const [flags, line] of refusals) {
    const args = ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0", ...flags];
    const { status, stderr } = spawnSync(process.env.QUIRE_BINARY, args, { encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 2, stderr);
    assert.match(stderr, line);
  }
});
