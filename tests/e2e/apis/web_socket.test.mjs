// The Responses API over a WebSocket, through the package `openai` and through `ws` alone, and with hostile messages.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import WebSocket from "ws";
import { assert_conforms, no_schemas } from "./openai_schema.mjs";
import { QuireServer } from "../server_process.mjs";

let server;
let url;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "quire-socket-"));
  writeFileSync(join(folder, "quire.yaml"), "server:\n  max_body_bytes: 64KiB\n");
  server = await QuireServer.start(["--config", join(folder, "quire.yaml")]);
  url = `${server.url.replace("http", "ws")}/v1/responses`;
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const greedy = { type: "response.create", model: "quire-demo", temperature: 0 };
const question = "What is a KV block?";

// The events of one turn, up to the one that ends it.
async function turn(socket, message) {
  const events = [];
  const over = new Promise((resolve, reject) => {
    const take = (data, is_binary) => {
      assert.equal(is_binary, false);
      const event = JSON.parse(data);
      events.push(event);
      if (!/^(error|response\.(completed|incomplete|failed))$/.test(event.type)) return;
      socket.off("message", take);
      resolve();
    };
    socket.on("message", take);
    socket.once("close", (code) => reject(new Error(`closed with ${code}`)));
  });
  socket.send(typeof message === "string" ? message : JSON.stringify(message));
  await over;
  return events;
}

async function opened(options = {}) {
  const socket = new WebSocket(url, options);
  await once(socket, "open");
  return socket;
}

async function closed(socket) {
  const [code] = await once(socket, "close");
  return code;
}

test("the package's own client has turns that continue each other", async () => {
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  const socket = new ResponsesWS(client);
  let first = null;
  let text = "";
  for await (const event of socket) {
    if (event.type === "open") socket.send({ ...greedy, input: question, max_output_tokens: 32, store: false });
    if (event.type !== "message") continue;
    if (!no_schemas) assert_conforms("ResponseStreamEvent", event.message);
    if (event.message.type === "response.output_text.delta" && first === null) text += event.message.delta;
    if (!/^response\.(completed|incomplete)$/.test(event.message.type)) continue;
    const { response } = event.message;
    if (first !== null) {
      assert.equal(response.previous_response_id, first.id);
      assert.ok(response.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens - 2);
      break;
    }
    first = response;
    assert.equal(response.output[0].content[0].text, text);
    socket.send({ ...greedy, input: "And a page?", previous_response_id: first.id, max_output_tokens: 8, store: false });
  }
  socket.close();
  // What is not stored is the connection's alone.
  const other = await opened();
  const [refusal] = await turn(other, { ...greedy, input: "x", previous_response_id: first.id });
  assert.equal(refusal.type, "error");
  assert.equal(refusal.error.code, "previous_response_not_found");
  other.terminate();
});

test("messages that wait are answered in their order, with the texts that HTTP brings", async () => {
  const socket = await opened();
  const ask = { ...greedy, input: question, max_output_tokens: 24 };
  const { output } = await (await server.post("/v1/responses", { ...ask, type: undefined })).json();
  const events = [];
  const over = new Promise((resolve) => socket.on("message", (data) => {
    events.push(JSON.parse(data));
    if (events.filter((event) => /^response\.(completed|incomplete)$/.test(event.type)).length === 3) resolve();
  }));
  for (const input of [question, "Hello", question]) socket.send(JSON.stringify({ ...ask, input }));
  await over;
  const turns = [];
  for (const event of events) {
    if (event.type === "response.created") turns.push([]);
    turns.at(-1).push(event);
  }
  assert.equal(turns.length, 3);
  for (const each of turns) assert.deepEqual(each.map((event) => event.sequence_number), each.map((_, i) => i));
  const texts = turns.map((each) => each.at(-1).response.output[0].content[0].text);
  assert.equal(texts[0], output[0].content[0].text);
  assert.equal(texts[2], texts[0]);
  socket.close();
  assert.equal(await closed(socket), 1000);
});

test("what a message gets wrong is an error event, and the connection continues", async () => {
  const socket = await opened();
  for (const [message, code] of [
    ["{", "invalid_json"], ["[]", "invalid_type"], [JSON.stringify({ type: "response.steer" }), "invalid_value"],
    [JSON.stringify({ model: "quire-demo", input: "x" }), "missing_required_parameter"],
    [JSON.stringify({ ...greedy, model: "no such", input: "x" }), "model_not_found"],
    [JSON.stringify({ ...greedy, input: "x", temperature: "hot" }), "invalid_type"],
    [JSON.stringify({ ...greedy, input: "word ".repeat(5000) }), "context_length_exceeded"],
  ]) {
    const events = await turn(socket, message);
    assert.equal(events.length, 1, message.slice(0, 80));
    assert.equal(events[0].type, "error");
    assert.equal(events[0].error.code, code, message.slice(0, 80));
    assert.ok(events[0].status >= 400);
  }
  // Warmed up: the conversation is there for the next message, and nothing was generated.
  const warm = await turn(socket, { ...greedy, input: question, generate: false, store: false });
  assert.deepEqual(warm.at(-1).response.output, []);
  const next = await turn(socket, { ...greedy, input: "Answer.", previous_response_id: warm.at(-1).response.id, max_output_tokens: 8, ignore_eos: true });
  assert.equal(next.at(-1).response.usage.output_tokens, 8);
  socket.terminate();
});

test("a client that leaves ends its request", async () => {
  const socket = await opened();
  socket.send(JSON.stringify({ ...greedy, input: question, max_output_tokens: 1500, ignore_eos: true }));
  await once(socket, "message");
  socket.terminate();
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
});

test("what is no message of the protocol closes the connection by its code", async () => {
  const binary = await opened();
  binary.send(Buffer.from("{}"));
  assert.equal(await closed(binary), 1003);
  const large = await opened();
  large.on("error", () => {});
  large.send("x".repeat(70_000));
  assert.equal(await closed(large), 1009);
});

test("pages of other sites, wrong versions and plain requests are refused", async () => {
  const status_of = async (options) => {
    const socket = new WebSocket(url, options);
    socket.on("error", () => {});
    const [, response] = await once(socket, "unexpected-response");
    return response.statusCode;
  };
  assert.equal(await status_of({ origin: "https://evil.example" }), 403);
  assert.equal(await status_of({ protocolVersion: 8 }), 426);
  assert.equal((await fetch(`${server.url}/v1/responses`)).status, 426);
  const elsewhere = new WebSocket(`${url.replace("/v1/responses", "/v1/models")}`);
  elsewhere.on("error", () => {});
  const [, response] = await once(elsewhere, "unexpected-response");
  assert.equal(response.statusCode, 400);
});

// Small, seeded: the same bytes each time.
function random(seed) {
  let state = seed >>> 0;
  return (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 4294967296) * bound);
  };
}

async function upgraded(there = server) {
  const { hostname, port } = new URL(there.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.on("error", () => {});
  socket.write(`GET /v1/responses HTTP/1.1\r\nHost: ${hostname}:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  const [head] = await once(socket, "data");
  assert.match(head.toString("latin1"), /^HTTP\/1\.1 101 [^]*s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=/);
  return socket;
}

test("random frames end their own connection, and no other", async () => {
  const bystander = await opened();
  const events = turn(bystander, { ...greedy, input: question, max_output_tokens: 400, ignore_eos: true });
  const next = random(7);
  for (let i = 0; i < 200; ++i) {
    const socket = await upgraded();
    const over = new Promise((resolve) => socket.once("close", resolve));
    const bytes = Buffer.from(Array.from({ length: 1 + next(300) }, () => next(256)));
    // Mostly frames that look right for their first bytes: a text or a control frame, masked.
    if (next(3) > 0) bytes[0] = [0x81, 0x01, 0x80, 0x88, 0x89, 0x8a][next(6)];
    if (bytes.length > 1 && next(3) > 0) bytes[1] = 0x80 | next(126);
    socket.resume();
    socket.end(bytes);
    await over;
  }
  const ended = await events;
  assert.match(ended.at(-1).type, /^response\.(completed|incomplete)$/);
  bystander.terminate();
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
});

test("a drain closes open connections with 1001, after what they are being answered", async () => {
  const other = await QuireServer.start();
  const there = `${other.url.replace("http", "ws")}/v1/responses`;
  const idle = new WebSocket(there);
  const busy = new WebSocket(there);
  await Promise.all([once(idle, "open"), once(busy, "open")]);
  const answered = turn(busy, { ...greedy, input: question, max_output_tokens: 300, ignore_eos: true });
  await once(busy, "message");
  const codes = Promise.all([closed(idle), closed(busy)]);
  const stopped = other.stop();
  assert.match((await answered).at(-1).type, /^response\.(completed|incomplete)$/);
  assert.deepEqual(await codes, [1001, 1001]);
  await stopped;
});

// A server of its own with these lines of configuration.
async function start_with(lines, name) {
  const config = join(folder, name);
  writeFileSync(config, lines, { mode: 0o600 });
  const other = await QuireServer.start(["--config", config]);
  after(() => other.kill());
  return other;
}

async function open_at(other, options = {}) {
  const socket = new WebSocket(`${other.url.replace("http", "ws")}/v1/responses`, options);
  await once(socket, "open");
  return socket;
}

function resident_bytes(other) {
  return 1024 * Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${other.pid}/status`, "utf8"))[1]);
}

test("a client that does not read is cut off, and what it did not read is not kept for it", async () => {
  const other = await start_with("server: {timeout: {write: 1s}}\n", "slow.yaml");
  const reader = await open_at(other);
  await turn(reader, { ...greedy, input: question, max_output_tokens: 8 });
  const before = resident_bytes(other);
  // Each answer repeats the client's labels three times: 24 KiB to be read.
  const labels = Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`label${i}`, "x".repeat(500)]));
  const message = JSON.stringify({ ...greedy, input: "x", max_output_tokens: 1, metadata: labels, store: false });
  const slow = await Promise.all(Array.from({ length: 4 }, async () => {
    const socket = await open_at(other);
    socket.on("error", () => {});
    socket.pause();
    for (let i = 0; i < 1000; ++i) socket.send(message);
    return socket;
  }));
  // One connection is the reader's, one the metrics' own.
  await other.metric_becomes("quire:http_connections", (value) => value <= 2);
  assert.ok(resident_bytes(other) - before < 64 * 1024 * 1024, "what was sent to them is not held");
  const events = await turn(reader, { ...greedy, input: question, max_output_tokens: 8 });
  assert.match(events.at(-1).type, /^response\.(completed|incomplete)$/);
  for (const socket of slow) socket.terminate();
  reader.close();
  await other.stop();
});

test("a connection whose client answers no ping is closed; one that only has nothing to say stays", async () => {
  const other = await start_with("server: {timeout: {idle: 400ms}}\n", "idle.yaml");
  const quiet = await open_at(other);
  const gone = await upgraded(other);
  const pinged = once(quiet, "ping");
  gone.resume();
  await once(gone, "close");
  await pinged;
  const events = await turn(quiet, { ...greedy, input: question, max_output_tokens: 4 });
  assert.match(events.at(-1).type, /^response\.(completed|incomplete)$/);
  quiet.close();
  await other.stop();
});

test("a connection that was open for its longest time refuses the next message, and is closed", async () => {
  assert.match(readFileSync(join(process.env.QUIRE_SOURCE, "config/quire.yaml"), "utf8"), /^ {4}socket: 3600s$/m);
  const other = await start_with("server: {timeout: {socket: 1ms}}\n", "age.yaml");
  const socket = await open_at(other);
  const over = closed(socket);
  let last = null;
  while (last?.type !== "error") last = (await turn(socket, { ...greedy, input: "x", max_output_tokens: 1 })).at(-1);
  assert.equal(last.error.code, "websocket_connection_limit_reached");
  assert.equal(await over, 1000);
  await other.stop();
});

test("a reload that replaces or removes a key closes its connections with 1008, and no others", async () => {
  const keys = (list) => `security:\n  keys:\n${list.map(([name, key]) => `    - {name: ${name}, sha256: ${sha256(key)}}\n`).join("")}`;
  const other = await start_with(keys([["alice", "old"], ["bob", "bob"], ["carol", "carol"]]), "rotated.yaml");
  const [alice, bob, carol] = await Promise.all(["old", "bob", "carol"].map((key) =>
    open_at(other, { headers: { authorization: `Bearer ${key}` } })));
  const codes = Promise.all([closed(alice), closed(carol)]);
  writeFileSync(join(folder, "rotated.yaml"), keys([["alice", "new"], ["bob", "bob"]]), { mode: 0o600 });
  other.signal("SIGHUP");
  assert.deepEqual(await codes, [1008, 1008]);
  const events = await turn(bob, { ...greedy, input: question, max_output_tokens: 4 });
  assert.match(events.at(-1).type, /^response\.(completed|incomplete)$/);
  bob.close();
  await other.stop();
});
