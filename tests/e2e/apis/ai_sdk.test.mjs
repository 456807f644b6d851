// The unmodified npm package `ai` with both of its OpenAI providers: @ai-sdk/openai-compatible, which speaks chat
// completions, and @ai-sdk/openai, which speaks responses unless told otherwise.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { QuireServer } from "../server_process.mjs";

let server;
const models = {};

before(async () => {
  server = await QuireServer.start();
  const baseURL = `${server.url}/v1`;
  const compatible = createOpenAICompatible({
    name: "quire", baseURL, apiKey: "none", includeUsage: true, supportsStructuredOutputs: true,
  });
  const openai = createOpenAI({ baseURL, apiKey: "none" });
  Object.assign(models, {
    "openai-compatible": compatible("quire-demo"),
    "openai responses": openai("quire-demo"),
    "openai chat": openai.chat("quire-demo"),
    embedding: [compatible.textEmbeddingModel("quire-demo"), openai.textEmbeddingModel("quire-demo")],
  });
});
after(() => server.stop());

const Answer = z.object({ answer: z.enum(["yes", "no"]), count: z.number().int().min(0).max(99) });
const pick = tool({
  description: "Picks a colour.",
  inputSchema: z.object({ colour: z.enum(["red", "blue"]) }),
  execute: async ({ colour }) => ({ picked: colour }),
});

for (const name of ["openai-compatible", "openai responses", "openai chat"]) {
  const base = () => ({ model: models[name], temperature: 0, maxRetries: 0 });

  test(`${name}: streams a text, the same as whole`, async () => {
    const prompt = "What is a KV block?";
    const errors = [];
    const stream = streamText({ ...base(), prompt, maxOutputTokens: 64, onError: ({ error }) => errors.push(error) });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.deepEqual(errors, []);
    assert.match(text, /KV/);
    assert.equal(await stream.finishReason, "stop");
    const usage = await stream.usage;
    const whole = await generateText({ ...base(), prompt, maxOutputTokens: 64 });
    assert.equal(whole.text, text);
    assert.equal(whole.usage.outputTokens, usage.outputTokens);
    assert.ok(usage.inputTokens > 0);
    const cut = await generateText({ ...base(), prompt, maxOutputTokens: 16 });
    assert.equal(cut.finishReason, "length");
  });

  test(`${name}: generates and streams an object`, async () => {
    const ask = { ...base(), schema: Answer, prompt: "Is water wet?" };
    const { object } = await generateObject(ask);
    assert.ok(Answer.safeParse(object).success);
    const stream = streamObject(ask);
    let last = null;
    for await (const partial of stream.partialObjectStream) last = partial;
    assert.deepEqual(last, object);
  });

  test(`${name}: calls tools in steps`, async () => {
    const { steps } = await generateText({
      ...base(), tools: { pick }, prompt: "Pick a colour.", stopWhen: stepCountIs(2), maxOutputTokens: 64,
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    });
    assert.equal(steps.length, 2);
    assert.equal(steps[0].finishReason, "tool-calls");
    const [result] = steps[0].toolResults;
    assert.equal(result.toolName, "pick");
    assert.match(result.output.picked, /^(red|blue)$/);
    assert.equal(steps[1].toolCalls.length, 0);
  });

  test(`${name}: streams a tool call`, async () => {
    const stream = streamText({
      ...base(), tools: { pick }, prompt: "Pick a colour.", toolChoice: { type: "tool", toolName: "pick" },
    });
    const kinds = new Set();
    let input = "";
    for await (const part of stream.fullStream) {
      kinds.add(part.type);
      if (part.type === "tool-input-delta") input += part.delta;
      if (part.type === "tool-call") assert.deepEqual(part.input, JSON.parse(input));
    }
    assert.ok(kinds.has("tool-call") && kinds.has("tool-result") && !kinds.has("error"));
  });

  test(`${name}: a refusal is an APICallError with the server's words`, async () => {
    const ask = generateText({ ...base(), prompt: "word ".repeat(5000) });
    await assert.rejects(ask, (error) => APICallError.isInstance(error) && error.statusCode === 400 && /context length/.test(error.message));
  });
}

test("embeds", async () => {
  for (const model of models.embedding) {
    const { embeddings } = await embedMany({ model, values: ["one", "another"], maxRetries: 0 });
    assert.equal(embeddings.length, 2);
    assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-4);
  }
});
