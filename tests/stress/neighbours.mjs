// What a neighbour feels of each attack, on a daemon with its defaults: neighbours.mjs [--binary PATH] [--seconds N] [--scale N]
// [--only NAME] [--from ADDRESS]. A client asks short chats one after another, undisturbed and beside each attack. Printed is a table of the time
// to the first token, errors, the time of /livez and the most memory that the daemon had, each beside what it must be; the exit code is 1 where a
// must is missed. What memory must be follows from deploy/docs/security.md: what the daemon has at rest, the rows that the
// attack can fill at their defaults, and a tenth. A benchmark: it wants a machine to itself. The attackers run at a low priority and have an address of their own
// (--from 127.0.0.1: the neighbour's), for theirs are other machines.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import os from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { deflateSync } from "node:zlib";
import { png } from "../e2e/png.mjs";
import { QuireServer } from "../e2e/server_process.mjs";
import { other_answers, pause, RawClient } from "./raw_client.mjs";

const { values } = parseArgs({ options: { binary: { type: "string", default: process.env.QUIRE_BINARY },
  seconds: { type: "string", default: "5" }, scale: { type: "string", default: "10" }, only: { type: "string" },
  from: { type: "string", default: "127.0.0.2" }, attack: { type: "string" }, port: { type: "string" }, context: { type: "string" } } });
process.env.QUIRE_BINARY = values.binary;
process.env.QUIRE_MODEL ??= new URL("../../deploy/demo-model/quire-demo.gguf", import.meta.url).pathname;
const scale = Number(values.scale);
const kLarge = 15 << 20;
const kLiveMs = 100;
// MiB at the defaults: server.max_queued_bytes; server.text_threads, each
// with the values of a body of server.max_body_bytes; queue.max_queued_bytes; tables of grammars and what is prepared for them;
// server.max_unread_bytes; server.responses.max_bytes; what a thousand connections read ahead.
const kRows = { bodies: 256, read: 3 * (32 + 2 * 16), waiting: 256, grammars: 128 + 128, unread: 256, stored: 256, connections: 64,
  media: 512, decoding: 1400 };
const kSeeing = new URL("../../deploy/demo-model/seeing/quire-seeing.gguf", import.meta.url).pathname;
const kLargeBytes = Buffer.alloc(kLarge, "x");

const head = (path, framing) =>
  `POST ${path} HTTP/1.1\r\nHost: a\r\nx-api-key: mallory-secret\r\nContent-Type: application/json\r\n${framing}\r\n\r\n`;
const times = (count, make) => Array.from({ length: count }, (_, index) => make(index));
let number = 0;  // makes what is sent new each time

const attacker = (port) => new RawClient(port, values.from);

// A large body is made once: what the attacker pays for it is no part of the measurement.
const bodies = new Map();
function shared_body(name, make) {
  if (!bodies.has(name)) bodies.set(name, Buffer.from(JSON.stringify(make())));
  return bodies.get(name);
}
function post(port, path, body) {
  return attacker(port).send(head(path, `Content-Length: ${body.length}`)).send(body);
}
const json = (port, path, body) => post(port, path, Buffer.from(JSON.stringify(body)));

// Each alternative costs the compiler's automaton many states.
const costly_regex = (index) =>
  `(${times(40, (i) => `[a-z]{0,${40 + i}}[0-9]{0,${20 + (index % 40)}}x${i}y${index}`).join("|")}){1,5}`;

const lists = (port, count) => times(count, (index) =>
  json(port, "/v1/completions", { prompt: Array(1024).fill(`list ${index}`), max_tokens: 4 }));
const words = (bytes) => "word ".repeat(bytes / 5);
const long_prompts = (port, count, bytes) => times(count, () =>
  post(port, "/v1/completions", shared_body(`prompt ${bytes}`, () => ({ prompt: words(bytes), max_tokens: 1 }))));
// As many tokens as the model takes, others each time, so that none is in the cache.
const full_prompts = (port, count) => times(count, () =>
  json(port, "/v1/completions", { prompt: times(Number(values.context) - 8, (index) => 300 + ((++number + index) % 97)), max_tokens: 1 }));
// Asks for tokens or their text alone.
const kTexts = {
  "/tokenize": () => ({ prompt: "a b ".repeat(kLarge / 4), with_pieces: true }),
  "/detokenize": () => ({ tokens: Array(kLarge >> 2).fill(300) }),
  "/infill": () => ({ input_prefix: words(kLarge / 2), input_suffix: words(kLarge / 2), n_predict: 1 }),
  "/v1/messages/count_tokens": () => ({ messages: [{ role: "user", content: words(kLarge) }] }),
  "/v1/completions": () => ({ prompt: words(kLarge), truncate_prompt_tokens: 8, max_tokens: 1 }),
};
const texts = (port, count) => times(count, (index) => {
  const [path, make] = Object.entries(kTexts)[index % Object.keys(kTexts).length];
  return post(port, path, shared_body(path, make));
});
const schemas = (port, count) => times(count, () =>
  json(port, "/v1/completions", { prompt: "x", max_tokens: 1, guided_regex: costly_regex(++number) }));
const slow_reads = (port, count) => times(count, () => {
  const client = json(port, "/v1/completions", { prompt: "Once", max_tokens: 500, ignore_eos: true, stream: true });
  client.socket.pause();
  return client;
});
// Fields whose cost is paid in each step, as large as a body may be.
const biases = (port, count) => times(count, () => post(port, "/v1/completions", shared_body("biases", () =>
  ({ prompt: "Once", max_tokens: 64, ignore_eos: true, logit_bias: Array(kLarge >> 4).fill([300, 0.25]) }))));
const wrong_keys = (port, count) => times(count, (index) =>
  attacker(port).send(`GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: guess ${index}\r\n\r\n`.repeat(10)));
// What is not read of answers, by paths; several requests on one connection.
const unread = (port, count, requests) => times(count, (index) => {
  const client = attacker(port).send(requests[index % requests.length]);
  client.socket.pause();
  return client;
});
const get = (path) => `GET ${path} HTTP/1.1\r\nHost: a\r\nx-api-key: mallory-secret\r\n\r\n`;
const unread_texts = (port, count) => times(count, () => {
  const client = post(port, "/apply-template", shared_body("template", () => ({ messages: [{ role: "user", content: words(kLarge) }] })));
  client.socket.pause();
  return client;
});
// WebSockets: what a client sends is masked, here by zeros.
const kUpgrade = "GET /v1/responses HTTP/1.1\r\nHost: a\r\nx-api-key: mallory-secret\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
function socket_message(text) {
  const frame = Buffer.alloc(14);
  frame[0] = 0x81;
  frame[1] = 0x80 | 127;
  frame.writeBigUInt64BE(BigInt(text.length), 2);
  return Buffer.concat([frame, Buffer.from(text)]);
}
const sockets = (port, count, text) => times(count, () => {
  const client = attacker(port).send(kUpgrade);
  if (text) client.send(socket_message(text));
  client.socket.pause();
  return client;
});
const kEndless = JSON.stringify({ type: "response.create", input: "Once", max_output_tokens: 500 });
// Overlapping alternatives, each text of which has ever more readings.
const ambiguous = (port, count) => times(count, (index) => json(port, "/v1/completions", { prompt: "x", max_tokens: 200, ignore_eos: true,
  guided_grammar: `root ::= s\ns ::= s s | "a" | "aa" | "a" "a" "a" | "${"a".repeat(4 + (index % 5))}"` }));
const unknown_members = (port, count) => times(count, () => post(port, "/v1/chat/completions", shared_body("members", () =>
  ({ messages: [{ role: "user", content: "a" }], max_tokens: 1, ...Object.fromEntries(times(500_000, (index) => [`temperatur${index}`, 1])) }))));
// Large conversations, which fill what is stored.
const conversations = (port, count) => times(count, () => {
  const items = [{ role: "user", content: words(kLarge / 2) }];
  return post(port, "/v1/conversations", shared_body("items", () => ({ items }))).send(get("/v1/conversations/none/items"));
});
const aborts = (port, count) => times(count, (index) => {
  const client = json(port, "/v1/completions", { prompt: `Once ${++number}`, max_tokens: 500, stream: true });
  setTimeout(() => client.reset(), 20 + index);
  return client;
});

// Pictures: files that declare 10^9 pixels (a WebP file 2.7 * 10^8, the most of its format), 10,000 tiny ones, ones that are new each time.
const kBombs = {
  png: () => png(32000, 32000, deflateSync(Buffer.alloc(1 << 24))),
  jpeg: () => Buffer.concat([Buffer.from("ffd8ffc0001108fffe3c0003011100021101031101", "hex"), Buffer.alloc(1000)]),
  webp: () => Buffer.from("524946461600000057454250" + "5650384c0a000000" + "2fffffff0f0000000000", "hex"),
  gif: () => Buffer.from("474946383961ffff003c0000002c00000000ffff003c0002024401003b", "hex"),
};
const image = (kind, bytes) => ({ type: "image_url", image_url: { url: `data:image/${kind};base64,${bytes.toString("base64")}` } });
const look = (parts) => ({ messages: [{ role: "user", content: [...parts, { type: "text", text: "What is there?" }] }], max_tokens: 4 });
const bombs = (port, count) => times(count, (index) => {
  const [kind, make] = Object.entries(kBombs)[index % 4];
  return post(port, "/v1/chat/completions", shared_body(kind, () => look([image(kind, make())])));
});
const tiny_pictures = (port, count) => times(count, () => post(port, "/v1/chat/completions", shared_body("tiny", () =>
  look(Array(10_000).fill(image("png", png(1, 1, deflateSync(Buffer.alloc(4)))))))));
const pictures = (port, count, side) => times(count, () => {
  const rows = Buffer.alloc(side * (1 + 3 * side), ++number % 251);
  for (let row = 0; row < side; ++row) rows[row * (1 + 3 * side)] = 0;
  rows.writeUInt32BE(number, 1);
  return json(port, "/v1/chat/completions", look([image("png", png(side, side, deflateSync(rows, { level: 1 })))]));
});

// Each opens what it opens at once, and again until the attack is over; returns the clients to close. `with_keys`: the daemon has
// keys, and the attacker's has a quota. `is_quota`: the attacker keeps to it, and the other's wait may double and no more. `sees`: the model
// is the one that sees.
// `fills`: the rows of memory beside bodies.
const kAttacks = {
  declared_bodies: { fills: [], open: (port) => times(17 * scale, () =>
    attacker(port).send(head("/v1/completions", `Content-Length: ${16 << 20}`))) },
  unfinished_chunks: { fills: [], open: (port) => times(100 * scale, () => attacker(port)
    .send(`${head("/v1/completions", "Transfer-Encoding: chunked")}${kLarge.toString(16)}\r\n`).send(kLargeBytes)) },
  lists: { fills: ["waiting"], open: (port) => lists(port, 2 * scale) },
  long_prompts: { fills: ["read"], open: (port) => long_prompts(port, 8 * scale, kLarge) },
  texts: { fills: ["read"], open: (port) => texts(port, 8 * scale) },
  biases: { fills: ["read"], open: (port) => biases(port, 4 * scale) },
  costly_schemas: { fills: ["grammars"], open: (port) => schemas(port, 4 * scale) },
  unread_texts: { fills: ["read", "unread"], open: (port) => unread_texts(port, 4 * scale) },
  unread_documents: { fills: ["unread", "connections"], open: (port) => unread(port, 12 * scale, [get("/openapi.json").repeat(50)]) },
  unread_reports: { fills: ["unread", "connections"], open: (port) => unread(port, 12 * scale, [get("/metrics").repeat(50), get("/status").repeat(50), get("/v1/models").repeat(50)]) },
  unread_streams: { fills: ["unread", "waiting", "connections"], open: (port) => slow_reads(port, 12 * scale) },
  idle_sockets: { fills: ["connections"], open: (port) => sockets(port, 60 * scale) },
  unread_sockets: { fills: ["unread", "waiting", "connections"], open: (port) => sockets(port, 12 * scale, kEndless) },
  ambiguous_grammars: { fills: ["grammars"], open: (port) => ambiguous(port, 2 * scale) },
  unknown_members: { fills: ["read"], open: (port) => unknown_members(port, scale) },
  conversations: { fills: ["read", "stored"], open: (port) => conversations(port, 4 * scale) },
  wrong_keys: { with_keys: true, fills: [], open: (port) => wrong_keys(port, 10 * scale) },
  tenant: { with_keys: true, is_quota: true, fills: ["read", "grammars"], open: (port) => [...lists(port, scale / 2), ...long_prompts(port, scale / 2, 600_000),
    ...full_prompts(port, scale / 2), ...schemas(port, scale / 2), ...slow_reads(port, scale / 2), ...aborts(port, scale)] },
  bombs: { sees: true, fills: ["read", "media"], open: (port) => bombs(port, 8 * scale) },
  tiny_pictures: { sees: true, fills: ["read", "media"], open: (port) => tiny_pictures(port, scale) },
  large_pictures: { sees: true, fills: ["read", "media", "decoding"], open: (port) => pictures(port, scale, 4000) },
  seeing_tenant: { sees: true, with_keys: true, is_quota: true, fills: ["read", "media"], open: (port) => pictures(port, scale, 640) },
};

// The attacker's process: until it is ended.
async function besiege(attack, port) {
  os.setPriority(Math.min(19, os.getPriority() + 12));
  for (let first = true; ; first = false) {
    const clients = attack.open(port);
    if (first) await other_answers(port).then(() => console.log("begun"));
    await Promise.race([Promise.all(clients.map((client) => client.ended)), pause(1000 * Number(values.seconds))]);
    for (const client of clients) client.close();
  }
}

function first_token(url, agent) {
  return new Promise((resolve) => {
    const began = performance.now();
    const request = http.request(`${url}/v1/chat/completions`, { method: "POST", agent,
      headers: { "Content-Type": "application/json", "x-api-key": "alice-secret" } }, (response) => {
      let time = null;
      response.on("data", () => { time ??= performance.now() - began; });
      response.on("end", () => resolve({ time, status: response.statusCode }));
    });
    request.on("error", () => resolve({ time: null, status: 0 }));
    request.end(JSON.stringify({ messages: [{ role: "user", content: "Hello there" }], max_tokens: 4, stream: true }));
  });
}

function live(url, agent) {
  return new Promise((resolve) => {
    const began = performance.now();
    http.get(`${url}/livez`, { agent }, (response) => response.resume().on("end", () => resolve(performance.now() - began)))
      .on("error", () => resolve(Infinity));
  });
}

// Sorted: how long each of many questions took while the promise was not settled.
async function ask_live(url, until) {
  const agent = new http.Agent({ keepAlive: true });
  const waits = [];
  let over = false;
  until.finally(() => { over = true; });
  while (!over) {
    waits.push(await live(url, agent));
    await pause(20);
  }
  agent.destroy();
  return waits.sort((a, b) => a - b);
}

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

async function ask_chats(url) {
  const agent = new http.Agent({ keepAlive: true });
  const waits = [];
  let errors = 0;
  for (const end = Date.now() + 1000 * Number(values.seconds); Date.now() < end; ) {
    const { time, status } = await first_token(url, agent);
    if (status === 200) waits.push(time);
    else ++errors;
  }
  agent.destroy();
  waits.sort((a, b) => a - b);
  return { count: waits.length, errors, p50: at(waits, 0.5), p99: at(waits, 0.99) };
}

const memory_mib = (pid, what) => Number(new RegExp(`${what}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

function config_of(attack, folder) {
  if (!attack.with_keys) return [];
  const key = (name, quota = "") =>
    `    - {name: ${name}, sha256: ${createHash("sha256").update(`${name}-secret`).digest("hex")}${quota}}\n`;
  const file = join(folder, "quire.yaml");
  writeFileSync(file, `security:\n  keys:\n${key("alice")}${key("mallory", ", max_concurrent: 16")}`);
  return ["--config", file];
}

async function context_of(server) {
  const { data } = await (await fetch(`${server.url}/v1/models`, { headers: { "x-api-key": "alice-secret" } })).json();
  return data[0].max_model_len;
}

async function measure(name, attack, folder) {
  const server = await QuireServer.start(config_of(attack, folder), attack.sees ? { model: kSeeing } : {});
  try {
    const alone = await ask_chats(server.url);
    const memory_bound = 1.1 * ["bodies", ...attack.fills].reduce((sum, row) => sum + kRows[row], memory_mib(server.pid, "VmRSS"));
    const besieger = spawn(process.execPath, [process.argv[1], "--attack", name, "--port", new URL(server.url).port,
      "--scale", values.scale, "--from", values.from, "--seconds", values.seconds, "--context", String(await context_of(server))], { stdio: ["inherit", "pipe", "inherit"] });
    await once(besieger.stdout, "data");
    const chats = ask_chats(server.url);
    const [beside, waits] = await Promise.all([chats, ask_live(server.url, chats)]);
    besieger.kill("SIGKILL");
    return { alone, beside, live: at(waits, 0.99), memory: memory_mib(server.pid, "VmHWM"), memory_bound };
  } finally {
    server.kill();
  }
}

if (values.attack) await besiege(kAttacks[values.attack], Number(values.port));

const folder = mkdtempSync(join(os.tmpdir(), "quire-neighbours-"));
let missed = 0;
console.log(`attack x ${scale} | chats, errors | first token alone p50, p99 ms | beside p50, p99 ms | must p99 | /livez p99 ms, <= 100 | peak MiB | must | `);
for (const [name, attack] of Object.entries(kAttacks)) {
  if (values.only && values.only !== name) continue;
  const { alone, beside, live: live_p99, memory, memory_bound } = await measure(name, attack, folder);
  const p99_bound = 2 * alone.p99 + (attack.is_quota ? 0 : 50);
  const holds = beside.errors === 0 && beside.p99 <= p99_bound && live_p99 <= kLiveMs && memory <= memory_bound;
  missed += holds ? 0 : 1;
  const show = (...numbers) => numbers.map((each) => each.toFixed(1)).join(", ");
  console.log(`${name} | ${beside.count}, ${beside.errors} | ${show(alone.p50, alone.p99)} | ${show(beside.p50, beside.p99)} | ` +
    `<= ${show(p99_bound)} | ${show(live_p99)} | ${memory.toFixed(0)} | <= ${memory_bound.toFixed(0)} | ${holds ? "holds" : "MISSED"}`);
}
rmSync(folder, { recursive: true });
process.exit(missed > 0 ? 1 : 0);
