// The parts of the npm package `openai` that run tools and read schemas: parse with zod, the tool runner, embeddings.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
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
const messages = [{ role: "user", content: "Which colour is the sky?" }];
const Pick = z.object({ colour: z.enum(["red", "blue"]), shade: z.number().int().min(0).max(9).nullable() });

test("parses a zod schema's text, whole and streamed", async () => {
  const ask = { ...greedy, messages, response_format: zodResponseFormat(Pick, "pick") };
  const whole = await client.chat.completions.parse(ask);
  const { parsed } = whole.choices[0].message;
  assert.ok(Pick.safeParse(parsed).success);
  const streamed = await client.chat.completions.stream(ask).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, parsed);
});

test("parses a zod function's arguments", async () => {
  const completion = await client.chat.completions.parse({
    ...greedy, messages, tools: [zodFunction({ name: "pick", parameters: Pick })], tool_choice: "required", parallel_tool_calls: false,
  });
  const [call] = completion.choices[0].message.tool_calls;
  assert.ok(Pick.safeParse(call.function.parsed_arguments).success);
});

test("the tool runner calls the function and sends its result back", async () => {
  const seen = [];
  const tool = zodFunction({
    name: "pick", parameters: Pick,
    function: (args) => {
      seen.push(args);
      return `picked ${args.colour}`;
    },
  });
  // Told to call a tool each time, the model never says a last word: the runner ends after two.
  const runner = client.chat.completions.runTools(
    { ...greedy, messages, tools: [tool], tool_choice: "required", parallel_tool_calls: false }, { maxChatCompletions: 2 });
  const result = await runner.finalFunctionToolCallResult();
  assert.equal(seen.length, 2);
  for (const args of seen) assert.ok(Pick.safeParse(args).success);
  assert.equal(result, `picked ${seen[1].colour}`);
  assert.deepEqual(runner.messages.map((message) => message.role), ["user", "assistant", "tool", "assistant", "tool"]);
  assert.equal((await runner.totalUsage()).completion_tokens > 0, true);
});

test("the tool runner streams", async () => {
  const seen = [];
  const tool = zodFunction({ name: "pick", parameters: Pick, function: (args) => (seen.push(args), "ok") });
  const runner = client.chat.completions.runTools({
    ...greedy, messages, tools: [tool], tool_choice: { type: "function", function: { name: "pick" } }, stream: true,
  });
  let pieces = "";
  for await (const chunk of runner) pieces += chunk.choices[0]?.delta.tool_calls?.[0]?.function.arguments ?? "";
  assert.ok(seen.length >= 1);
  assert.ok(pieces.startsWith("{"));
});

test("functions, the first form of tools, are answered in their own words", async () => {
  const { schema: parameters } = zodResponseFormat(Pick, "pick").json_schema;
  const ask = { ...greedy, messages, functions: [{ name: "pick", parameters }], function_call: { name: "pick" } };
  const whole = await client.chat.completions.create(ask);
  if (!no_schemas) assert_conforms("CreateChatCompletionResponse", whole);
  const { message, finish_reason } = whole.choices[0];
  assert.equal(finish_reason, "function_call");
  assert.ok(Pick.safeParse(JSON.parse(message.function_call.arguments)).success);
  const streamed = { name: "", arguments: "" };
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    if (!no_schemas) assert_conforms("CreateChatCompletionStreamResponse", chunk);
    const call = chunk.choices[0].delta.function_call;
    streamed.name += call?.name ?? "";
    streamed.arguments += call?.arguments ?? "";
  }
  assert.deepEqual(streamed, message.function_call);
  const history = [...messages, message, { role: "function", name: "pick", content: "picked" }];
  const next = await client.chat.completions.create({ ...greedy, messages: history, max_tokens: 8 });
  assert.ok(next.usage.prompt_tokens > 0);
});

test("a stored chat is retrieved, its messages listed, and deleted", async () => {
  const whole = await client.chat.completions.create({ ...greedy, messages, max_tokens: 8, store: true, metadata: { a: "b" } });
  const retrieved = await client.chat.completions.retrieve(whole.id);
  if (!no_schemas) assert_conforms("CreateChatCompletionResponse", retrieved);
  assert.deepEqual(retrieved, whole);
  const listed = [];
  for await (const message of client.chat.completions.messages.list(whole.id)) listed.push(message.content);
  assert.deepEqual(listed, messages.map((message) => message.content));
  assert.equal((await client.chat.completions.delete(whole.id)).deleted, true);
  await assert.rejects(client.chat.completions.retrieve(whole.id), OpenAI.NotFoundError);
});

test("embeddings come as floats, decoded from base64 by the client", async () => {
  const by_default = await client.embeddings.create({ model: "quire-demo", input: ["one", "another"] });
  const floats = await client.embeddings.create({ model: "quire-demo", input: ["one", "another"], encoding_format: "float" });
  assert.equal(by_default.data.length, 2);
  for (const [i, { embedding }] of by_default.data.entries()) {
    assert.equal(embedding.length, floats.data[i].embedding.length);
    embedding.forEach((value, k) => assert.ok(Math.abs(value - floats.data[i].embedding[k]) < 1e-6));
  }
});
