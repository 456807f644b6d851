// A daemon with an emulated GPU (QUIRE_EMULATED): texts equal the processor's, alone and in a crowd; a missing or
// failing device gives a one-line error.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, test } from "node:test";
import { write_adapter } from "./adapter_file.mjs";
import { QuireServer, certain_part } from "../server_process.mjs";

const binary = process.env.QUIRE_EMULATED;
const folder = mkdtempSync(join(tmpdir(), "quire-gpu-"));
after(() => rmSync(folder, { recursive: true }));

let server;
afterEach(() => server?.kill());

// Small random models, and two that were trained.
const shapes = [["tiny-llama", "Q4_K"], ["tiny-qwen2", "Q8_0"], ["tiny-qwen3", "Q6_K"]];
const models = [];
function synthesize(shape, type) {
  const path = join(folder, `${shape}-${type}.gguf`);
  const made = spawnSync(binary, ["synth", "--shape", shape, "--type", type, path], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
  return path;
}
for (const [shape, type] of shapes) models.push([`${shape} of ${type}`, synthesize(shape, type)]);

const families = join(process.env.QUIRE_SOURCE, "deploy/demo-model/families");
for (const family of ["hybrid", "experts"]) models.push([`the trained model ${family}`, join(families, `quire-${family}.gguf`)]);

const prompts = ["Once upon a time", "What is a KV block?", "The river is cold and the boat is small. ".repeat(12)];

async function tokens(body) {
  const response = await server.post("/v1/completions", { max_tokens: 24, ignore_eos: true, return_token_ids: true, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].token_ids;
}

const greedy = (prompt) => tokens({ prompt, temperature: 0 });

// Tokens that other roundings do not change.
const certain = async (prompt) =>
  (await certain_part(server, { prompt, temperature: 0, max_tokens: 24, ignore_eos: true })).token_ids;
const drawn = (prompt) => tokens({ prompt, temperature: 1, seed: 7 });

async function serve(model, flags, env = {}) {
  server = await QuireServer.start([...flags, "--num-blocks", "256", "--max-model-len", "512"], { model, binary, env });
}

for (const [name, model] of models) {
  test(`${name} says on the GPU what it says on the processor, alone and in a crowd`, async () => {
    await serve(model, ["--device", "cpu", "--isa", "scalar"]);
    const expected = [];
    for (const prompt of prompts) expected.push(await certain(prompt));
    assert.ok(expected.flat().length >= 12, `only ${expected.flat().length} tokens are certain`);
    await server.stop();
    await serve(model, [], { QUIRE_EMULATED_SEED: "3" });
    assert.ok(server.log.some((line) => line.includes("cuda-emulated/")), "the GPU is chosen by itself");
    const alone = [];
    for (const prompt of prompts) alone.push([await greedy(prompt), await drawn(prompt)]);
    assert.deepEqual(alone.map(([text], i) => text.slice(0, expected[i].length)), expected);
    const together = await Promise.all(prompts.map((prompt) => Promise.all([greedy(prompt), drawn(prompt)])));
    assert.deepEqual(together, alone);
    await server.stop();
  });
}

// What the general scripts ask the demo model for on an emulated GPU, here beside the processor.
test("chats, calls of tools, JSON and grammars of the demo model are on the GPU what they are on the processor", async () => {
  const messages = [{ role: "user", content: "What is a KV block?" }];
  const colour = { type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"], additionalProperties: false };
  const tools = [{ type: "function", function: { name: "pick", parameters: colour } }];
  const asked = [
    {},
    { tools, tool_choice: "required", parallel_tool_calls: false },
    { response_format: { type: "json_schema", json_schema: { name: "pick", strict: true, schema: colour } } },
    // The model is sure of a sum: digits that it only guesses differ by rounding.
    { messages: [{ role: "user", content: "What is 12 + 7?" }], structured_outputs: { grammar: 'root ::= ("12" | "7") " + 7 = " [0-9]{1,4} "."' } },
  ];
  const answers = async () => Promise.all(asked.map(async (fields) => {
    const response = await server.post("/v1/chat/completions", { messages, max_tokens: 40, temperature: 0, ...fields });
    assert.equal(response.status, 200, await response.clone().text());
    const { message: { content, tool_calls }, finish_reason } = (await response.json()).choices[0];
    return { content, calls: tool_calls?.map((call) => call.function), finish_reason };
  }));
  await serve(process.env.QUIRE_MODEL, ["--device", "cpu", "--isa", "scalar"]);
  const expected = await answers();
  await server.stop();
  await serve(process.env.QUIRE_MODEL, [], { QUIRE_EMULATED_SEED: "6" });
  assert.deepEqual(await answers(), expected);
  await server.stop();
});

// Each draws by other means: filters, penalties, biases, a grammar, samplers that the host has alone; with logprobs.
const schema = { type: "object", properties: { name: { type: "string", maxLength: 6 }, wet: { type: "boolean" } }, required: ["name", "wet"] };
const drawings = [
  { temperature: 0.8, top_k: 40, top_p: 0.9, logprobs: 5 },
  { temperature: 1.2, min_p: 0.05, frequency_penalty: 0.6, presence_penalty: 0.4, repetition_penalty: 1.1 },
  { temperature: 0.7, logit_bias: { 70: 3, 71: -100 }, n: 3, logprobs: 0 },
  { temperature: 1, structured_outputs: { json: schema }, max_tokens: 60 },
  { temperature: 0, structured_outputs: { json_object: true }, logprobs: 2, max_tokens: 30 },
  { temperature: 0.9, typical_p: 0.8 },
  { temperature: 0.9, xtc_probability: 0.5, xtc_threshold: 0.1 },
].map((fields, i) => ({ prompt: prompts[i % prompts.length], seed: 40 + i, max_tokens: 20, return_token_ids: true, ...fields }));

// The texts, and what is known of each token; logprobs to three places: the logits' last bits differ.
async function described(body) {
  const response = await server.post("/v1/completions", body);
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices.map(({ index, token_ids, text, finish_reason, logprobs }) => ({
    index, token_ids, text, finish_reason, logprobs: logprobs?.token_logprobs?.map((value) => value.toFixed(3)),
    top: logprobs?.top_logprobs?.map((top) => top && Object.keys(top).length),
  }));
}

test("masks, penalties, biases, filters, choices and logprobs are on the GPU what they are on the processor", async () => {
  // Nothing is rounded to eight or sixteen bits, where a last bit could tip a choice.
  const model = synthesize("tiny-qwen3", "F32");
  const flags = ["--kv-cache-dtype", "f32"];
  await serve(model, [...flags, "--device", "cpu", "--isa", "scalar"]);
  const expected = [];
  for (const body of drawings) expected.push(await described(body));
  await server.stop();
  await serve(model, flags, { QUIRE_EMULATED_SEED: "5" });
  assert.deepEqual(await Promise.all(drawings.map(described)), expected);
  const metrics = await server.metrics();
  assert.ok(metrics["quire:device_memory_bytes_used"] > 0);
  assert.equal(metrics["quire:device_steps_in_flight_max"], 2);
  await server.stop();
});

test("a smaller model and the text itself draft on the GPU, and change no text", async () => {
  const model = models[2][1];
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

test("a model's own block and another model draft on the GPU: the same answers", async () => {
  const chat = "<|im_start|>user\nWhat is continuous batching?<|im_end|>\n<|im_start|>assistant\n";
  const drafters = [
    ["hybrid", ["--speculation", "mtp"]],
    ["windowed", ["--model-draft", join(families, "quire-experts.gguf"), "--draft-max", "4"]],
  ];
  for (const [family, flags] of drafters) {
    const model = join(families, `quire-${family}.gguf`);
    const answers = [];
    for (const each of [["--speculation", "none"], flags]) {
      await serve(model, each, { QUIRE_EMULATED_SEED: "5" });
      answers.push([await greedy(chat), await drawn(chat)]);
      if (each === flags) assert.ok((await server.metrics())["vllm:spec_decode_num_drafts_total"] > 0, `${family} drafts`);
      await server.stop();
    }
    assert.deepEqual(answers[1], answers[0], family);
  }
});

test("adapters answer on the GPU as on the processor, and come and go while texts are made", async () => {
  const flags = ["--alias", "base", "--lora-modules", `first=${write_adapter(join(folder, "first"), 1)}`,
    "--adapters", `second=${write_adapter(join(folder, "second"), 2)}`];
  const names = ["base", "first", "second"];
  const ask = (model) => tokens({ model, prompt: prompts[1], temperature: 0, max_tokens: 12 });
  await serve(process.env.QUIRE_MODEL, [...flags, "--device", "cpu", "--isa", "scalar"]);
  const expected = {};
  for (const name of names) expected[name] = await ask(name);
  assert.equal(new Set(Object.values(expected).map(String)).size, 3, JSON.stringify(expected));
  await server.stop();
  // Room for one of them: on the GPU each takes 32 KiB.
  await serve(process.env.QUIRE_MODEL, [...flags, "--adapter-memory", "40KiB"], { QUIRE_EMULATED_SEED: "4" });
  const beside = Promise.all([ask("base"), ask("base")]);
  for (const name of ["second", "first", "second"]) assert.deepEqual(await ask(name), expected[name], name);
  assert.deepEqual(await beside, [expected.base, expected.base]);
  await server.stop();
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
  const is_failure = (line) => line.includes("the GPU failed in a kernel");
  await server.logged(is_failure);
  assert.equal(server.log.filter(is_failure).length, 1, server.log.join("\n"));
});
