// OpenAI's Responses API through the unmodified npm package `openai`, every body and event checked against OpenAI's
// published schemas.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { assert_conforms, no_schemas } from "./openai_schema.mjs";
import { QuireServer } from "../server_process.mjs";

let server;
let client;

before(async () => {
  server = await QuireServer.start();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});
after(() => server.stop());

const greedy = { model: "quire-demo", temperature: 0 };
const question = "What is a KV block?";
const kAdd = {
  type: "function", name: "add", description: "Adds.", strict: true,
  parameters: {
    type: "object", properties: { a: { type: "integer", minimum: 0, maximum: 99 } }, required: ["a"], additionalProperties: false,
  },
};

let num_checked = 0;
function conforms(name, value) {
  if (no_schemas) return;
  assert_conforms(name, value);
  ++num_checked;
}

// The client adds it to what the server sent.
function without_output_text({ output_text, ...body }) {
  return body;
}

test("creates, and streams the same text", async () => {
  const whole = await client.responses.create({ ...greedy, input: question, max_output_tokens: 64 });
  conforms("Response", without_output_text(whole));
  assert.match(whole.output_text, /KV/);
  assert.equal(whole.status, "completed");
  assert.equal(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens);

  let text = "";
  let last = null;
  let number = 0;
  for await (const event of await client.responses.create({ ...greedy, input: question, max_output_tokens: 64, stream: true })) {
    conforms("ResponseStreamEvent", event);
    assert.equal(event.sequence_number, number++);
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.equal(last.type, "response.completed");
  assert.equal(last.response.usage.output_tokens, whole.usage.output_tokens);
});

test("the client's own accumulation of a stream is the response", async () => {
  const stream = client.responses.stream({
    ...greedy, input: question, max_output_tokens: 8, top_logprobs: 2, include: ["message.output_text.logprobs"],
  });
  let deltas = "";
  stream.on("response.output_text.delta", (event) => (deltas += event.delta));
  const final = await stream.finalResponse();
  assert.equal(final.status, "incomplete");
  assert.equal(final.incomplete_details.reason, "max_output_tokens");
  assert.equal(final.output_text, deltas);
  const { logprobs, text } = final.output[0].content[0];
  assert.equal(logprobs.length, 8);
  assert.equal(logprobs.map((entry) => entry.token).join(""), text);
  for (const entry of logprobs) assert.equal(entry.top_logprobs.length, 2);
});

test("parses a zod schema's text", async () => {
  const Answer = z.object({ answer: z.enum(["yes", "no"]), sure: z.boolean() });
  const ask = { ...greedy, input: "Is water wet?", text: { format: zodTextFormat(Answer, "answer") } };
  const response = await client.responses.parse(ask);
  assert.equal(response.status, "completed");
  assert.ok(Answer.safeParse(response.output_parsed).success);
  const streamed = await client.responses.stream(ask).finalResponse();
  assert.deepEqual(streamed.output_parsed, response.output_parsed);
});

test("calls a function with arguments of its schema, and takes the result", async () => {
  const tools = [kAdd];
  const first = await client.responses.create({ ...greedy, input: "Add.", tools, tool_choice: "required", parallel_tool_calls: false });
  conforms("Response", without_output_text(first));
  const [call] = first.output;
  assert.equal(call.type, "function_call");
  const { a } = JSON.parse(call.arguments);
  assert.ok(Number.isInteger(a) && a >= 0 && a <= 99);

  const result = { type: "function_call_output", call_id: call.call_id, output: String(a + 1) };
  const by_id = await client.responses.create({
    ...greedy, previous_response_id: first.id, input: [result], tools, tool_choice: "none", max_output_tokens: 16,
  });
  const by_items = await client.responses.create({
    ...greedy, input: [{ role: "user", content: "Add." }, ...first.output, result], tools, tool_choice: "none", max_output_tokens: 16, store: false,
  });
  assert.equal(by_items.output_text, by_id.output_text);
  assert.equal(by_items.usage.input_tokens, by_id.usage.input_tokens);
  assert.ok(by_items.usage.input_tokens_details.cached_tokens > 0);
});

test("streams a function's arguments, parsed by zod", async () => {
  const Pick = z.object({ colour: z.enum(["red", "blue"]) });
  const stream = client.responses.stream({
    ...greedy, input: "Pick one.", tools: [zodResponsesFunction({ name: "pick", parameters: Pick })],
    tool_choice: { type: "function", name: "pick" }, parallel_tool_calls: false,
  });
  let text = "";
  for await (const event of stream) {
    const { snapshot, parsed_arguments, ...sent } = event;
    if (event.type === "response.function_call_arguments.delta") {
      conforms("ResponseStreamEvent", sent);
      text += event.delta;
    }
  }
  const [call] = (await stream.finalResponse()).output;
  assert.equal(call.arguments, text);
  assert.ok(Pick.safeParse(call.parsed_arguments).success);
});

test("stored responses are retrieved, continued, listed and deleted", async () => {
  const first = await client.responses.create({ ...greedy, input: question, instructions: "Be brief.", max_output_tokens: 16 });
  const second = await client.responses.create({ ...greedy, input: "And a page?", previous_response_id: first.id, max_output_tokens: 16 });
  const retrieved = await client.responses.retrieve(second.id);
  assert.deepEqual(without_output_text(retrieved), without_output_text(second));
  const page = await (await fetch(`${server.url}/v1/responses/${second.id}/input_items`)).json();
  conforms("ResponseItemList", page);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 2 })) items.push(item);
  assert.deepEqual(items.map((item) => item.role), ["user", "assistant", "user"]);
  assert.deepEqual(items.map((item) => item.id), page.data.map((item) => item.id).reverse());
  await client.responses.delete(second.id);
  await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
  const gone = client.responses.create({ ...greedy, input: "x", previous_response_id: second.id });
  await assert.rejects(gone, (error) => error instanceof OpenAI.BadRequestError && error.code === "previous_response_not_found");
  const unstored = await client.responses.create({ ...greedy, input: "x", max_output_tokens: 16, store: false });
  await assert.rejects(client.responses.retrieve(unstored.id), OpenAI.NotFoundError);
});

test("errors reach the SDK as its own classes", async () => {
  const wrong = (body) => client.responses.create({ ...greedy, input: "x", ...body });
  for (const [body, param] of [
    [{ tools: [{ type: "function", parameters: {} }] }, "tools[0].name"],
    [{ background: true, store: false }, "background"],
    [{ text: { format: { type: "json_schema", name: "n", schema: { type: "hiccup" } } } }, "text.format.schema#/type"],
    [{ input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] }, "input[0].content[0].type"],
  ]) {
    await assert.rejects(wrong(body), (error) => error instanceof OpenAI.BadRequestError && error.param === param, param);
  }
  await assert.rejects(wrong({ input: "word ".repeat(5000) }),
    (error) => error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded" && error.param === "input");
});

test("a stream that its deadline cuts tells first what was written until then", async () => {
  const asked = { ...greedy, input: question, stream: true, max_output_tokens: 1500, ignore_eos: true };
  for (let timeout = 0.1; ; timeout *= 2) {
    const response = await server.post("/v1/responses", { ...asked, timeout });
    const text = await response.text();
    if (response.status === 504) continue;  // before its first token
    const events = [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data));
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
    assert.match(events.at(-1).type, /^response\.(failed|incomplete)$/);
    break;
  }
});

test("an aborted stream leaves the batch", async () => {
  const stream = await client.responses.create({
    model: "quire-demo", input: question, stream: true, max_output_tokens: 1500, temperature: 0, ignore_eos: true,
  });
  for await (const event of stream) if (event.type === "response.output_text.delta") break;
  stream.controller.abort();
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
});

test("the bodies and events above fit OpenAI's schemas", { skip: no_schemas }, () => assert.ok(num_checked > 20));
