// Every form of answer, checked against OpenAI's published schemas.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assert_conforms, no_schemas } from "./openai_schema.mjs";
import { QuireServer, sse_events } from "../server_process.mjs";

let server;
before(async () => (server = await QuireServer.start()));
after(() => server.stop());

const messages = [{ role: "user", content: "What is a KV block?" }];
const tool = {
  type: "function",
  function: {
    name: "add",
    parameters: {
      type: "object",
      properties: { a: { type: "integer", minimum: 0, maximum: 99 } },
      required: ["a"],
      additionalProperties: false,
    },
  },
};
const skip = no_schemas;

async function whole(path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function chunks(path, body) {
  const list = [];
  for await (const chunk of sse_events(await server.post(path, { ...body, stream: true }))) list.push(chunk);
  assert.ok(list.length > 0);
  return list;
}

test("models", { skip }, async () => {
  const list = await (await fetch(`${server.url}/v1/models`)).json();
  assert_conforms("ListModelsResponse", list);
  assert_conforms("Model", await (await fetch(`${server.url}/v1/models/${list.data[0].id}`)).json());
});

test("completions", { skip }, async () => {
  const request = { prompt: "Once upon a time", max_tokens: 8, n: 2, seed: 1 };
  for (const extra of [{}, { logprobs: 2 }, { return_token_ids: true }]) {
    assert_conforms("CreateCompletionResponse", await whole("/v1/completions", { ...request, ...extra }));
    const list = await chunks("/v1/completions", { ...request, ...extra });
    // Before its end a choice has no reason yet; OpenAI's schema of chunks is that of the whole and leaves no room for null.
    for (const chunk of list) for (const choice of chunk.choices) choice.finish_reason ??= "stop";
    for (const chunk of list) assert_conforms("CreateCompletionResponse", chunk);
  }
});

test("chat completions", { skip }, async () => {
  const request = { messages, max_completion_tokens: 8, n: 2, seed: 1 };
  const usage = { stream_options: { include_usage: true } };
  for (const extra of [{}, { logprobs: true, top_logprobs: 2 }]) {
    assert_conforms("CreateChatCompletionResponse", await whole("/v1/chat/completions", { ...request, ...extra }));
    for (const chunk of await chunks("/v1/chat/completions", { ...request, ...extra, ...usage })) {
      assert_conforms("CreateChatCompletionStreamResponse", chunk);
    }
  }
});

test("constrained tool calls fit their schema, whole and streamed", { skip }, async () => {
  const request = { messages, tools: [tool], tool_choice: "required", parallel_tool_calls: false, temperature: 0, max_tokens: 128 };
  const body = await whole("/v1/chat/completions", request);
  assert_conforms("CreateChatCompletionResponse", body);
  assert.equal(body.choices[0].finish_reason, "tool_calls");
  const [call] = body.choices[0].message.tool_calls;
  assert.equal(call.function.name, "add");
  const { a } = JSON.parse(call.function.arguments);
  assert.ok(Number.isInteger(a) && a >= 0 && a <= 99);
  let streamed = "";
  for (const chunk of await chunks("/v1/chat/completions", request)) {
    assert_conforms("CreateChatCompletionStreamResponse", chunk);
    streamed += chunk.choices[0].delta.tool_calls?.[0].function.arguments ?? "";
  }
  assert.equal(streamed, call.function.arguments);
});

test("constrained texts are of their shape", async () => {
  const schema = { type: "object", properties: { answer: { enum: ["yes", "no"] } }, required: ["answer"], additionalProperties: false };
  const formats = [
    { response_format: { type: "json_schema", json_schema: { name: "n", strict: true, schema } } },
    { structured_outputs: { json: schema } },
    { guided_json: schema },
  ];
  for (const format of formats) {
    const body = await whole("/v1/chat/completions", { messages, max_tokens: 64, seed: 3, ...format });
    assert.match(JSON.parse(body.choices[0].message.content).answer, /^(yes|no)$/);
  }
  const choice = await whole("/v1/completions", { prompt: "Pick:", max_tokens: 16, guided_choice: ["red", "blue"] });
  assert.match(choice.choices[0].text, /^(red|blue)$/);
});

test("embeddings", { skip }, async () => {
  const body = await whole("/v1/embeddings", { input: ["one text", "another"] });
  assert_conforms("CreateEmbeddingResponse", body);
  assert.equal(body.data.length, 2);
  const length = Math.hypot(...body.data[0].embedding);
  assert.ok(Math.abs(length - 1) < 1e-4, `a vector of length ${length}`);
  const coded = await whole("/v1/embeddings", { input: "one text", encoding_format: "base64" });
  const bytes = Buffer.from(coded.data[0].embedding, "base64");
  assert.equal(bytes.readFloatLE(0), Math.fround(body.data[0].embedding[0]));
});

test("errors", { skip }, async () => {
  for (const [path, body, status] of [
    ["/v1/chat/completions", { messages, temperature: -1 }, 400],
    ["/v1/chat/completions", { messages, model: "absent" }, 404],
    ["/v1/completions", {}, 400],
    ["/v1/absent", {}, 404],
  ]) {
    const response = await server.post(path, body);
    assert.equal(response.status, status);
    const { error } = await response.json();
    assert_conforms("Error", error);
    assert.equal(typeof error.code, "string");
  }
});
