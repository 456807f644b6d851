// Mixed hostile load on one daemon: hostile.mjs [--rounds N | --minutes N] [--patience SECONDS] [--growth RATIO] [--binary PATH].
// Each round runs valid requests, which want four times the pool there is, beside every kind of attack. At the end: every answer that
// survived was, byte for byte, what the same request is answered alone; nothing is left running or allocated; memory has grown by at
// most the ratio since a tenth of it (with --minutes, from ten on); SIGTERM ends it with 0; and a sanitizer, where the build has
// one, has nothing to say.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { QuireServer } from "../e2e/server_process.mjs";
import { kQuickAttacks, kSlowAttacks } from "./attacks.mjs";
import { pause, post, random_source, RawClient } from "./raw_client.mjs";

const kSeed = 7;
const kWarmMinutes = 10;
const kRestMs = 12_000;
const kSchemas = 100;  // costly ones, of some 1.5 MiB each
const kJobs = 48;
const kValidPerRound = 32;  // about 15 blocks each
const kNumBlocks = 120;
const kMaxBody = 1 << 20;
const kWords = ["block", "batch", "token", "prefix", "cache", "story", "river", "model", "answer", "step", "queue", "small"];
const kAttacks = { ...kQuickAttacks, ...kSlowAttacks };
const kReport = /AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|CHECK failed/;

const { values } = parseArgs({ options: {
  rounds: { type: "string" }, minutes: { type: "string" }, patience: { type: "string", default: "5" },
  growth: { type: "string", default: "1.02" }, binary: { type: "string", default: process.env.QUIRE_BINARY } } });
process.env.QUIRE_BINARY = values.binary;
process.env.QUIRE_MODEL ??= new URL("../../deploy/demo-model/quire-demo.gguf", import.meta.url).pathname;
// AddressSanitizer keeps freed memory from use for a while: little of it, so that a plateau is soon reached. It returns free
// pages at once and not every five seconds, so that what is resident does not depend on when it is read.
process.env.ASAN_OPTIONS ??= "quarantine_size_mb=16:detect_leaks=1:allocator_release_to_os_interval_ms=0";

// What valid clients ask: of both APIs, streamed and whole, greedy and sampled, constrained, stopped, of several choices.
function make_jobs() {
  const random = random_source(kSeed);
  const words = (count) => Array.from({ length: count }, () => kWords[random(kWords.length)]).join(" ");
  return Array.from({ length: kJobs }, (_, index) => {
    const chat = index % 3 === 2;
    const text = words([3, 20, 60, 120][index % 4] + random(10));
    const body = { model: "quire-demo", max_tokens: 60 + random(160), temperature: index % 2, seed: index,
      stream: index % 8 !== 7, ...(chat ? { messages: [{ role: "user", content: text }] } : { prompt: text }) };
    if (index % 5 !== 4) body.ignore_eos = true;
    if (index % 7 === 6) body.stop = ["the", "\n"];
    if (index % 11 === 10) body.n = 2;
    if (index % 13 === 12) {
      body.ignore_eos = false;
      body.response_format = { type: "json_schema", json_schema: { name: "s", strict: true, schema: { type: "object",
        properties: { a: { type: "integer" }, b: { enum: ["x", "y"] } }, required: ["a", "b"], additionalProperties: false } } };
    }
    return { name: `job ${index}`, path: chat ? "/v1/chat/completions" : "/v1/completions", body };
  });
}

function body_of(answer) {
  const end = answer.indexOf("\r\n\r\n");
  let rest = answer.slice(end + 4);
  if (!/\r\ntransfer-encoding: chunked/i.test(answer.slice(0, end))) return Buffer.from(rest, "latin1").toString();
  let body = "";
  for (;;) {
    const line = rest.indexOf("\r\n");
    const size = Number.parseInt(rest.slice(0, line), 16);
    if (!(size > 0)) return Buffer.from(body, "latin1").toString();
    body += rest.slice(line + 2, line + 2 + size);
    rest = rest.slice(line + 4 + size);
  }
}

// What was said, as one string; throws where the answer is not a whole one.
function said(job, answer) {
  assert.match(answer, /^HTTP\/1\.1 200 /, `${job.name}: ${answer.slice(0, 400)}`);
  const body = body_of(answer);
  const choices = [];
  const take = ({ choices: parts }) => {
    for (const { index, text, delta, message, finish_reason } of parts) {
      const choice = (choices[index] ??= { text: "", finish: null });
      choice.text += text ?? (delta ?? message).content ?? "";
      choice.finish = finish_reason ?? choice.finish;
    }
  };
  if (job.body.stream) {
    assert.ok(body.endsWith("data: [DONE]\n\n"), `${job.name} is cut: ${body.slice(-200)}`);
    for (const line of body.split("\n")) if (line.startsWith("data: {")) take(JSON.parse(line.slice(6)));
  } else {
    take(JSON.parse(body));
  }
  return JSON.stringify(choices);
}

const ask = (port, job) =>
  new RawClient(port).send(post(job.path, JSON.stringify(job.body), { fields: "Connection: close\r\n" })).ended;

function resident_mib(pid) {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;
}

// Tables of remembered grammars grow up to their bound with each new schema: they are filled first, so that growth later is no cache's.
async function fill_caches(port) {
  for (let i = 0; i < kSchemas; ++i) {
    const branches = Array.from({ length: 40 }, (_, j) => `[a-z]{0,${40 + j}}[0-9]{0,${20 + (i % 40)}}x${j}y${i}`);
    const body = { prompt: "x", max_tokens: 4, guided_regex: `(${branches.join("|")}){1,5}` };
    await ask(port, { path: "/v1/completions", body });
  }
}

class Siege {
  num_checked = 0;
  num_attacks = 0;
  memory = [];  // of the daemon at rest: {minute, mib}
  #waiting = [];  // attacks that only the server's patience ends

  constructor(server, jobs) {
    this.server = server;
    this.jobs = jobs;
    this.alone = new Map();
    this.port = Number(new URL(server.url).port);
    this.began = Date.now();
  }

  minutes() {
    return (Date.now() - this.began) / 60000;
  }

  async listen_alone() {
    for (const job of this.jobs) this.alone.set(job, said(job, await ask(this.port, job)));
  }

  check(job, answer) {
    assert.equal(said(job, answer), this.alone.get(job), job.name);
    ++this.num_checked;
  }

  async round(number) {
    const random = random_source(kSeed + 1000 * number);
    const context = { port: this.port, work: this.jobs, max_body: kMaxBody, check: (job, answer) => this.check(job, answer) };
    const valid = Array.from({ length: kValidPerRound }, async () => {
      const job = this.jobs[random(this.jobs.length)];
      this.check(job, await ask(this.port, job));
    });
    const launch = async (name, attack, seed) => {
      try {
        await attack({ ...context, random: random_source(seed) });
      } catch (error) {
        error.message = `round ${number}, ${name}: ${error.message}`;
        throw error;
      }
      ++this.num_attacks;
    };
    const attacks = [];
    for (const [name, attack] of Object.entries(kAttacks)) {
      for (let count = 2 + random(3); count > 0; --count) {
        (name in kSlowAttacks ? this.#waiting : attacks).push(launch(name, attack, random(1 << 30)));
      }
    }
    if (number % 8 === 3) this.server.signal("SIGHUP");
    await Promise.all([...valid, ...attacks]);
    for (const line of this.server.log.splice(0)) assert.doesNotMatch(line, kReport);
  }

  // Returns when whatever was under way has been dealt with: how much that is depends on how busy the machine is.
  async rest() {
    await Promise.all(this.#waiting);
    this.#waiting = [];
    await this.server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
    // A daemon at rest returns its heaps' free memory within two periods of five seconds.
    if (values.minutes) await pause(kRestMs);
    this.memory.push({ minute: this.minutes(), mib: resident_mib(this.server.pid) });
  }

  // Memory at the end against that after the first tenth.
  growth() {
    const end = this.memory.at(-1);
    const warm = this.memory.find(({ minute }) => minute >= end.minute / 10);
    return { warm: warm.mib, last: end.mib };
  }
}

function configure(folder) {
  const sha256 = (text) => createHash("sha256").update(text).digest("hex");
  const path = join(folder, "quire.yaml");
  writeFileSync(path, `
security:
  keys:
    - {name: valid, sha256: ${sha256("valid")}, admin: true}
    - {name: limited, sha256: ${sha256("limited")}, requests_per_minute: 10, max_concurrent: 2}
server:
  max_body_bytes: ${kMaxBody}
  timeout: {header: ${values.patience}s, body: ${values.patience}s}
  resume: {window: 2s}
scheduler: {max_model_len: 1024, max_num_batched_tokens: 256, max_num_seqs: 64}
kv_cache: {num_blocks: ${kNumBlocks}}
log: {access: off}
`);
  return path;
}

const folder = mkdtempSync(join(tmpdir(), "quire-"));
const server = await QuireServer.start(["--config", configure(folder)]);
process.on("exit", () => {
  server.kill();
  rmSync(folder, { recursive: true });
});
const minutes = Number(values.minutes ?? 0);
if (minutes > 0) await fill_caches(Number(new URL(server.url).port));
const siege = new Siege(server, make_jobs());
await siege.listen_alone();
const most_rounds = minutes > 0 ? Infinity : Number(values.rounds ?? 4);
let rounds = 0;
while (rounds < most_rounds && !(minutes > 0 && siege.minutes() >= minutes)) {
  await siege.round(rounds++);
  if (minutes > 0 && rounds % 4 === 0) {
    await siege.rest();
    console.log(`minute ${siege.minutes().toFixed(1)}, round ${rounds}: ${siege.memory.at(-1).mib.toFixed(0)} MiB`);
  }
}

await siege.rest();
const metrics = await server.metrics();
assert.equal(metrics["quire:kv_blocks_used"], 0);
assert.ok(metrics["vllm:num_preemptions_total"] > 0, "the pool was too small for all");
await server.stop();
for (const line of server.log) assert.doesNotMatch(line, kReport);
console.log(`${rounds} rounds: ${siege.num_checked} answers as alone, ${siege.num_attacks} attacks dealt with, ` +
  `${metrics["vllm:num_preemptions_total"]} preemptions, exit 0`);
if (minutes > 0) {
  const { warm, last } = siege.growth();
  console.log(`resident: ${warm.toFixed(1)} MiB after a tenth, ${last.toFixed(1)} MiB at the end`);
  // In less the allocator's heaps have not been in every state yet.
  if (minutes >= kWarmMinutes) assert.ok(last <= warm * Number(values.growth), "memory grew");
}
