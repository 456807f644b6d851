// A stream whose daemon is killed continues on another daemon, which computes it again: every event equals the event
// that the first daemon would have sent. A real Redis stores how the answer began.
import assert from "node:assert/strict";
import { Agent, request } from "node:http";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { number_of, start } from "./fleet_support.mjs";
import { long_model } from "../models/long_model.mjs";
import { kNeedsRedis as options, start_redis } from "./redis_server.mjs";
import { cut_stream } from "../server_process.mjs";

const kWindow = ["--server.resume.window", "60s"];
const kDraws = { model: "quire-demo", max_tokens: 600, temperature: 1, ignore_eos: true, stream: true, stream_options: { include_usage: true } };
const kCases = [
  ["/v1/completions", { ...kDraws, temperature: 0, prompt: "A KV block holds the keys and values of tokens. ".repeat(6) }],
  ["/v1/completions", { ...kDraws, prompt: "Once upon a time", logprobs: 2 }],
  ["/v1/chat/completions", { ...kDraws, messages: [{ role: "user", content: "What is a KV block?" }] }],
  ["/v1/chat/completions", { ...kDraws, messages: [{ role: "user", content: "What is a KV block?" }], tool_choice: "required",
    tools: [{ type: "function", function: { name: "look_up", parameters: { type: "object", properties: { word: { type: "string" } }, required: ["word"] } } }] }],
];

const stream = (server, [path, body], headers, ...until) => cut_stream(server.url + path, body, headers, ...until);

const data_of = (event) => /^data: (.*)$/m.exec(event)[1];
const usage_of = (events) => JSON.parse(data_of(events.at(-2))).usage;
function text_of(events) {
  const chunks = events.map(data_of).filter((data) => data !== "[DONE]").map((data) => JSON.parse(data).choices[0]);
  return chunks.map((choice) => choice?.text ?? choice?.delta?.content ?? choice?.delta?.tool_calls?.[0].function.arguments ?? "").join("");
}
// How many streams the store knows, and in whose name.
async function num_streams(redis) {
  const answer = await redis.command("EVAL", "redis.call('SELECT', 1) return #redis.call('KEYS', '*:stream:*')", 0);
  return Number(/^:(\d+)/.exec(answer)[1]);
}
async function kept(redis, count) {
  while ((await num_streams(redis)) !== count);
}

test("a stream whose daemon is killed continues at another, event for event", options, async () => {
  const redis = await start_redis();
  // Drafts that are right give several tokens in one step, which the other daemon makes one by one.
  const second = await start(redis, [...kWindow, "--speculation.method", "prompt_lookup"]);
  const alone = await start(null);
  for (const [index, request] of kCases.entries()) {
    const seeded = [request[0], { ...request[1], seed: 5 }];
    const undisturbed = await stream(alone, seeded, {});
    for (const [what, asked] of [["seeded", seeded], ["unseeded", request]]) {
      const id = `${what}-${index}`;
      const first = await start(redis, [...kWindow, "--speculation.method", "none"]);
      const most = index === 3 ? 6 : 40;
      const begun = await stream(first, asked, { "X-Request-Id": id }, most, async () => {
        while ((await num_streams(redis)) <= index * 2 + (what === "seeded" ? 0 : 1));
        first.kill();
        await first.ended();
      });
      assert.equal(begun.status, 200);
      assert.equal(begun.events.length, most);
      const rest = await stream(second, asked, { "X-Request-Id": id, "Last-Event-ID": String(number_of(begun.events.at(-1))) });
      assert.equal(rest.status, 200, rest.rest);
      const events = [...begun.events, ...rest.events];
      assert.deepEqual(events.map(number_of), events.map((_, i) => i + 1));
      assert.equal(data_of(events.at(-1)), "[DONE]");
      // All of it, as the second daemon made it: what the first one had sent is the same to the byte, id and time included.
      const whole = await stream(second, asked, { "X-Request-Id": id, "Last-Event-ID": "0" });
      assert.deepEqual(whole.events, events);
      if (what === "unseeded") continue;
      assert.equal(text_of(events), text_of(undisturbed.events));
      for (const count of ["prompt_tokens", "completion_tokens", "total_tokens"]) assert.equal(usage_of(events)[count], usage_of(undisturbed.events)[count]);
    }
  }
  await alone.stop();
  await second.stop();
});

test("a stream is continued for its own key and request alone, by one daemon at a time, and not after the window", options, async () => {
  const redis = await start_redis();
  const env = { KEY_ONE: "one-secret", KEY_TWO: "two-secret" };
  const folder = mkdtempSync(join(tmpdir(), "quire-resume-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "quire.yaml"), "security:\n  keys:\n    - {name: one, env: KEY_ONE}\n    - {name: two, env: KEY_TWO}\n  metrics: open\n");
  const flags = ["--server.resume.window", "5s", "--config", join(folder, "quire.yaml")];
  const process = { env, model: long_model(folder) };
  const [first, second] = [await start(redis, flags, process), await start(redis, flags, process)];
  // Longer than a lease.
  const request = [kCases[0][0], { ...kCases[0][1], model: "quire-long", max_tokens: 20000 }];
  const fields = (secret, more = {}) => ({ Authorization: `Bearer ${secret}`, "X-Request-Id": "mine", ...more });
  let living;
  const begun = await stream(first, request, fields("one-secret"), 10, async () => {
    await kept(redis, 1);
    // It runs where it was begun.
    living = await stream(second, request, fields("one-secret", { "Last-Event-ID": "10" }));
    first.kill();
    await first.ended();
  });
  assert.equal(living.status, 503, living.rest);
  assert.equal(JSON.parse(living.rest).error.code, "stream_elsewhere");
  assert.equal(living.retry, "1");
  const ask = async (secret, asked, last = "10") => (await stream(second, asked, fields(secret, { "Last-Event-ID": last }), 5)).status;
  assert.equal(await ask("two-secret", request), 404);
  assert.equal(await ask("one-secret", [request[0], { ...request[1], prompt: "Another" }]), 404);
  assert.equal(await ask("one-secret", request, "x"), 404);
  assert.equal(await ask("wrong", request), 401);
  assert.equal(await ask("one-secret", request), 200);
  assert.equal(begun.events.length, 10);
  await second.stop();
  await kept(redis, 0);
  const late = await start(redis, flags, process);
  assert.equal((await stream(late, request, fields("one-secret", { "Last-Event-ID": "10" }))).status, 404);
  // Without a store a stream is one daemon's own, as ever.
  await redis.kill();
  const whole = await stream(late, [request[0], { ...request[1], max_tokens: 20 }], fields("one-secret"));
  assert.equal(whole.status, 200);
  assert.equal(data_of(whole.events.at(-1)), "[DONE]");
  await late.stop();
});

test("a daemon whose stream another one took over says no more that it has ended", options, async () => {
  const redis = await start_redis();
  const folder = mkdtempSync(join(tmpdir(), "quire-resume-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const server = await start(redis, kWindow, { model: long_model(folder) });
  const in_store = (script) => redis.command("EVAL", `redis.call('SELECT', 1) local keys = redis.call('KEYS', '*:stream:*') ${script}`, 0);
  // One connection: the daemon has done all of a request that is its own before it reads the next.
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  after(() => agent.destroy());
  const whole = (id, max_tokens, at_first = async () => {}) => new Promise((resolve, reject) => {
    const asked = request(`${server.url}/v1/completions`, { method: "POST", agent, headers: { "Content-Type": "application/json", "X-Request-Id": id } }, (response) => {
      let text = "";
      let attack;
      response.on("data", (bytes) => {
        text += bytes;
        attack ??= at_first();
      });
      response.on("end", () => attack.then(() => resolve(text)));
    });
    asked.on("error", reject).end(JSON.stringify({ ...kDraws, model: "quire-long", prompt: "Once", max_tokens }));
  });
  const text = await whole("taken", 4000, async () => {
    await kept(redis, 1);
    // What a daemon does that found the lease of this one run out, while it was stopped.
    await in_store("redis.call('SET', keys[1], (string.gsub(redis.call('GET', keys[1]), '^%S+', 'another'))) return 1");
  });
  assert.match(text, /\[DONE\]/);
  // What it does after that comes after it in the store as well.
  await whole("next", 5);
  await kept(redis, 2);
  const owners = await in_store("local owners = '' for i = 1, 2 do owners = owners .. string.match(redis.call('GET', keys[i]), '^%S+') .. ' ' end return owners");
  assert.match(owners, /(^|\s)another /);
  await server.stop();
});
