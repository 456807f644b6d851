// Peak memory of a daemon with a real model's shape, from its start through a full batch; and a daemon whose address space
// ends while clients come.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const kMiB = 1 << 20;
const kPool = 64 * kMiB;
const kBesides = 300e6;

const folder = mkdtempSync(join(tmpdir(), "quire-memory-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function status_bytes(pid, name) {
  return 1024 * Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
}

const peak_bytes = (pid) => status_bytes(pid, "VmHWM");

test("memory stays within weights, KV pool and 300 MB, from loading through 32 streams behind long prompts", async () => {
  const model = join(folder, "model.gguf");
  execFileSync(process.env.QUIRE_BINARY, ["synth", "--shape", "qwen2.5-0.5b", "--type", "Q8_0", model], { stdio: "ignore" });
  const server = await QuireServer.start(["--kv-cache-memory", `${kPool / kMiB}MiB`, "--max-num-seqs", "32"], { model });
  try {
    const weights = 1.03 * statSync(model).size;  // packed for any level
    assert.ok(peak_bytes(server.pid) > 0.5 * weights);
    assert.ok(peak_bytes(server.pid) < weights + kPool + kBesides, `${peak_bytes(server.pid)} bytes after loading`);
    const answers = await Promise.all(Array.from({ length: 32 }, async (_, number) => {
      const prompt = Array.from({ length: number === 0 ? 600 : 20 }, (_unused, i) => 1000 + 37 * number + i);
      const body = JSON.stringify({ model: "model", prompt, max_tokens: 4, ignore_eos: true, logprobs: 5 });
      const answer = await fetch(`${server.url}/v1/completions`, {
        method: "POST", headers: { "content-type": "application/json" }, body });
      return { status: answer.status, tokens: (await answer.json()).usage?.completion_tokens };
    }));
    for (const { status, tokens } of answers) assert.deepEqual([status, tokens], [200, 4]);
    assert.ok(peak_bytes(server.pid) < weights + kPool + kBesides, `${peak_bytes(server.pid)} bytes at the peak`);
    await server.stop();
  } finally {
    server.kill();
  }
});

test("a daemon that rests returns the memory of its load to the system", async () => {
  const server = await QuireServer.start();
  try {
    await server.post("/v1/completions", { prompt: "a", max_tokens: 1 });
    const before = status_bytes(server.pid, "VmRSS");
    // Many small values, and buffers below the size from which on each is mapped by itself.
    const messages = Array.from({ length: 3000 }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: "x".repeat(30) }));
    for (let round = 0; round < 4; ++round) {
      await Promise.all(Array.from({ length: 32 }, () => server.post("/apply-template", { messages }).then((answer) => answer.text())));
    }
    const grown = peak_bytes(server.pid) - before;
    assert.ok(grown > 10 * kMiB, `${grown} bytes of load`);
    const deadline = Date.now() + 60_000;
    while (status_bytes(server.pid, "VmRSS") > before + grown / 2) {
      assert.ok(Date.now() < deadline, `${status_bytes(server.pid, "VmRSS") - before} of ${grown} bytes are kept`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await server.stop();
  } finally {
    server.kill();
  }
});

// Bytes that take memory of every kind: a head that never ends, a body that stops half way, a stream, a large document.
function burden(number) {
  const host = "Host: a\r\n";
  const body = JSON.stringify({ prompt: "x ".repeat(800), stream: true, max_tokens: 1000, ignore_eos: true });
  const post = (length) =>
    `POST /v1/completions HTTP/1.1\r\n${host}Content-Type: application/json\r\nX-Request-Id: q${number}\r\nContent-Length: ${length}\r\n\r\n`;
  return [
    `GET /v1/models HTTP/1.1\r\n${host}X-A: ${"y".repeat(25_000)}`,
    post(1 << 20) + "z".repeat(200_000),
    post(body.length) + body,
    `GET /openapi.json HTTP/1.1\r\n${host}\r\n`,
  ][number % 4];
}

// Resolves with the event, or when the socket closes: a refused or reset connection is as good as an answered one.
function comes(socket, event) {
  return new Promise((resolve) => socket.once(event, resolve).once("close", resolve));
}

function limit_address_space(pid, bytes) {
  execFileSync("prlimit", ["--pid", String(pid), `--as=${bytes ?? "unlimited"}:unlimited`]);
}

// Resolves once the daemon answers: it closes a connection for which memory is refused.
async function accepts(server) {
  while (!(await fetch(`${server.url}/livez`, { signal: AbortSignal.timeout(5000) }).then((answer) => answer.ok, () => false))) {
    assert.match(readFileSync(`/proc/${server.pid}/status`, "utf8"), /^State:\s+[RSD]/m, "the daemon lives");
  }
}

for (const spare of [100, 60, 40, 20, 8]) {
  test(`a daemon whose address space ends after ${spare} MiB more fails requests and lives`, async () => {
    const server = await QuireServer.start(["--server.resume.window", "20s", "--kv-cache.num-blocks", "2000"]);
    const sockets = [];
    try {
      limit_address_space(server.pid, status_bytes(server.pid, "VmSize") + spare * kMiB);
      const port = Number(new URL(server.url).port);
      const answered = [];
      for (let i = 0; i < 1500; ++i) {
        const socket = net.connect(port, "127.0.0.1");
        socket.on("error", () => {}).resume();
        answered.push(comes(socket, "data"));
        const connected = comes(socket, "connect");
        sockets.push(socket);
        socket.write(burden(i));
        if (i % 50 === 49) await connected;
      }
      await Promise.race(answered.slice(-2));
      for (const socket of sockets) socket.destroy();
      limit_address_space(server.pid);
      await accepts(server);
      await server.metric_becomes("vllm:num_requests_running", (count) => count === 0);
      const answer = await server.post("/v1/completions", { prompt: "a", max_tokens: 2 });
      assert.equal(answer.status, 200);
      await server.stop();
    } finally {
      for (const socket of sockets) socket.destroy();
      server.kill();
    }
  });
}
