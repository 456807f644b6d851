// What a neighbour feels of each attack on a daemon with its defaults: neighbours.mjs [--binary PATH] [--seconds N] [--scale N].
// A client asks short chats one after another, undisturbed and beside each attack; printed are the median and the 99th percentile of
// the time to the first token, their ratio, errors, and the most memory the daemon had. Nothing is asserted: a benchmark.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import { parseArgs, promisify } from "node:util";
import { QuireServer } from "../e2e/server_process.mjs";
import { pause, RawClient } from "./raw_client.mjs";

const { values } = parseArgs({ options: { binary: { type: "string", default: process.env.QUIRE_BINARY },
  seconds: { type: "string", default: "5" }, scale: { type: "string", default: "10" }, measure: { type: "string" } } });
process.env.QUIRE_BINARY = values.binary;
process.env.QUIRE_MODEL ??= new URL("../../deploy/demo-model/quire-demo.gguf", import.meta.url).pathname;
const scale = Number(values.scale);
const kLarge = 15 << 20;

const head = (path, framing) => `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${framing}\r\n\r\n`;
const post = (path, body) => head(path, `Content-Length: ${Buffer.byteLength(body)}`) + body;

// Each opens what it opens at once and again until it is told to stop; returns the clients to close.
const kAttacks = {
  declared_bodies: (port) => Array.from({ length: 17 * scale }, () =>
    new RawClient(port).send(head("/v1/completions", `Content-Length: ${16 << 20}`))),
  unfinished_chunks: (port) => Array.from({ length: 10 * scale }, () => new RawClient(port).send(
    `${head("/v1/completions", "Transfer-Encoding: chunked")}${kLarge.toString(16)}\r\n${"x".repeat(kLarge)}`)),
  lists: (port) => Array.from({ length: 2 * scale }, (_, index) => new RawClient(port).send(
    post("/v1/completions", JSON.stringify({ prompt: Array(1024).fill(`list ${index}`), max_tokens: 4 })))),
  long_prompts: (port) => Array.from({ length: 8 * scale }, () => new RawClient(port).send(
    post("/v1/completions", JSON.stringify({ prompt: "word ".repeat(3 << 20), max_tokens: 1 })))),
  costly_schemas: (port) => Array.from({ length: 4 * scale }, (_, index) => new RawClient(port).send(post("/v1/completions", JSON.stringify({
    prompt: "x", max_tokens: 1, guided_regex: `(${Array.from({ length: 40 }, (_, i) => `[a-z]{0,${40 + i}}[0-9]{0,${20 + index}}x${i}`).join("|")}){1,50}` })))),
};

function first_token(url, agent) {
  return new Promise((resolve) => {
    const began = performance.now();
    const request = http.request(`${url}/v1/chat/completions`, { method: "POST", agent, headers: { "Content-Type": "application/json" } }, (response) => {
      let time = null;
      response.on("data", () => { time ??= performance.now() - began; });
      response.on("end", () => resolve({ time, status: response.statusCode }));
    });
    request.on("error", () => resolve({ time: null, status: 0 }));
    request.end(JSON.stringify({ messages: [{ role: "user", content: "Hello there" }], max_tokens: 4, stream: true }));
  });
}

const peak_mib = (pid) => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;
const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

// In a process of its own: the attackers' is busy with what they send.
async function measure(server) {
  const { stdout } = await promisify(execFile)(process.execPath, [process.argv[1], "--measure", server.url, "--seconds", values.seconds]);
  return JSON.parse(stdout);
}

async function ask_chats(url) {
  const agent = new http.Agent({ keepAlive: true });
  const times = [];
  let errors = 0;
  for (const end = Date.now() + 1000 * Number(values.seconds); Date.now() < end; ) {
    const { time, status } = await first_token(url, agent);
    if (status === 200) times.push(time);
    else ++errors;
  }
  agent.destroy();
  times.sort((a, b) => a - b);
  return { count: times.length, errors, p50: at(times, 0.5), p99: at(times, 0.99) };
}

if (values.measure) {
  console.log(JSON.stringify(await ask_chats(values.measure)));
  process.exit(0);
}

const show = ({ count, errors, p50, p99 }) => `${count} chats, ${errors} errors, first token ${p50.toFixed(1)} ms median, ${p99.toFixed(1)} ms p99`;
for (const [name, attack] of Object.entries(kAttacks)) {
  const server = await QuireServer.start([]);
  const port = Number(new URL(server.url).port);
  const alone = await measure(server);
  let over = false;
  let clients = [];
  const siege = (async () => {
    while (!over) {
      clients = attack(port);
      await Promise.race([Promise.all(clients.map((client) => client.ended)), pause(1000 * Number(values.seconds))]);
      for (const client of clients) client.close();
    }
  })();
  const beside = await measure(server);
  over = true;
  for (const client of clients) client.close();
  await siege;
  console.log(`${name} x ${scale}: ${show(beside)}; alone ${show(alone)}; p99 x ${(beside.p99 / alone.p99).toFixed(1)}; at most ${peak_mib(server.pid).toFixed(0)} MiB`);
  server.kill();
}
process.exit(0);
