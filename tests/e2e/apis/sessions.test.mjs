// Sessions of the Responses API through the unmodified npm package `openai`: responses in the background, conversations,
// compaction, and prompts that are kept in the cache for an agent that pauses.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
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

function conforms(name, { output_text, ...value }) {
  if (!no_schemas) assert_conforms(name, value);
}

async function ended(id) {
  for (;;) {
    const response = await client.responses.retrieve(id);
    conforms("Response", response);
    if (!["queued", "in_progress"].includes(response.status)) return response;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("a background response is polled to the text that waiting would have brought", async () => {
  const ask = { ...greedy, input: question, max_output_tokens: 64 };
  const whole = await client.responses.create(ask);
  const begun = await client.responses.create({ ...ask, background: true });
  conforms("Response", begun);
  assert.equal(begun.status, "queued");
  assert.deepEqual(begun.output, []);
  const done = await ended(begun.id);
  assert.equal(done.status, "completed");
  assert.equal(done.output_text, whole.output_text);
  assert.equal(done.usage.output_tokens, whole.usage.output_tokens);
});

test("a background stream that broke is taken up where it was", async () => {
  const ask = { ...greedy, input: question, max_output_tokens: 200, ignore_eos: true, background: true, stream: true };
  const stream = await client.responses.create(ask);
  let id = null;
  const seen = [];
  for await (const event of stream) {
    conforms("ResponseStreamEvent", event);
    id ??= event.response.id;
    seen.push(event);
    if (seen.length === 12) break;  // the connection goes
  }
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: seen.at(-1).sequence_number }))
    seen.push(event);
  assert.deepEqual(seen.map((event) => event.sequence_number), seen.map((_, i) => i));
  assert.equal(seen[1].type, "response.queued");
  assert.match(seen.at(-1).type, /^response\.(completed|incomplete)$/);
  const text = seen.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join("");
  const stored = await client.responses.retrieve(id);
  assert.equal(stored.output_text, text);
});

test("a background response is cancelled, and computes no further", async () => {
  const begun = await client.responses.create({ ...greedy, input: question, max_output_tokens: 1500, ignore_eos: true, background: true });
  const cancelled = await client.responses.cancel(begun.id);
  assert.equal(cancelled.status, "cancelled");
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  const stored = await client.responses.retrieve(begun.id);
  conforms("Response", stored);
  assert.equal(stored.status, "cancelled");
  assert.equal((await client.responses.cancel(begun.id)).status, "cancelled");
});

test("a drain waits for a background response", async () => {
  const other = await QuireServer.start();
  const begun = await other.post("/v1/responses", { ...greedy, input: question, max_output_tokens: 300, ignore_eos: true, background: true });
  assert.equal((await begun.json()).status, "queued");
  await other.stop();  // fails where something was cut
});

test("a conversation continues over responses, and is read, changed and deleted", async () => {
  const conversation = await client.conversations.create({ metadata: { topic: "blocks" }, items: [{ role: "user", content: "Be brief." }] });
  const first = await client.responses.create({ ...greedy, input: question, conversation: conversation.id, max_output_tokens: 24 });
  conforms("Response", first);
  assert.equal(first.conversation.id, conversation.id);
  const second = await client.responses.create({ ...greedy, input: "And a page?", conversation: { id: conversation.id }, max_output_tokens: 24 });
  assert.ok(second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens - 2);
  const items = [];
  for await (const item of client.conversations.items.list(conversation.id, { order: "asc", limit: 2 })) items.push(item);
  assert.deepEqual(items.map((item) => item.role), ["user", "user", "assistant", "user", "assistant"]);
  assert.equal(items[2].content[0].text, first.output_text);
  const added = await client.conversations.items.create(conversation.id, { items: [{ role: "user", content: "One more" }] });
  const got = await client.conversations.items.retrieve(added.data[0].id, { conversation_id: conversation.id });
  assert.equal(got.content[0].text, "One more");
  await client.conversations.items.delete(added.data[0].id, { conversation_id: conversation.id });
  assert.deepEqual((await client.conversations.update(conversation.id, { metadata: { topic: "pages" } })).metadata, { topic: "pages" });
  assert.equal((await client.conversations.retrieve(conversation.id)).metadata.topic, "pages");
  assert.equal((await client.conversations.delete(conversation.id)).deleted, true);
  await assert.rejects(client.conversations.retrieve(conversation.id), OpenAI.NotFoundError);
});

test("a conversation is compacted, and continues from its summary", async () => {
  const long = `${question} ${"word ".repeat(200)}`;
  const first = await client.responses.create({ ...greedy, input: long, max_output_tokens: 32 });
  const compacted = await client.responses.compact({ model: "quire-demo", previous_response_id: first.id });
  assert.equal(compacted.object, "response.compaction");
  assert.equal(compacted.output.at(-1).type, "compaction");
  const next = await client.responses.create({ ...greedy, input: [...compacted.output, { role: "user", content: "Go on" }], max_output_tokens: 16 });
  assert.ok(["completed", "incomplete"].includes(next.status));
});

test("an agent that pauses finds its conversation in the cache after others have filled it", async () => {
  const small = await QuireServer.start(["--num-blocks", "128"]);
  try {
    const ask = async (fields) => {
      const response = await small.post("/v1/responses", { ...greedy, max_output_tokens: 4, store: false, ...fields });
      assert.equal(response.status, 200, await response.clone().text());
      return (await response.json()).usage;
    };
    const turn = (name) => `${name} ${Array.from({ length: 24 }, (_, i) => `step ${i} of ${name}`).join(", ")}`;
    await ask({ input: turn("agent"), prompt_cache_key: "agent" });
    await ask({ input: turn("stranger") });
    await ask({ input: turn("forgotten"), prompt_cache_key: "x", prompt_cache_retention: "in_memory" });
    for (let i = 0; i < 20; ++i) await ask({ input: turn(`other${i}`) });
    const cached = async (name) => {
      const usage = await ask({ input: `${turn(name)} and then?` });
      return usage.input_tokens_details.cached_tokens / usage.input_tokens;
    };
    assert.ok(await cached("agent") > 0.9, "the agent's prompt was retained");
    assert.ok(await cached("stranger") < 0.2, "the pool was too large to show anything");
    assert.ok(await cached("forgotten") < 0.2, "in_memory retains nothing");
  } finally {
    await small.stop();
  }
});
