// The unmodified npm package `@langchain/openai`, over chat completions and over responses.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AIMessage, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";
import { QuireServer } from "../server_process.mjs";

let server;
let options;

before(async () => {
  server = await QuireServer.start();
  options = { model: "quire-demo", temperature: 0, apiKey: "none", maxRetries: 0, configuration: { baseURL: `${server.url}/v1` } };
});
after(() => server.stop());

const Answer = z.object({ answer: z.enum(["yes", "no"]), sure: z.boolean() });
const pick = tool(async ({ colour }) => `picked ${colour}`, {
  name: "pick", description: "Picks a colour.", schema: z.object({ colour: z.enum(["red", "blue"]) }),
});

for (const useResponsesApi of [false, true]) {
  const name = useResponsesApi ? "responses" : "chat";
  const model = (more = {}) => new ChatOpenAI({ ...options, useResponsesApi, ...more });

  test(`${name}: streams what it answers whole`, async () => {
    const chat = model({ maxTokens: 64 });
    let streamed = null;
    for await (const chunk of await chat.stream("What is a KV block?")) streamed = streamed?.concat(chunk) ?? chunk;
    const whole = await chat.invoke("What is a KV block?");
    assert.match(whole.text, /KV/);
    assert.equal(streamed.text, whole.text);
    assert.equal(streamed.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
  });

  for (const method of ["jsonSchema", "functionCalling"]) {
    test(`${name}: structured output by ${method}`, async () => {
      const structured = model().withStructuredOutput(Answer, { name: "answer", method, strict: true });
      assert.ok(Answer.safeParse(await structured.invoke("Is water wet?")).success);
    });
  }

  test(`${name}: bound tools are called and their results taken`, async () => {
    const ask = new HumanMessage("Pick a colour.");
    const message = await model().bindTools([pick], { tool_choice: "pick" }).invoke([ask]);
    assert.ok(AIMessage.isInstance?.(message) ?? message instanceof AIMessage);
    assert.equal(message.tool_calls.length, 1);
    const result = await pick.invoke(message.tool_calls[0]);
    assert.ok(result instanceof ToolMessage);
    const again = await model().bindTools([pick], { tool_choice: "pick" }).invoke([ask, message, result]);
    assert.ok(again.usage_metadata.input_tokens > message.usage_metadata.input_tokens);
    const last = await model({ maxTokens: 16 }).bindTools([pick], { tool_choice: "none" }).invoke([ask, message, result]);
    assert.equal(last.tool_calls.length, 0);
  });

  test(`${name}: a streamed tool call adds up`, async () => {
    let streamed = null;
    const stream = await model().bindTools([pick], { tool_choice: "pick" }).stream("Pick a colour.");
    for await (const chunk of stream) streamed = streamed?.concat(chunk) ?? chunk;
    assert.equal(streamed.tool_calls[0].name, "pick");
    assert.match(streamed.tool_calls[0].args.colour, /^(red|blue)$/);
  });
}

test("completes", async () => {
  const text = await new OpenAI({ ...options, maxTokens: 8 }).invoke("Once upon a time");
  assert.ok(text.length > 0);
});

test("embeds", async () => {
  const vectors = await new OpenAIEmbeddings(options).embedDocuments(["one", "another"]);
  assert.equal(vectors.length, 2);
  assert.ok(Math.abs(Math.hypot(...vectors[0]) - 1) < 1e-4);
});
