// The unmodified npm package `@anthropic-ai/sdk` against the built binary.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { QuireServer } from "../server_process.mjs";

let server;
let client;

before(async () => {
  server = await QuireServer.start();
  client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const greedy = { model: "quire-demo", temperature: 0, max_tokens: 64 };
const question = [{ role: "user", content: "What is a KV block?" }];
const add = {
  name: "add",
  description: "Adds two numbers",
  input_schema: {
    type: "object",
    properties: { a: { type: "integer", minimum: 0, maximum: 99 }, b: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["a", "b"],
    additionalProperties: false,
  },
};

function assert_add_input({ a, b, ...rest }) {
  assert.ok(Number.isInteger(a) && a >= 0 && a <= 99);
  assert.ok(Number.isInteger(b) && b >= 0 && b <= 99);
  assert.deepEqual(rest, {});
}

test("messages.create and messages.stream give the same message", async () => {
  const system = [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }];
  const whole = await client.messages.create({ ...greedy, system, messages: question });
  assert.equal(whole.type, "message");
  assert.equal(whole.role, "assistant");
  assert.equal(whole.stop_reason, "end_turn");
  assert.match(whole.content[0].text, /KV/);
  assert.ok(whole._request_id);

  const stream = client.messages.stream({ ...greedy, system, messages: question });
  let text = "";
  const types = new Set();
  stream.on("text", (piece) => (text += piece));
  stream.on("streamEvent", (event) => types.add(event.type));
  const final = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(final.content, whole.content);
  assert.equal(final.stop_reason, "end_turn");
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  const prompt_tokens = (usage) => usage.input_tokens + usage.cache_read_input_tokens;
  assert.equal(prompt_tokens(final.usage), prompt_tokens(whole.usage));
  assert.ok(final.usage.cache_read_input_tokens > 0, "the second prompt is the first one's");
  for (const type of ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"])
    assert.ok(types.has(type), type);
});

test("raw events of stream: true", async () => {
  const types = [];
  for await (const event of await client.messages.create({ ...greedy, max_tokens: 4, messages: question, stream: true })) {
    types.push(event.type);
    if (event.type === "message_delta") assert.equal(event.delta.stop_reason, "max_tokens");
  }
  assert.equal(types[0], "message_start");
  assert.equal(types.at(-1), "message_stop");
});

test("stop sequences name the one that was met", async () => {
  const message = await client.messages.create({ ...greedy, messages: question, stop_sequences: ["fixed", "never met"] });
  assert.equal(message.stop_reason, "stop_sequence");
  assert.equal(message.stop_sequence, "fixed");
  assert.ok(!message.content[0].text.includes("fixed"));
});

test("a final assistant message is continued", async () => {
  const messages = [...question, { role: "assistant", content: "A KV block is" }];
  const message = await client.messages.create({ ...greedy, messages });
  assert.ok(!message.content[0].text.startsWith("A KV block is"));
});

test("forced tools: inputs fit their schema, whole and streamed, and results go back", async () => {
  const ask = { ...greedy, max_tokens: 128, tools: [add], messages: [{ role: "user", content: "Add 3 and 4." }] };
  for (const tool_choice of [{ type: "any", disable_parallel_tool_use: true }, { type: "tool", name: "add", disable_parallel_tool_use: true }]) {
    const message = await client.messages.create({ ...ask, tool_choice });
    assert.equal(message.stop_reason, "tool_use");
    const calls = message.content.filter((block) => block.type === "tool_use");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, "add");
    assert_add_input(calls[0].input);
    const stream = client.messages.stream({ ...ask, tool_choice });
    let json = "";
    stream.on("inputJson", (piece) => (json += piece));
    const final = await stream.finalMessage();
    assert.deepEqual(final.content.find((block) => block.type === "tool_use").input, calls[0].input);
    assert.deepEqual(JSON.parse(json), calls[0].input);

    const result = { type: "tool_result", tool_use_id: calls[0].id, content: [{ type: "text", text: "7" }] };
    const next = await client.messages.create({
      ...ask,
      messages: [...ask.messages, { role: "assistant", content: message.content }, { role: "user", content: [result] }],
      tool_choice: { type: "none" },
    });
    assert.ok(next.content.every((block) => block.type === "text"));
  }
});

test("output_config.format constrains the text", async () => {
  const schema = { type: "object", properties: { answer: { enum: ["yes", "no"] } }, required: ["answer"], additionalProperties: false };
  const message = await client.messages.create({ ...greedy, messages: question, output_config: { format: { type: "json_schema", schema } } });
  assert.match(JSON.parse(message.content[0].text).answer, /^(yes|no)$/);
});

test("countTokens counts what a message is billed for", async () => {
  const body = { model: "quire-demo", system: "Be brief.", messages: question, tools: [add] };
  const { input_tokens } = await client.messages.countTokens(body);
  const { usage } = await client.messages.create({ ...body, max_tokens: 1 });
  assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test("errors are of the SDK's classes", async () => {
  const create = (body) => client.messages.create({ ...greedy, messages: question, ...body });
  await assert.rejects(create({ max_tokens: undefined }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.type, "invalid_request_error");
    assert.match(error.message, /max_tokens/);
    assert.ok(error.requestID);
    assert.equal(error.error.request_id, error.requestID);
    return true;
  });
  await assert.rejects(create({ model: "absent" }), Anthropic.NotFoundError);
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
  await assert.rejects(create({ messages: [{ role: "user", content: [image] }] }), Anthropic.BadRequestError);
  await assert.rejects(
    client.messages.stream({ ...greedy, messages: question, temperature: 7 }).finalMessage(), Anthropic.BadRequestError);
});

test("a thinking budget is taken and leaves a model without reasoning as it is", async () => {
  const message = await client.messages.create({
    ...greedy, max_tokens: 200, messages: question, thinking: { type: "enabled", budget_tokens: 100 },
  });
  assert.match(message.content.at(-1).text, /KV/);
});
