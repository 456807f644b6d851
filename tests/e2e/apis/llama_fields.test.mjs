// Fields of llama-server's users on the real engine: progress of a prompt, samplers, white space in JSON.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { QuireServer, sse_events } from "../server_process.mjs";

let server;
before(async () => (server = await QuireServer.start(["--max-num-batched-tokens", "64"])));
after(() => server.stop());

const words = "the block of the cache is read by the step and the step writes the block ";

test("a stream reports how much of its prompt is computed, chunk by chunk", async () => {
  const ask = { prompt: words.repeat(30), max_tokens: 3, stream: true, return_progress: true };
  const told = async () => {
    const list = [];
    for await (const chunk of sse_events(await server.post("/v1/completions", ask))) {
      if (chunk.prompt_progress) list.push(chunk.prompt_progress);
    }
    return list;
  };
  const first = await told();
  assert.ok(first.length > 4);
  first.forEach(({ processed, total }, i) => {
    assert.ok(processed <= total);
    assert.ok(i === 0 || processed > first[i - 1].processed);
  });
  assert.equal(first.at(-1).processed, first[0].total);
  assert.equal(first[0].cache, 0);
  const second = await told();
  assert.ok(second[0].cache > 0.9 * second[0].total);
  assert.ok(second.length < first.length);
});

test("samplers give the same text for the same seed, alone and in company", async () => {
  const ways = [
    { top_n_sigma: 1 }, { top_a: 0.5 }, { min_keep: 3, top_p: 0.1 }, { dynatemp_range: 0.7 }, { mirostat: 1, mirostat_tau: 3 },
    { mirostat: 2, mirostat_tau: 3 }, { adaptive_target: 0.3 }, { samplers: ["top_p", "temperature", "top_k"], top_k: 20 },
  ];
  const ask = async (fields) => {
    const body = { prompt: words, max_tokens: 30, temperature: 1.2, seed: 11, ...fields };
    return (await (await server.post("/v1/completions", body)).json()).choices[0].text;
  };
  const alone = [];
  for (const fields of ways) alone.push(await ask(fields));
  assert.equal(new Set(alone).size, ways.length);
  assert.deepEqual(await Promise.all([...ways, ...ways].map(ask)), [...alone, ...alone]);
});

test("a model that prefers white space writes a bounded amount of it, streamed or not", async () => {
  const spaces = [];
  for (const text of [" ", "\n", "\t", "  ", "\n\n", "    ", "\n  "]) {
    const { tokens } = await (await server.post("/tokenize", { content: text })).json();
    if (tokens.length === 1) spaces.push(tokens[0]);
  }
  const ask = {
    messages: [{ role: "user", content: "JSON, please." }], max_tokens: 1500, temperature: 1, seed: 5,
    logit_bias: Object.fromEntries(spaces.map((token) => [token, 100])),
    response_format: { type: "json_schema", json_schema: { name: "x", schema: {
      type: "object", properties: { a: { type: "integer", minimum: 0, maximum: 9 }, b: { type: "boolean" } },
      required: ["a", "b"], additionalProperties: false } } },
  };
  const body = await (await server.post("/v1/chat/completions", ask)).json();
  assert.equal(body.choices[0].finish_reason, "stop");
  const text = body.choices[0].message.content;
  assert.equal(typeof JSON.parse(text).a, "number");
  const runs = text.match(/[ \n\t\r]+/g).map((run) => run.length);
  assert.ok(Math.max(...runs) > 10 && Math.max(...runs) <= 40, `${runs}`);
  let streamed = "";
  for await (const chunk of sse_events(await server.post("/v1/chat/completions", { ...ask, stream: true }))) {
    streamed += chunk.choices[0].delta.content ?? "";
  }
  assert.equal(streamed, text);
  const compact = { ...ask, response_format: undefined,
    structured_outputs: { json: ask.response_format.json_schema.schema, disable_any_whitespace: true } };
  const tight = await (await server.post("/v1/chat/completions", compact)).json();
  assert.doesNotMatch(tight.choices[0].message.content, /\s/);
});
