// Daemons that share KV blocks through a real Redis, and requests whose texts are compared. For several test files.
import assert from "node:assert/strict";
import { after } from "node:test";
import { cut_stream, QuireServer } from "../server_process.mjs";

export async function start(redis, flags = [], process = {}) {
  const server = await QuireServer.start([...(redis ? ["--kv-cache.shared.url", redis.url] : []), ...flags], process);
  after(() => server.kill());
  if (redis) await server.metric_becomes("quire:shared_store_up", (value) => value === 1);
  return server;
}

export async function chat(server, messages, model = "quire-demo") {
  const response = await server.post("/v1/chat/completions", { model, messages, max_tokens: 48, temperature: 0 });
  assert.equal(response.status, 200);
  const { choices, usage } = await response.json();
  const cached = usage.prompt_tokens_details.cached_tokens;
  return { text: choices[0].message.content, tokens: usage.total_tokens, prompt: usage.prompt_tokens, computed: usage.prompt_tokens - cached };
}

// What a daemon computed is in the store: the figures are of one moment after the answer.
export async function published(server) {
  for (;;) {
    const metrics = await server.metrics();
    const busy = ["vllm:num_requests_running", "vllm:num_requests_waiting", "quire:shared_store_blocks_waiting"];
    if (busy.every((name) => metrics[name] === 0)) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

export const prompt_of = (index) =>
  `${index} ` + Array.from({ length: 120 }, (_, word) => ["block", "river", "token", "story", "cache"][(index * 3 + word * word) % 5]).join(" ");

export async function completed(server, index, headers = { "Content-Type": "application/json" }, more = {}) {
  const body = { model: "quire-demo", prompt: prompt_of(index), max_tokens: 24, temperature: 0, ignore_eos: true, ...more };
  const response = await server.post("/v1/completions", body, { headers });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].text;
}

export const number_of = (event) => Number(/^id: (\d+)$/m.exec(event)[1]);

// Kills the daemon `first` in the middle of a stream, which `second` ends: all of its events. num_records: of streams, in the store.
export async function resumed(first, second, body, headers, num_records) {
  const stream = (server, more, ...until) => cut_stream(`${server.url}/v1/completions`, body, { ...headers, ...more }, ...until);
  const before = await num_records();
  const begun = await stream(first, {}, 30, async () => {
    while ((await num_records()) <= before);
    first.kill();
    await first.ended();
  });
  const rest = await stream(second, { "Last-Event-ID": String(number_of(begun.events.at(-1))) });
  assert.equal(rest.status, 200, rest.rest);
  const events = [...begun.events, ...rest.events];
  assert.deepEqual(events.map(number_of), events.map((_, index) => index + 1));
  assert.match(events.at(-1), /\[DONE\]/);
  return events;
}
