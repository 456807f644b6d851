// The request fields that users of OpenAI's API, vLLM and llama-server know, on the real engine.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer, sse_events } from "../server_process.mjs";

let server;
before(async () => (server = await QuireServer.start(["--alias", "main-name", "--alias", "other-name"])));
after(() => server.stop());

const prompt = "Once upon a time there was a small block that";
const messages = [{ role: "user", content: "What is a KV block?" }];

async function complete(body, path = "/v1/completions") {
  const response = await server.post(path, { prompt, max_tokens: 12, temperature: 0, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function refused(path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 400, await response.clone().text());
  return (await response.json()).error.param;
}

async function ids_of(text, add_special_tokens = true) {
  return (await (await server.post("/tokenize", { prompt: text, add_special_tokens })).json()).tokens;
}

test("n choices compute their prompt once", async () => {
  const fresh = `${prompt} went to the`; // computed afresh because of its salt
  const num_prompt = (await ids_of(fresh)).length;
  const before = (await server.metrics())["quire:computed_tokens_total"];
  const body = await complete({ prompt: fresh, cache_salt: fresh, n: 4, temperature: 1, seed: 5, max_tokens: 9, ignore_eos: true });
  // A step's figures are published after its tokens are sent.
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  const computed = (await server.metrics())["quire:computed_tokens_total"] - before;
  assert.equal(body.usage.prompt_tokens, num_prompt);
  assert.equal(body.usage.completion_tokens, 4 * 9);
  assert.equal(computed, num_prompt + 4 * 8);
  assert.equal(new Set(body.choices.map((choice) => choice.text)).size, 4);
});

test("best_of returns the likeliest of its choices", async () => {
  const ask = { temperature: 1.5, seed: 3, logprobs: 0 };
  const all = await complete({ ...ask, n: 4 });
  const mean = ({ logprobs: { token_logprobs: values } }) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const best = all.choices.reduce((a, b) => (mean(b) > mean(a) ? b : a));
  const one = await complete({ ...ask, n: 1, best_of: 4 });
  assert.equal(one.choices.length, 1);
  assert.equal(one.choices[0].text, best.text);
  assert.equal(await refused("/v1/completions", { prompt, n: 3, best_of: 2 }), "best_of");
  assert.equal(await refused("/v1/completions", { prompt, best_of: 2, stream: true }), "best_of");
});

test("batched prompts may mix texts and token ids, and are numbered as OpenAI numbers them", async () => {
  const ids = await ids_of(prompt);
  const mixed = await complete({ prompt: [prompt, ids, "The river"], n: 2 });
  assert.deepEqual(mixed.choices.map((choice) => choice.index), [0, 1, 2, 3, 4, 5]);
  assert.equal(mixed.choices[0].text, mixed.choices[2].text);
  assert.equal(mixed.choices[4].text, (await complete({ prompt: "The river" })).choices[0].text);
});

test("truncate_prompt_tokens keeps the prompt's end", async () => {
  const ids = await ids_of(prompt);
  const cut = await complete({ truncate_prompt_tokens: 5 });
  assert.equal(cut.usage.prompt_tokens, 5);
  assert.equal(cut.choices[0].text, (await complete({ prompt: ids.slice(-5) })).choices[0].text);
});

test("echo with logprobs shows the prompt's own, whose first has none", async () => {
  const ids = await ids_of(prompt);
  const body = await complete({ echo: true, logprobs: 2, max_tokens: 3 });
  const { tokens, token_logprobs, top_logprobs, text_offset } = body.choices[0].logprobs;
  assert.ok(body.choices[0].text.startsWith(prompt));
  for (const list of [tokens, token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, ids.length + 3);
  assert.equal(token_logprobs[0], null);
  assert.ok(token_logprobs.slice(1).every((value) => value <= 0));
  const shown = [...body.choices[0].text];
  text_offset.forEach((offset, i) => {
    const text = shown.slice(offset, text_offset[i + 1]).join("");
    assert.ok(text === "" || tokens[i].endsWith(text), `${tokens[i]} stands at ${offset}, where ${text} is`);
  });
  // Every choice of a stream begins with the same prompt.
  const begun = new Set();
  const streamed = await server.post("/v1/completions", {
    prompt, echo: true, logprobs: 2, max_tokens: 3, n: 3, stream: true,
  });
  for await (const { choices: [choice] } of sse_events(streamed)) {
    if (begun.has(choice.index)) continue;
    begun.add(choice.index);
    assert.deepEqual(choice.logprobs.token_logprobs.slice(0, ids.length), token_logprobs.slice(0, ids.length));
  }
  assert.equal(begun.size, 3);
  const scored = await complete({ echo: true, logprobs: 2, max_tokens: 0 });
  assert.equal(scored.choices[0].text, prompt);
  assert.deepEqual(scored.choices[0].logprobs.token_logprobs, token_logprobs.slice(0, ids.length));
});

test("allowed tokens, forbidden words and biases decide what is written", async () => {
  const [a] = await ids_of("a", false);
  const only = await complete({ allowed_token_ids: [a], max_tokens: 4, ignore_eos: true, return_token_ids: true });
  assert.deepEqual(only.choices[0].token_ids, [a, a, a, a]);
  const biased = await complete({ logit_bias: { [a]: 100 }, max_tokens: 3, return_token_ids: true });
  assert.deepEqual(biased.choices[0].token_ids, [a, a, a]);
  const plain = (await complete({})).choices[0].text;
  const word = plain.trim().split(" ")[0];
  assert.ok(!(await complete({ bad_words: [word] })).choices[0].text.trim().startsWith(`${word} `));
});

test("min_tokens holds the end back, ignore_eos passes it", async () => {
  const chat = { messages, max_tokens: 120 };
  const plain = await complete(chat, "/v1/chat/completions");
  assert.equal(plain.choices[0].finish_reason, "stop");
  const least = plain.usage.completion_tokens + 5;
  assert.ok((await complete({ ...chat, min_tokens: least }, "/v1/chat/completions")).usage.completion_tokens >= least);
  const past = await complete({ ...chat, ignore_eos: true }, "/v1/chat/completions");
  assert.equal(past.usage.completion_tokens, 120);
});

test("a deadline cuts a request, and a stream with an error event", async () => {
  const long = { prompt, max_tokens: 4000, ignore_eos: true, timeout: 0.05 };
  const response = await server.post("/v1/completions", long);
  assert.equal(response.status, 504);
  assert.equal((await response.json()).error.code, "deadline_exceeded");
  // The first deadline that lets a stream begin is one that it cannot meet, however fast the machine.
  let slow = null;
  for (let timeout = 0.02; slow?.status !== 200; timeout *= 2) {
    slow = await server.post("/v1/completions", { ...long, timeout, stream: true });
    if (slow.status !== 200) assert.equal((await slow.json()).error.code, "deadline_exceeded");
  }
  let last = null;
  for await (const event of sse_events(slow)) last = event;
  assert.equal(last.error.code, "deadline_exceeded");
});

test("every chunk has the usage so far, and cached tokens are always told", async () => {
  const stream_options = { include_usage: true, continuous_usage_stats: true };
  let count = 0;
  for await (const chunk of sse_events(await server.post("/v1/chat/completions", { messages, max_tokens: 9, stream: true, stream_options }))) {
    assert.ok(chunk.usage.completion_tokens >= count);
    count = chunk.usage.completion_tokens;
    assert.equal(typeof chunk.usage.prompt_tokens_details.cached_tokens, "number");
  }
  assert.ok(count > 0);
});

test("request ids are echoed", async () => {
  const response = await server.post("/v1/completions", { prompt, max_tokens: 1, request_id: "mine" },
    { headers: { "Content-Type": "application/json", "X-Request-Id": "header-id" } });
  assert.equal(response.headers.get("x-request-id"), "header-id");
  assert.equal((await response.json()).id, "cmpl-mine");
});

test("aliases answer, and the first is the name", async () => {
  assert.equal((await complete({ model: "other-name" })).model, "main-name");
  assert.equal((await server.post("/v1/completions", { prompt, model: "quire-demo" })).status, 404);
});

test("a chat template from the configuration replaces the model's", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "quire-")), "template.jinja");
  writeFileSync(file, "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  const other = await QuireServer.start(["--chat-template", file]);
  after(() => other.kill());
  const rendered = await (await other.post("/apply-template", { messages })).json();
  assert.deepEqual(rendered, { prompt: "[user]What is a KV block?" });
  await other.stop();
});

test("forced text is the same whether the model is asked for it or not", async () => {
  const grammar = 'root ::= ("The identifier is " [0-9]{1,4} " and its status is " ("open" | "closed") ".\\n"){3}';
  const wanted = /^(The identifier is \d{1,4} and its status is (open|closed)\.\n){3}$/;
  for (const sampling of [{ temperature: 0 }, { temperature: 1, seed: 4 }, { temperature: 1.5, seed: 5 }]) {
    const ask = { prompt, max_tokens: 300, structured_outputs: { grammar }, return_token_ids: true, ...sampling };
    const jumped = await complete(ask);
    const asked = await complete({ ...ask, logprobs: 0 });
    assert.match(jumped.choices[0].text, wanted);
    assert.equal(jumped.choices[0].text, asked.choices[0].text);
    assert.deepEqual(jumped.choices[0].token_ids, asked.choices[0].token_ids);
    assert.equal(jumped.usage.completion_tokens, asked.usage.completion_tokens);
  }
});

test("embeddings are shortened to unit length", async () => {
  const vector = async (extra) => (await (await server.post("/v1/embeddings", { input: prompt, ...extra })).json()).data[0].embedding;
  const whole = await vector({});
  const part = await vector({ dimensions: 8 });
  assert.equal(part.length, 8);
  assert.ok(Math.abs(Math.hypot(...part) - 1) < 1e-5);
  const ratio = whole[0] / part[0];
  part.forEach((value, i) => assert.ok(Math.abs(whole[i] - value * ratio) < 1e-5));
  assert.equal(await refused("/v1/embeddings", { input: prompt, dimensions: whole.length + 1 }), "dimensions");
});

test("wrong types and ranges are refused by name, streamed or not", async () => {
  const wrong = {
    temperature: "hot", top_p: 1.5, top_k: 0.5, min_p: -1, typical_p: 2, n: 0, seed: "x", stop: [1], logit_bias: { x: 1 },
    max_tokens: -1, min_tokens: "1", frequency_penalty: 3, presence_penalty: -3, repetition_penalty: 0, bad_words: [""],
    allowed_token_ids: [], stop_token_ids: [-1], truncate_prompt_tokens: 0, prompt_logprobs: -1, stream_options: { include_usage: 1 },
    priority: "high", cache_salt: 1, request_id: 1, timeout: 0, ignore_eos: "yes", skip_special_tokens: 1, guided_choice: [],
    response_format: { type: "xml" }, suffix: "x", kv_transfer_params: { do_remote_decode: 1 },
  };
  for (const [name, value] of Object.entries(wrong)) {
    for (const stream of [false, true]) {
      const param = await refused("/v1/completions", { prompt, stream, [name]: value });
      assert.match(param, new RegExp(`^${name}`), name);
    }
  }
  assert.equal(await refused("/v1/completions", { prompt, stream: true, prompt_logprobs: 1 }), "prompt_logprobs");
});
