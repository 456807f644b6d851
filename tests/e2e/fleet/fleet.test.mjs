// Daemons that share KV blocks through a real Redis: a conversation continues on another daemon with the same text; if
// the store fails, no request fails and no text changes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { chat, completed, published, start } from "./fleet_support.mjs";
import { long_model } from "../models/long_model.mjs";
import { free_port, kNeedsRedis as options, Redis, serve_garbage, start_redis } from "./redis_server.mjs";

const kSystem = "You answer questions about a server of language models, in a few words and to the point. ".repeat(20);
const kQuestions = ["What is a KV block?", "What is a batch?", "What is a prefix cache?", "What is a sampler?"];

// Each turn by the next of the servers, once all that it was said before is in the store.
async function converse(servers) {
  const messages = [{ role: "system", content: kSystem }];
  const turns = [];
  for (const [index, question] of kQuestions.entries()) {
    messages.push({ role: "user", content: question });
    const turn = await chat(servers[index % servers.length], messages);
    messages.push({ role: "assistant", content: turn.text });
    turns.push(turn);
    await published(servers[index % servers.length]);
  }
  return turns;
}

test("a conversation continues at another daemon, and at a fresh one, with the same text", options, async () => {
  const redis = await start_redis();
  const alone = await start(null);
  const expected = await converse([alone]);
  await alone.stop();
  const servers = [await start(redis), await start(redis)];
  const turns = await converse(servers);
  assert.deepEqual(turns.map(({ text }) => text), expected.map(({ text }) => text));
  for (let i = 1; i < turns.length; ++i) {
    const num_new = turns[i].prompt - turns[i - 1].tokens;
    assert.ok(turns[i].computed <= num_new + 64, `turn ${i + 1}: ${turns[i].computed} of ${turns[i].prompt} computed, ${num_new} new`);
  }
  assert.ok(turns[1].prompt > 400, "there was something to share");
  for (const server of servers) await server.stop();
  const fresh = await start(redis);
  const again = await converse([fresh]);
  assert.deepEqual(again.map(({ text }) => text), expected.map(({ text }) => text));
  assert.ok(again[0].computed <= 64, `${again[0].computed} of ${again[0].prompt} computed`);
  const metrics = await fresh.metrics();
  assert.ok(metrics["quire:shared_store_blocks_read_total"] > 0);
  assert.equal(metrics["quire:shared_store_blocks_missed_total"], 0);
  const { models: [{ shared_store }] } = await (await fetch(`${fresh.url}/status`)).json();
  assert.ok(shared_store.up && shared_store.blocks_read > 0);
  await fresh.stop();
});

test("the second turn of a conversation of 4,000 tokens computes only what is new at another daemon", options, async () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-long-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const redis = await start_redis();
  const model = { model: long_model(folder) };
  const servers = [await start(redis, [], model), await start(redis, [], model)];
  const topics = ["river", "token", "story", "cache"];
  const messages = [{ role: "system", content: kSystem }, { role: "user",
    content: Array.from({ length: 3700 }, (_, word) => topics[(word * word + (word >> 5)) % 4]).join(" ") }];
  const first = await chat(servers[0], messages, "quire-long");
  assert.ok(first.prompt >= 4000, `${first.prompt} tokens`);
  assert.equal(first.computed, first.prompt);
  await published(servers[0]);
  messages.push({ role: "assistant", content: first.text }, { role: "user", content: kQuestions[0] });
  const second = await chat(servers[1], messages, "quire-long");
  const num_new = second.prompt - first.tokens;
  assert.ok(second.computed <= num_new + 64, `${second.computed} of ${second.prompt} computed, ${num_new} new`);
  const alone = await start(null, [], model);
  assert.equal((await chat(alone, messages, "quire-long")).text, second.text);
  for (const server of [...servers, alone]) await server.stop();
});

test("another layout, and another type of cache, share nothing with it", options, async () => {
  const redis = await start_redis();
  const first = await start(redis);
  await converse([first]);
  await first.stop();
  for (const flags of [["--block-size", "32"], ["--kv-cache-dtype", "f32"], ["--isa", "scalar"]]) {
    const other = await start(redis, flags);
    const [turn] = await converse([other]);
    assert.equal(turn.computed, turn.prompt, flags.join(" "));
    assert.equal((await other.metrics())["quire:shared_store_blocks_read_total"], 0);
    await other.stop();
  }
});

test("TLS, a user and a password: no store is used without them, and the password is in no log", options, async () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-redis-tls-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const [key, certificate] = [join(folder, "key.pem"), join(folder, "certificate.pem")];
  const made = spawnSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]);
  assert.equal(made.status, 0);
  const port = await free_port();
  const redis = new Redis(0);
  redis.port = port;
  await redis.start(["--port", "0", "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate,
    "--tls-auth-clients", "no", "--user", "kv", "on", ">s3cr%t", "~*", "+@all", "--user", "default", "off"]);
  const url = (password) => `rediss://kv:${password}@127.0.0.1:${port}`;
  const flags = (password) => ["--kv-cache.shared.url", url(password), "--kv-cache.shared.ca", certificate];
  const server = await start(null, flags("s3cr%25t"));
  await server.metric_becomes("quire:shared_store_up", (value) => value === 1);
  await converse([server]);
  assert.ok((await server.metrics())["quire:shared_store_blocks_written_total"] > 20);
  assert.ok(!server.log.some((line) => line.includes("s3cr")), "a password was logged");
  await server.stop();
  const wrong = await start(null, flags("wrong"));
  await wrong.logged((line) => /kv_cache.shared: .* is not used: AUTH was refused/.test(line));
  assert.equal((await converse([wrong])).length, kQuestions.length);
  await wrong.stop();
});

const kIndices = Array.from({ length: 12 }, (_, index) => index);
test("a store that is killed, restarted, filled, paused or says garbage under load: no request fails or differs", options, async () => {
  const alone = await start(null, ["--kv-cache.prefix-caching", "false"]);
  const expected = [];
  for (const index of kIndices) expected.push(await completed(alone, index));
  await alone.stop();

  const redis = await start_redis();
  // A pool for three of the prompts: blocks leave it and come back all the time.
  const servers = [await start(redis, ["--num-blocks", "40"]), await start(redis, ["--num-blocks", "40"])];
  // Every prompt by both daemons, four at once.
  const round = async () => {
    const queue = kIndices.flatMap((index) => servers.map((server) => ({ index, server })));
    const work = async () => {
      for (let next = queue.shift(); next; next = queue.shift())
        assert.equal(await completed(next.server, next.index), expected[next.index], `prompt ${next.index}`);
    };
    await Promise.all([work(), work(), work(), work()]);
  };
  // What happens to the store, once a round is on its way.
  const under_load = async (what) => {
    const load = round();
    await what();
    await load;
  };
  const are_up = (value) => Promise.all(servers.map((server) => server.metric_becomes("quire:shared_store_up", (up) => up === value)));

  await round();
  await round();
  for (const server of servers) assert.ok((await server.metrics())["quire:shared_store_blocks_read_total"] > 0, "blocks came from the store");
  await under_load(() => redis.kill());
  await under_load(() => are_up(0));
  await under_load(() => redis.start(["--maxmemory", "2mb", "--maxmemory-policy", "noeviction"]));
  await under_load(() => are_up(1));
  await round();
  assert.match(await redis.command("CONFIG", "SET", "maxmemory", "0"), /OK/);
  await under_load(() => redis.command("CLIENT", "PAUSE", "3000", "ALL"));
  await under_load(() => are_up(1));
  await under_load(() => redis.kill());
  for (const garbage of ["$-5\r\n*3\r\n", "HTTP/1.1 200 OK\r\n\r\n", "+PONG\r\n+PONG\r\n", "$100000\r\nabc", "\0\0\0\0\r\n"]) {
    const stop = await serve_garbage(redis.port, garbage);
    await round();
    await stop();
  }
  await under_load(() => redis.start());
  await under_load(() => are_up(1));
  await round();
  for (const server of servers) {
    const metrics = await server.metrics();
    assert.ok(metrics["quire:shared_store_failures_total"] >= 2);
    assert.equal(server.log.filter((line) => /CHECK|invariant/.test(line)).length, 0);
    await server.stop();
  }
});
