// Three daemons behind a real HAProxy with the shipped configuration: affinity, bounded load, and a daemon killed or
// drained while clients keep asking.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const skip = spawnSync("haproxy", ["-v"]).status !== 0 && "haproxy is absent (Debian package haproxy)";
const kConfig = join(process.env.QUIRE_SOURCE, "deploy/haproxy/haproxy.cfg");
const kDaemons = 3;  // of that configuration

// A socket that HAProxy is given, so that no port has to be guessed.
function listener() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => resolve(server));
  });
}

// A daemon in this process, {url, kill()}, that `answer` answers for.
function serve(answer) {
  return new Promise((resolve) => {
    const server = http.createServer((request, response) => {
      request.resume();
      answer(request, response);
    });
    server.listen(0, "127.0.0.1", () => resolve({ url: `http://127.0.0.1:${server.address().port}`, kill: () => server.close() }));
  });
}

class Fleet {
  proxy_log = "";

  static start(context) {
    const flags = ["--backend.cpu.threads", "1", "--kv-cache.num-blocks", "4096", "--drain.delay", "3s", "--drain.deadline", "10m"];
    return Fleet.before(context, () => QuireServer.start(flags));
  }

  // HAProxy before three daemons, each {url, kill()}.
  static async before(context, start_daemon, config = kConfig) {
    const fleet = new Fleet();
    fleet.daemons = await Promise.all(Array.from({ length: kDaemons }, start_daemon));
    const socket = await listener();
    const env = { ...process.env, QUIRE_LISTEN: "fd@3", HAPROXY_ADMIN: join(mkdtempSync(join(tmpdir(), "quire-")), "admin") };
    fleet.daemons.forEach((daemon, index) => { env[`QUIRE_${index + 1}`] = new URL(daemon.url).host; });
    fleet.proxy = spawn("haproxy", ["-db", "-f", config], { env, stdio: ["ignore", "ignore", "pipe", socket._handle.fd] });
    fleet.port = socket.address().port;
    socket.close();
    fleet.proxy.stderr.setEncoding("utf8").on("data", (text) => { fleet.proxy_log += text; });
    context.after(() => {
      fleet.proxy.kill("SIGKILL");
      fleet.daemons.forEach((daemon) => daemon.kill());
    });
    fleet.admin = env.HAPROXY_ADMIN;
    // Until HAProxy has found every daemon ready.
    await fleet.#told((text) => (text.match(/^haproxy_server_check_status\{.*state="L7OK".*\} 1$/gm) ?? []).length === kDaemons);
    return fleet;
  }

  // Until HAProxy counts no request under way: it learns of an answer's end a moment after the client.
  idle() {
    return this.#told((text) => /^haproxy_backend_current_sessions\{proxy="daemons"\} 0$/m.test(text));
  }

  // Until the proxy's own metrics say what `wanted` looks for.
  async #told(wanted) {
    for (;;) {
      const { text } = await exchange({ socketPath: this.admin, path: "/metrics" }).catch(() => ({ text: "" }));
      if (wanted(text)) return;
      assert.equal(this.proxy.exitCode, null, this.proxy_log);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  ask(body, headers = {}, path = "/v1/completions", on_piece = undefined) {
    return exchange({ host: "127.0.0.1", port: this.port, path, method: "POST",
      headers: { "Content-Type": "application/json", ...headers } }, JSON.stringify(body), on_piece);
  }
}

// {status, backend, retry_after, text, whole, started, ended}; rejects only where no answer began.
function exchange(options, body, on_piece = () => {}) {
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const request = http.request({ agent: false, ...options }, (response) => {
      let text = "";
      const finish = (whole) => resolve({
        status: response.statusCode, backend: response.headers["x-quire-backend"], retry_after: response.headers["retry-after"], text, whole, started, ended: performance.now(),
      });
      response.setEncoding("utf8");
      response.on("data", (piece) => {
        text += piece;
        on_piece();
      });
      response.on("end", () => finish(true));
      response.on("error", () => finish(false));
    });
    request.on("error", reject);
    request.end(body);
  });
}

const kShort = { prompt: "Once upon a time", max_tokens: 8, temperature: 0, ignore_eos: true };
const kStream = { ...kShort, max_tokens: 300, stream: true };
const kLongStream = { ...kStream, max_tokens: 900 };  // so long that some are always under way

function succeeded({ status, text, whole }, stream) {
  return status === 200 && whole && (!stream || (text.endsWith("data: [DONE]\n\n") && !text.includes('"error"')));
}

test("a session, a cache key, a conversation and a prompt each stay on one daemon", { skip }, async (context) => {
  const fleet = await Fleet.start(context);
  const used = new Set();
  const stays = async (ask) => {
    const first = (await ask(0)).backend;
    used.add(first);
    for (let turn = 1; turn < 4; ++turn) {
      await fleet.idle();
      assert.equal((await ask(turn)).backend, first);
    }
    await fleet.idle();
  };
  for (let number = 0; number < 12; ++number) {
    await stays((turn) => fleet.ask({ ...kShort, prompt: `turn ${turn}` }, { "X-Session-Id": `session-${number}` }));
    await stays((turn) => fleet.ask({ ...kShort, prompt: `turn ${turn}`, prompt_cache_key: `key-${number}` }));
    await stays(() => fleet.ask({ ...kShort, prompt: `prompt number ${number}` }));
    const system = { role: "system", content: `You are number ${number}.` };
    const messages = (turn) => [system, { role: "user", content: "hello" },
      ...Array.from({ length: turn }, (_, index) => [{ role: "assistant", content: "yes" }, { role: "user", content: `and ${index}?` }]).flat()];
    await stays((turn) => exchange({ host: "127.0.0.1", port: fleet.port, path: "/v1/chat/completions", method: "POST",
      headers: { "Content-Type": "application/json" } }, JSON.stringify({ messages: messages(turn), max_tokens: 2 })));
  }
  assert.deepEqual([...used].sort(), ["quire-1", "quire-2", "quire-3"]);
  // One session with far more than its share does not fill one daemon while the others idle.
  const crowd = await Promise.all(Array.from({ length: 24 }, () => fleet.ask(kStream, { "X-Session-Id": "crowd" })));
  assert.ok(crowd.every((answer) => succeeded(answer, true)));
  assert.ok(new Set(crowd.map(({ backend }) => backend)).size > 1);
  // The proxy keeps what is the daemons' own to their own listeners.
  for (const path of ["/admin/reload", "/%61dmin/reload", "/models/load", "/sleep", "/v1/load_lora_adapter", "/v1/unload%5flora_adapter", "/slots/0?action=save"]) {
    assert.equal((await exchange({ host: "127.0.0.1", port: fleet.port, path, method: "POST" })).status, 403, path);
  }
});

test("one killed and one drained under load: only what the killed one computed fails", { skip }, async (context) => {
  const fleet = await Fleet.start(context);
  const [killed, drained] = fleet.daemons;
  const answers = [];
  let over = false;
  const client = async (number) => {
    for (let turn = 0; !over; ++turn) {
      const stream = turn % 2 === 0;
      const body = stream ? kLongStream : kShort;
      answers.push({ ...(await fleet.ask({ ...body, seed: turn }, { "X-Session-Id": `client-${number}` })), stream });
    }
  };
  const clients = Array.from({ length: 12 }, (_, number) => client(number));
  const grown_by = async (count) => {
    const from = answers.length;
    while (answers.length < from + count) await Promise.race([...clients, new Promise((resolve) => setImmediate(resolve))]);
  };
  await grown_by(24);
  // Halted first: what it has then, and what still comes to it, cannot end before it is killed.
  await killed.metric_becomes("vllm:num_requests_running", (value) => value > 0);
  killed.signal("SIGSTOP");
  await grown_by(24);
  killed.kill();
  await killed.ended();
  const kill_time = performance.now();
  await grown_by(36);
  drained.signal("SIGTERM");
  assert.deepEqual(await drained.ended(), { code: 0, signal: null });
  const drain_time = performance.now();
  await grown_by(24);
  over = true;
  await Promise.all(clients);

  const failed = answers.filter((answer) => !succeeded(answer, answer.stream));
  assert.ok(failed.length > 0, "requests were in flight on the killed daemon");
  for (const answer of failed) {
    assert.equal(answer.backend, "quire-1", JSON.stringify(answer));
    assert.ok(answer.started < kill_time, "it was in flight when the daemon was killed");
    // Cleanly: an error that a client's SDK reads, or a stream that visibly has no end.
    if (answer.status === 502) assert.equal(JSON.parse(answer.text).error.code, "bad_gateway");
    else assert.ok(answer.status === 200 && !answer.whole, JSON.stringify(answer));
  }
  const after = answers.filter(({ started }) => started > drain_time);
  assert.ok(after.length > 0 && after.every(({ backend }) => backend === "quire-3"));
});

test("with no daemon left the refusal is one that clients understand", { skip }, async (context) => {
  const fleet = await Fleet.start(context);
  fleet.daemons.forEach((daemon) => daemon.kill());
  await Promise.all(fleet.daemons.map((daemon) => daemon.ended()));
  const { status, text } = await fleet.ask(kShort);
  assert.equal(status, 503);
  assert.equal(JSON.parse(text).error.code, "service_unavailable");
});

// How long a stream takes whose server sends an event when the client has the one before.
async function milliseconds_of_a_stream(context, config) {
  let next_event = () => {};
  const fleet = await Fleet.before(context, () => serve((request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    if (request.method !== "POST") return response.end();
    let left = 20;
    next_event = () => (--left < 0 ? response.end() : response.write("data: token\n\n"));
    next_event();
  }), config);
  const { text, started, ended } = await fleet.ask(kStream, {}, "/v1/completions", () => next_event());
  assert.equal(text, "data: token\n\n".repeat(20));
  return ended - started;
}

test("the proxy passes a token on when it comes: without its option a stream takes many times as long", { skip }, async (context) => {
  const held_back = join(mkdtempSync(join(tmpdir(), "quire-")), "haproxy.cfg");
  writeFileSync(held_back, readFileSync(kConfig, "utf8").replace("option http-no-delay", ""));
  const shipped = await milliseconds_of_a_stream(context, kConfig);
  const without = await milliseconds_of_a_stream(context, held_back);
  assert.ok(4 * shipped < without, `${shipped} ms, without the option ${without} ms`);
});

test("a server that is overloaded in Anthropic's way is understood by the clients of every API", { skip }, async (context) => {
  const fleet = await Fleet.before(context, () => serve((request, response) => {
    const overloaded = request.method === "POST";
    const fields = request.headers["x-session-id"] === "names-a-time" ? { "Retry-After": "30" } : {};
    response.writeHead(overloaded ? 529 : 200, fields).end(overloaded ? '{"type":"error","error":{"type":"overloaded_error"}}' : "");
  }));
  for (const [path, status] of [["/v1/messages", 529], ["/v1/chat/completions", 503], ["/v1/completions", 503], ["/api/chat", 503]]) {
    const answer = await fleet.ask({}, {}, path);
    assert.deepEqual([answer.status, answer.retry_after], [status, "2"], path);
    assert.match(answer.text, /overloaded_error/);
  }
  assert.equal((await fleet.ask({}, { "X-Session-Id": "names-a-time" })).retry_after, "30");
});
