// The unmodified npm package `openai` against the built binary.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { QuireServer } from "../server_process.mjs";

let server;
let client;

before(async () => {
  server = await QuireServer.start();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const question = [{ role: "user", content: "What is a KV block?" }];
const greedy = { model: "quire-demo", temperature: 0 };

test("lists and retrieves models", async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, ["quire-demo"]);
  assert.equal((await client.models.retrieve("quire-demo")).object, "model");
  await assert.rejects(client.models.retrieve("absent"), OpenAI.NotFoundError);
});

test("chats, and streams the same text", async () => {
  const whole = await client.chat.completions.create({ ...greedy, messages: question, max_completion_tokens: 64 });
  const { content } = whole.choices[0].message;
  assert.match(content, /KV/);
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

  const stream = await client.chat.completions.create({
    ...greedy, messages: question, max_completion_tokens: 64, stream: true, stream_options: { include_usage: true },
  });
  let text = "";
  let usage = null;
  let finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, content);
  assert.equal(finish, "stop");
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("completes text and token ids alike", async () => {
  const prompt = "Once upon a time";
  const { tokens } = await (await server.post("/tokenize", { prompt })).json();
  const of_text = await client.completions.create({ ...greedy, prompt, max_tokens: 12 });
  const of_ids = await client.completions.create({ ...greedy, prompt: tokens, max_tokens: 12 });
  assert.equal(of_text.choices[0].text, of_ids.choices[0].text);
  assert.equal(of_text.usage.prompt_tokens, tokens.length);
});

test("n choices with a seed repeat, and differ among themselves", async () => {
  const ask = { model: "quire-demo", messages: [{ role: "user", content: "Tell me a short story." }], n: 3, seed: 7, temperature: 1.2, max_tokens: 40 };
  const texts = async () => (await client.chat.completions.create(ask)).choices.map((choice) => choice.message.content);
  const first = await texts();
  assert.equal(first.length, 3);
  assert.ok(new Set(first).size > 1);
  assert.deepEqual(await texts(), first);
});

test("stops at a stop string, also across tokens", async () => {
  const whole = await client.completions.create({ ...greedy, prompt: "Once upon a time", max_tokens: 32 });
  const text = whole.choices[0].text;
  const stop = text.slice(9, 15);
  const cut = await client.completions.create({ ...greedy, prompt: "Once upon a time", max_tokens: 32, stop: [stop] });
  assert.equal(cut.choices[0].text, text.slice(0, text.indexOf(stop)));
  assert.equal(cut.choices[0].finish_reason, "stop");
});

test("logprobs come in both shapes and are probabilities", async () => {
  const chat = await client.chat.completions.create({ ...greedy, messages: question, max_tokens: 4, logprobs: true, top_logprobs: 3 });
  const { content } = chat.choices[0].logprobs;
  assert.equal(content.length, 4);
  for (const entry of content) {
    assert.ok(entry.logprob <= 0);
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].token, entry.token);
  }
  assert.equal(content.map((entry) => entry.token).join(""), chat.choices[0].message.content);
  const completion = await client.completions.create({ ...greedy, prompt: "Once", max_tokens: 3, logprobs: 2 });
  assert.equal(completion.choices[0].logprobs.token_logprobs.length, 3);
});

test("errors reach the SDK as its own classes", async () => {
  const wrong = (body) => client.chat.completions.create({ ...greedy, messages: question, ...body });
  await assert.rejects(wrong({ temperature: -1 }), (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(wrong({ model: "absent" }), (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
  const long = "word ".repeat(5000);
  await assert.rejects(wrong({ messages: [{ role: "user", content: long }] }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
});

test("an aborted stream leaves the batch", async () => {
  const stream = await client.chat.completions.create({
    model: "quire-demo", messages: question, stream: true, max_tokens: 1500, temperature: 0, ignore_eos: true,
  });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) break;
  }
  stream.controller.abort();
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  assert.equal((await server.metrics())["quire:kv_blocks_used"], 0);
});
