// Daemons that share KV blocks through a real Redis: a conversation continues at another one where it stood, with the same
// text; and whatever becomes of the store, no request fails or says anything else.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "./server_process.mjs";

const kHasRedis = spawnSync("redis-server", ["--version"]).status === 0;
const options = { skip: kHasRedis ? false : "redis-server is not installed" };

async function free_port() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// A redis-server on a port that stays its own over restarts.
class Redis {
  #process;
  constructor(port) {
    this.port = port;
    this.folder = mkdtempSync(join(tmpdir(), "quire-redis-"));
    after(() => {
      this.#process?.kill("SIGKILL");
      rmSync(this.folder, { recursive: true, force: true });
    });
  }
  get url() {
    return `redis://127.0.0.1:${this.port}/1`;
  }
  async start(flags = []) {
    this.#process = spawn("redis-server", ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--dir", this.folder, ...flags],
      { stdio: ["ignore", "pipe", "inherit"] });
    let log = "";
    for await (const bytes of this.#process.stdout) {
      log += bytes;
      if (/Ready to accept connections/.test(log)) break;
    }
    assert.match(log, /Ready to accept connections/);
  }
  async kill() {
    this.#process.kill("SIGKILL");
    await once(this.#process, "exit");
  }
  // The bytes of its answer to one command.
  async command(...words) {
    const socket = net.connect(this.port, "127.0.0.1");
    socket.write(`*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(`${word}`)}\r\n${word}\r\n`).join("")}`);
    const [bytes] = await once(socket, "data");
    socket.destroy();
    return bytes.toString();
  }
}

async function start_redis(flags) {
  const redis = new Redis(await free_port());
  await redis.start(flags);
  return redis;
}

async function start(redis, flags = []) {
  const server = await QuireServer.start([...(redis ? ["--kv-cache.shared.url", redis.url] : []), ...flags]);
  after(() => server.kill());
  if (redis) await server.metric_becomes("quire:shared_store_up", (value) => value === 1);
  return server;
}

async function chat(server, messages) {
  const response = await server.post("/v1/chat/completions", { model: "quire-demo", messages, max_tokens: 48, temperature: 0 });
  assert.equal(response.status, 200);
  const { choices, usage } = await response.json();
  const cached = usage.prompt_tokens_details.cached_tokens;
  return { text: choices[0].message.content, tokens: usage.total_tokens, prompt: usage.prompt_tokens, computed: usage.prompt_tokens - cached };
}

const kSystem = "You answer questions about a server of language models, in a few words and to the point. ".repeat(20);
const kQuestions = ["What is a KV block?", "What is a batch?", "What is a prefix cache?", "What is a sampler?"];

// What a daemon computed is in the store: the figures are of one moment after the answer.
async function published(server) {
  for (;;) {
    const metrics = await server.metrics();
    const busy = ["vllm:num_requests_running", "vllm:num_requests_waiting", "quire:shared_store_blocks_waiting"];
    if (busy.every((name) => metrics[name] === 0)) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

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
const prompt_of = (index) =>
  `${index} ` + Array.from({ length: 120 }, (_, word) => ["block", "river", "token", "story", "cache"][(index * 3 + word * word) % 5]).join(" ");

async function completed(server, index) {
  const body = { model: "quire-demo", prompt: prompt_of(index), max_tokens: 24, temperature: 0, ignore_eos: true };
  const response = await server.post("/v1/completions", body);
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()).choices[0].text;
}

// Answers whatever is asked with what is no reply.
async function serve_garbage(port, garbage) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("data", () => socket.write(garbage));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    return once(server, "close");
  };
}

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
