// Reload, access log and engine trace of the real daemon.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const folder = mkdtempSync(join(tmpdir(), "quire-"));
const file = join(folder, "quire.yaml");
const key = (name, more = "") => `    - {name: ${name}, sha256: ${sha256(`${name}-secret`)}${more}}\n`;
const write = (keys, more = "") => writeFileSync(file, `log: {format: json}\nsecurity:\n  keys:\n${keys}${more}`);
let server;
let traced_steps;  // the file of a trace

before(async () => {
  write(key("root", ", admin: true") + key("alice"));
  // The ready line is searched as text: it is part of the JSON's message.
  server = await QuireServer.start(["--config", file]);
});
after(() => server.stop());

const ask = (secret, options = {}) => server.post("/v1/completions", {
  prompt: "Once upon a time", max_tokens: 3, ...options,
}, { headers: { "Content-Type": "application/json", Authorization: `Bearer ${secret}`, "X-Request-Id": options.user ?? "a" } });
const admin = (path) => fetch(server.url + path, { method: "POST", headers: { "x-api-key": "root-secret" } });

// The `count`th line that is wanted, read.
const logged = async (wanted, count = 1) => JSON.parse(await server.logged((line) => wanted(JSON.parse(line)), count));

test("a request is one line of JSON with its key, tokens and times", async () => {
  const response = await ask("alice-secret", { user: "seen-in-the-log" });
  assert.equal(response.status, 200);
  const line = await logged((each) => each.request_id === "seen-in-the-log");
  assert.equal(line.message, "request");
  assert.equal(line.key, "alice");
  assert.equal(line.path, "/v1/completions");
  assert.equal(line.status, 200);
  assert.equal(line.generated_tokens, 3);
  assert.equal(line.finish, "length");
  assert.ok(line.prompt_tokens > 0 && line.prefill_ms > 0 && line.total_ms >= line.decode_ms);
});

test("what is refused is logged with its reason, and a head that is none without a path", async () => {
  assert.equal((await ask("unknown", { user: "unknown-key" })).status, 401);
  assert.equal((await logged((each) => each.request_id === "unknown-key")).error, "invalid_api_key");
  const socket = net.connect(Number(new URL(server.url).port), "127.0.0.1");
  socket.end("GET /\x1b[31mred HTTP/1.1\r\nHost: a\r\n\r\n");
  let answer = "";
  for await (const bytes of socket) answer += bytes;
  assert.match(answer, /^HTTP\/1\.1 400 /);
  const line = await logged((each) => each.request_id === /X-Request-Id: (\S+)/.exec(answer)[1]);
  assert.equal(line.status, 400);
  assert.equal(line.path, "");
  assert.equal(line.error, JSON.parse(answer.slice(answer.indexOf("\r\n\r\n"))).error.code);
  assert.equal(line.peer, "127.0.0.1");
});

test("a reload brings new keys and takes old ones away, or changes nothing", async () => {
  assert.equal((await ask("bob-secret")).status, 401);
  write(key("root", ", admin: true") + key("bob"), "model:\n  alias: [renamed, other]\n");
  const reloaded = await admin("/admin/reload");
  assert.equal(reloaded.status, 200);
  assert.deepEqual((await reloaded.json()).changed, ["model.alias", "security.keys"]);
  const answer = await ask("bob-secret", { model: "other" });
  assert.equal((await answer.json()).model, "renamed");
  assert.equal((await ask("alice-secret")).status, 401);
  assert.ok(!server.log.join("\n").includes(sha256("bob-secret")), "not even a key's hash is logged");

  // Not one of these may take effect, in part or as a whole.
  const refused = async (keys, more, pattern) => {
    write(keys, more);
    const response = await admin("/admin/reload");
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, pattern);
    assert.equal((await ask("bob-secret", { model: "renamed" })).status, 200);
    assert.equal((await ask("alice-secret")).status, 401);
  };
  await refused(key("root", ", admin: true") + key("alice"), "kv_cache: {block_size: 32}\nserver: {threads: 3}\n",
    /restart.*server\.threads, kv_cache\.block_size/);
  await refused(key("root", ", admin: true") + key("alice"), "sever: {}\n", /quire\.yaml:6: unknown key 'sever'/);
  await refused(key("root", ", admin: true") + key("alice"), "server: {tls: {certificate: /nowhere, key: /nowhere}}\n",
    /server\.tls\.certificate/);
  await refused(key("root", ", admin: true") + key("alice"), `model: {chat_template: ${file}.absent}\n`, /chat_template/);

  // As a file looks that is being written in place.
  for (const [cut, pattern] of [["", /sets nothing any more/], ["security:\n  ke", /quire\.yaml/], ["log: {level: info}", /has no line break/],
    ["log: {level: info}\n", /'security\.keys' is missing/], ["security: {keys: []}\nlog: {format: json}\n", /security\.keys would be empty/]]) {
    writeFileSync(file, cut);
    const response = await admin("/admin/reload");
    assert.equal(response.status, 400);
    assert.match((await response.json()).error.message, pattern);
    assert.equal((await ask("none")).status, 401);
  }

  write(key("root", ", admin: true") + key("alice"));
  server.signal("SIGHUP");
  await logged((each) => each.message.startsWith("reloaded: 2 settings"), 2);
  assert.equal((await ask("alice-secret")).status, 200);
  assert.equal((await ask("bob-secret")).status, 401);
});

test("a trace shows the engine's steps and the requests in them", async () => {
  let over = false;
  const traces = Promise.all([1, 2].map(() => admin("/admin/trace?seconds=2"))).finally(() => { over = true; });
  // For as long as the trace lasts, so that some requests are whole within it.
  while (!over) assert.equal((await ask("alice-secret", { max_tokens: 20, ignore_eos: true })).status, 200);
  const [traced, second] = (await traces).sort((a, b) => a.status - b.status);
  assert.deepEqual([traced.status, second.status], [200, 429]);
  const events = (await traced.json()).traceEvents;
  const named = (name) => events.filter((event) => event.name === name);
  assert.ok(named("step").length >= 20);
  assert.equal(named("forward").length, named("step").length);
  assert.ok(named("prefill").length >= 1);
  assert.ok(named("POST /v1/completions").length >= 1);
  assert.ok(events.every((event) => event.ph === "M" || event.ts >= 0));
  traced_steps = join(folder, "trace.json");
  writeFileSync(traced_steps, JSON.stringify({ traceEvents: events }));
});

test("traffic is simulated at the price of the steps that were traced", () => {
  const simulate = (cost) => spawnSync(process.env.QUIRE_BINARY, ["simulate", "--cost", ...cost, "--synthetic",
    "requests=20,rate=5,prompt=50,output=20"], { encoding: "utf8" });
  const done = simulate([traced_steps, traced_steps]);
  assert.equal(done.status, 0, done.stderr);
  const [, base] = /step price from .*trace\.json, .*trace\.json: base=([0-9.e-]+),/.exec(done.stdout);
  assert.ok(Number(base) > 0);
  writeFileSync(join(folder, "other.json"), "{}");
  const refused = simulate([traced_steps, join(folder, "other.json")]);
  assert.equal(refused.status, 2);
  assert.match(refused.stderr, /other\.json is neither of quire bench steps --json nor of POST \/admin\/trace/);
  const args = { streams: 1, prompt_tokens: 0, stream_ktokens: 0, prompt_ktokens: 0, ms: 1 };
  const two_models = [2, 3].map((pid) => ({ name: "step", pid, args }));
  writeFileSync(join(folder, "two.json"), JSON.stringify({ traceEvents: two_models }));
  assert.match(simulate([join(folder, "two.json")]).stderr, /two\.json has steps of several models/);
});

test("the metrics tell where a step's time goes", async () => {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  for (const phase of ["schedule", "turn", "input", "forward", "sample", "emit"]) {
    assert.match(text, new RegExp(`quire:step_phase_seconds_sum\\{.*phase="${phase}"\\} [0-9.e-]+`));
    assert.match(text, new RegExp(`quire:step_phase_seconds_bucket\\{.*phase="${phase}",le="0.001"\\} \\d+`));
  }
  assert.match(text, /quire:step_seconds_count\{.*\} \d+/);
});
