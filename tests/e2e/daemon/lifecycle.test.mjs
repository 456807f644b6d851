// Start, drain and end of the daemon, and its messages about a bad command line, configuration or model.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer, sized, sse_events } from "../server_process.mjs";

const kLong = {
  model: "quire-demo", prompt: "Once upon a time", max_tokens: sized(1200, 120), temperature: 0, ignore_eos: true, stream: true,
  stream_options: { include_usage: true },
};

// Reads the stream to its end: {tokens, error}; the tokens are counted by its last event.
async function read(response) {
  let tokens = 0;
  try {
    for await (const event of sse_events(response)) {
      if (event.error) return { tokens, error: event.error };
      tokens = event.usage?.completion_tokens ?? tokens;
    }
  } catch (error) {
    return { tokens, error };
  }
  return { tokens, error: null };
}

async function start(flags) {
  const server = await QuireServer.start(flags);
  after(() => server.kill());
  return server;
}

// What the process did so far: CPU time in ticks of 10 ms, and how often its threads went to sleep, before which each wakes.
function activity(pid) {
  const [, , ticks] = /\) \S( \S+){10} (\d+ \d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"));
  const sleeps = (thread) => /^voluntary_ctxt_switches:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/task/${thread}/status`, "utf8"));
  return {
    ticks: ticks.split(" ").reduce((sum, each) => sum + Number(each), 0),
    sleeps: readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => sum + Number(sleeps(thread)[1]), 0),
  };
}

test("a daemon with nothing to do does nothing", async () => {
  const server = await start([]);
  await read(await server.post("/v1/completions", { ...kLong, max_tokens: 50 }));
  // The end of the answer may still be at work in the first seconds; a daemon that polls never has a quiet one.
  for (;;) {
    const before = activity(server.pid);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { ticks, sleeps } = activity(server.pid);
    if (ticks - before.ticks <= 1 && sleeps - before.sleeps <= 5) break;
  }
  await server.stop();
});

test("SIGTERM: not ready, new work refused, streams finished, exit 0", async () => {
  const server = await start(["--drain.delay", "0s", "--drain.deadline", "10m"]);
  const response = await server.post("/v1/completions", kLong);
  const alone = read(response);
  server.signal("SIGTERM");
  // The listening socket may close at any time from here on: a refused connection is as good as a 503.
  const status_of = (ask) => ask.then((answer) => [answer.status, answer.headers.get("retry-after")], () => [503, "1"]);
  for (;;) {
    const [status] = await status_of(fetch(`${server.url}/readyz`));
    if (status === 503) break;
  }
  const [status, retry_after] = await status_of(server.post("/v1/completions", { ...kLong, stream: false }));
  assert.equal(status, 503);
  assert.ok(Number(retry_after) > 0);
  const { tokens, error } = await alone;
  assert.equal(error, null);
  assert.equal(tokens, kLong.max_tokens);
  assert.deepEqual(await server.ended(), { code: 0, signal: null });
});

test("SIGTERM before the model serves ends the daemon as any other does", async () => {
  const daemon = spawn(process.env.QUIRE_BINARY, ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0"]);
  const ended = once(daemon, "exit");
  await once(daemon.stderr, "data");  // its first line
  daemon.kill("SIGTERM");
  daemon.stderr.resume();
  assert.deepEqual(await ended, [0, null]);
});

test("signals sent by mistake do not end the daemon", async () => {
  const server = await start([]);
  for (const name of ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGXFSZ"]) server.signal(name);
  assert.equal((await fetch(`${server.url}/livez`)).status, 200);
  await server.stop();
});

test("the log of a start is lines with a time: address, memory, ready, a command that works", async () => {
  const server = await start([]);
  await server.logged((line) => line.includes(" try: "));  // it answers before it has said all
  await server.stop();
  for (const line of server.log) assert.match(line, /^\d{4}-\d\d-\d\dT[\d:.]+ info /);
  const lines = [/ listening on /, / on \S+: weights .*; KV pool .*; in all /, / is ready after \d+ ms: a chat page at http:.*; Ctrl-C /, / try: curl http:/];
  lines.forEach((line, i) => assert.match(server.log[i], line));
});

test("an undrained standard error stops neither requests nor the end, and what was dropped is counted", async () => {
  const daemon = spawn(process.env.QUIRE_BINARY, ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0"],
    { stdio: ["ignore", "ignore", "pipe"] });
  after(() => daemon.kill("SIGKILL"));
  const ended = once(daemon, "exit");
  let log = "";
  while (!/ is ready after /.test(log)) log += (await once(daemon.stderr, "data"))[0];
  daemon.stderr.pause();
  const url = `http://127.0.0.1:${/listening on .*:(\d+)/.exec(log)[1]}`;
  // Each refused request is a line with its path: far more than the pipe, what node reads ahead, and the buffer hold.
  const path = `/v1/${"x".repeat(6000)}`;
  const dropped = async () => Number(/^quire:log_lines_dropped_total (\d+)$/m.exec(await (await fetch(`${url}/metrics`)).text())[1]);
  for (let asked = 0; await dropped() === 0; asked += 50) {
    assert.ok(asked < 5000, "lines are dropped");
    await Promise.all(Array.from({ length: 50 }, async () => (await fetch(url + path)).text()));
  }
  assert.equal((await fetch(`${url}/livez`)).status, 200);
  daemon.kill("SIGTERM");
  assert.deepEqual(await ended, [0, null]);
});

test("a model's file that is cut short while it is in use ends the daemon with one line", async () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-"));
  const model = join(folder, "model.gguf");
  copyFileSync(process.env.QUIRE_MODEL, model);
  const server = await QuireServer.start(["--model", model], { model: null });
  after(() => server.kill());
  truncateSync(model, 4096);
  // Rows of the embedding are read from the file; those that are in memory already need not be.
  for (let i = 0; i < 50; ++i) {
    const prompt = Array.from({ length: 100 }, (_, at) => (i * 100 + at) % 500);
    if (await server.post("/v1/completions", { model: "model", prompt, max_tokens: 1 }).then(() => false, () => true)) break;
  }
  assert.deepEqual(await server.ended(), { code: 4, signal: null });
  const last = await server.logged((line) => line.startsWith("quire: "));
  assert.match(last, /model\.gguf: the file was cut short/);
});

test("a second SIGTERM cuts running requests with an error, and the exit code says so", async () => {
  const server = await start(["--drain.deadline", "10m"]);
  const streams = [];
  for (let i = 0; i < 8; ++i) streams.push(read(await server.post("/v1/completions", { ...kLong, max_tokens: 2000 })));
  server.signal("SIGTERM");
  server.signal("SIGINT");
  const results = await Promise.all(streams);
  const { code } = await server.ended();
  assert.equal(code, results.some(({ error }) => error) ? 3 : 0);
});

function quire(args, input = "") {
  return spawnSync(process.env.QUIRE_BINARY, args, { input, encoding: "utf8" });
}

// Exit 2 and, beside what the log tells, one line that matches.
function refused(result, pattern) {
  assert.equal(result.status, 2, result.stderr);
  const lines = result.stderr.trim().split("\n").filter((line) => !/^\d{4}-\S+ info /.test(line));
  assert.equal(lines.length, 1, result.stderr);
  assert.match(lines[0], pattern);
}

test("a bad configuration names file, line, key and the nearest valid one", () => {
  const file = join(mkdtempSync(join(tmpdir(), "quire-")), "bad.yaml");
  writeFileSync(file, "server:\n  port: 8080\nscheduler:\n  max_num_seq: 4\n");
  refused(quire(["serve", "--config", file]), /bad\.yaml:4.*scheduler\.max_num_seq.*max_num_seqs/);
  writeFileSync(file, "server:\n  port: many\n");
  refused(quire(["serve", "--config", file]), /bad\.yaml:2.*server\.port/);
  writeFileSync(file, "server:\n  port: 9000\n");
  const printed = quire(["serve", "--config", file, "--print-config", "--host", "0.0.0.0"]);
  assert.equal(printed.status, 0);
  assert.match(printed.stdout, /port: 9000/);
  assert.match(printed.stdout, /host: "?0\.0\.0\.0/);
  assert.equal(quire(["serve", "--config", file, "--check-config"]).status, 0);
});

test("a bad model is one line and exit 2", () => {
  refused(quire(["serve", "--port", "0", "--model", "/absent.gguf"]), /absent\.gguf/);
  const folder = mkdtempSync(join(tmpdir(), "quire-"));
  const whole = readFileSync(process.env.QUIRE_MODEL);
  for (const bytes of [0, 3, 24, 1000, whole.length - 1]) {
    const file = join(folder, `cut-${bytes}.gguf`);
    writeFileSync(file, whole.subarray(0, bytes));
    refused(quire(["inspect", file]), new RegExp(`cut-${bytes}\\.gguf`));
  }
});

test("a pool that can never fit is refused before anything is allocated", () => {
  refused(quire(["serve", "--port", "0", "--model", process.env.QUIRE_MODEL, "--kv-cache-memory", "900TiB"]), /memory|fit/i);
});

test("--check-config refuses what a start refuses, with the same line, and leaves nothing behind", () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-"));
  const path = (name) => join(folder, name);
  writeFileSync(path("text"), "no template {% if %}\n");
  writeFileSync(path("empty"), "");
  mkdirSync(path("folder"));
  assert.equal(spawnSync("mkfifo", [path("fifo")]).status, 0);
  // Without numbers, and without what they are compared with: the free memory of the machine changes meanwhile.
  const message = (result) => result.stderr.split("\n").filter((line) => line.startsWith("quire: ")).join("\n").replace(/\d+/g, "N").replace(" beside the loaded models", "");
  for (const flags of [
    ["--chat-template", path("absent")], ["--chat-template", path("folder")], ["--chat-template", path("fifo")],
    ["--chat-template", path("empty")], ["--chat-template", path("text")], ["--model.tool-format", "none-such"],
    ["--server.tls.certificate", path("absent"), "--server.tls.key", path("absent")], ["--server.tls.key", path("text")],
    ["--security.keys", `name=a,file=${path("fifo")}`], ["--config", path("fifo")],
    ["--kv-cache-memory", "900TiB"], ["--adapters", `a=${path("absent")}`], ["--model-draft", path("absent")],
    ["--host", "no-host"], ["--host", "192.0.2.1"], ["--server.admin-listen", "nowhere"],
    ["--server.unix-socket", path("text")], ["--server.unix-socket", path("no/socket")],
    ["--batches", "/proc/nope"], ["--server.slots.directory", path("text")], ["--tracing.endpoint", "nowhere"],
    ["--kv-cache.events.endpoint", "nowhere"], ["--kv-cache.events.endpoint", "tcp://*:0", "--kv-cache.events.replay-endpoint", "tcp://no-host:1"],
  ]) {
    const command = ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0", ...flags];
    const [checked, begun] = [quire([...command, "--check-config"]), quire(command)];
    assert.deepEqual([checked.status, begun.status], [2, 2], `${flags}\n${checked.stderr}${begun.stderr}`);
    assert.equal(message(checked), message(begun));
  }
  refused(quire(["serve", "--model", path("absent.gguf"), "--check-config"]), /absent\.gguf/);
  const good = quire(["serve", "--model", process.env.QUIRE_MODEL, "--check-config", "--batches", path("new/batches"),
    "--server.unix-socket", path("socket"), "--kv-cache.num-blocks", "64"]);
  assert.equal(good.status, 0, good.stderr);
  assert.deepEqual(readdirSync(folder).sort(), ["empty", "fifo", "folder", "text"]);
});
