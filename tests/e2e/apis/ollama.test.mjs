// The npm package `ollama`, unmodified, against the built server: chats, prompts, tools, structure, embeddings, lists.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Ollama } from "ollama";
import { QuireServer } from "../server_process.mjs";

let server;
let client;

before(async () => {
  server = await QuireServer.start();
  client = new Ollama({ host: server.url });
});
after(() => server.stop());

const model = "quire-demo";
const options = { temperature: 0, seed: 1, num_predict: 16, repeat_penalty: 1 };
const messages = [{ role: "user", content: "Which colour is the sky?" }];

test("lists what is served, and shows it", async () => {
  const { models } = await client.list();
  assert.deepEqual(models.map(({ name }) => name), [model]);
  assert.ok(models[0].size > 1e6);
  assert.deepEqual((await client.ps()).models.map(({ name }) => name), [model]);
  const shown = await client.show({ model });
  assert.equal(shown.details.quantization_level, "Q8_0");
  assert.equal(shown.model_info["llama.context_length"], 2048);
  assert.deepEqual(shown.capabilities.slice(0, 2), ["completion", "tools"]);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

test("a chat is the same whole and streamed, and the same as OpenAI's", async () => {
  const whole = await client.chat({ model: `${model}:latest`, messages, options });
  assert.equal(whole.message.role, "assistant");
  assert.ok(whole.eval_count > 0 && whole.eval_count <= 16);
  assert.ok(whole.total_duration >= whole.prompt_eval_duration + whole.eval_duration);
  assert.ok(whole.eval_duration > 0 && whole.prompt_eval_duration > 0);
  let text = "";
  let last;
  for await (const part of await client.chat({ model, messages, options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done_reason, whole.done_reason);
  assert.equal(last.eval_count, whole.eval_count);
  const openai = await (await server.post("/v1/chat/completions", { messages, temperature: 0, max_tokens: 16 })).json();
  assert.equal(openai.choices[0].message.content, text);
});

test("a conversation continues from the context of its last answer", async () => {
  const first = await client.generate({ model, prompt: messages[0].content, options });
  const second = await client.generate({ model, prompt: "And the sea?", context: first.context, options });
  assert.ok(second.prompt_eval_count > first.context.length);
  assert.deepEqual(second.context.slice(0, first.context.length), first.context);
});

test("the format holds the text to a schema", async () => {
  const format = {
    type: "object", properties: { colour: { enum: ["red", "blue"] } }, required: ["colour"], additionalProperties: false,
  };
  const { message } = await client.chat({ model, messages, format, options: { ...options, num_predict: 64 } });
  assert.ok(["red", "blue"].includes(JSON.parse(message.content).colour));
});

test("embeddings are those of OpenAI's endpoint", async () => {
  const input = ["The river is cold.", "Equal prefixes share their blocks."];
  const { embeddings, prompt_eval_count } = await client.embed({ model, input });
  const { data, usage } = await (await server.post("/v1/embeddings", { input })).json();
  assert.deepEqual(embeddings, data.map(({ embedding }) => embedding));
  assert.equal(prompt_eval_count, usage.prompt_tokens);
});

test("a stream that its reader aborts ends the request", async () => {
  const stream = await client.chat({ model, messages, stream: true, options: { ...options, num_predict: -1, ignore_eos: true } });
  await assert.rejects(async () => {
    for await (const part of stream) stream.abort(part);
  }, { name: "AbortError" });
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
});

test("refusals are errors with the server's words", async () => {
  await assert.rejects(client.chat({ model: "nothing", messages }), { name: "ResponseError", status_code: 404 });
  await assert.rejects(client.generate({ model, prompt: "x", images: ["aGk="] }), /reads text only/);
  await assert.rejects(client.pull({ model: "nothing" }), /does not serve 'nothing'.*needs an admin key/);
  assert.equal((await client.pull({ model })).status, "success");
});
