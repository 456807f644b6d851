// The prefix cache below the pool: it outlives the process, and a process that is killed while writing leaves no file
// that the next one accepts.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer, is_emulated, sized } from "../server_process.mjs";

// What a file system does is the same on every device.
const of_files = { skip: is_emulated && "of files alone" };

function temporary_folder() {
  const folder = mkdtempSync(join(tmpdir(), "quire-tier-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function start(flags, options) {
  const server = await QuireServer.start(flags, options);
  after(() => server.kill());
  return server;
}

const files_below = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true }).filter((file) => file.isFile()).map((file) => file.name);

// Files of a tier's folder that are neither a block nor what a daemon keeps beside them.
const others_below = (folder) =>
  files_below(folder).filter((name) => !name.endsWith(".kv") && !["lock", "content-hashes"].includes(name));

async function chat(server, messages, max_tokens = sized(60, 12)) {
  const response = await server.post("/v1/chat/completions", { model: "quire-demo", messages, max_tokens, temperature: 0 });
  assert.equal(response.status, 200);
  const { choices, usage } = await response.json();
  return { text: choices[0].message.content, cached: usage.prompt_tokens_details.cached_tokens };
}

// Turn after turn, each with all that was said before: the answers, and how much of each prompt was cached.
async function converse(server, questions) {
  const messages = [{ role: "system", content: "You answer questions about a server of language models. ".repeat(6) }];
  const answers = [];
  for (const question of questions) {
    messages.push({ role: "user", content: question });
    const answer = await chat(server, messages);
    messages.push({ role: "assistant", content: answer.text });
    answers.push(answer);
  }
  return answers;
}

const kQuestions = ["What is a KV block?", "What is a batch?", "What is a prefix cache?"];

test("after a restart the first repeated conversation is served from the cache on disk", async () => {
  const flags = ["--kv-cache.disk-tier-path", temporary_folder()];
  const first = await start(flags);
  const before = await converse(first, kQuestions);
  assert.equal(before[0].cached, 0);
  assert.ok(before[2].cached > before[1].cached && before[1].cached > 0, "a conversation finds its own past");
  await first.stop();
  const second = await start(flags);
  const again = await converse(second, kQuestions);
  assert.deepEqual(again.map(({ text }) => text), before.map(({ text }) => text));
  assert.ok(again[0].cached > 0, "the first prompt was found");
  const metrics = await second.metrics();
  assert.ok(metrics["quire:kv_blocks_restored_total"] > 0);
  assert.ok(metrics["vllm:prefix_cache_hits_total"] >= again[0].cached);
  const { models: [{ tiers }] } = await (await fetch(`${second.url}/status`)).json();
  assert.deepEqual(tiers.map(({ name, bytes }) => [name, bytes]), [["disk", 8 * 2 ** 30]]);
  assert.ok(tiers[0].used > 0 && tiers[0].used < tiers[0].bytes);
  assert.equal(metrics["quire:disk_tier_bytes"], 8 * 2 ** 30);
  assert.ok(metrics["quire:disk_tier_bytes_used"] > 0);
  assert.equal(metrics["quire:host_tier_bytes"], 0);
  await second.stop();
});

test("two processes share a folder: both serve, one writes, and a third is not confused", async () => {
  const flags = ["--kv-cache.disk-tier-path", temporary_folder(), "--num-blocks", sized("40", "11")];
  const indices = Array.from({ length: sized(6, 4) }, (_, index) => index);
  // The same tokens behind different beginnings.
  const prompt = (index) => `${["red", "blue", "green", "white", "black", "grey"][index]} ` + "a block of tokens ".repeat(sized(40, 16));
  const ask = async (server, index) => {
    const response = await server.post("/v1/completions",
      { model: "quire-demo", prompt: prompt(index), max_tokens: sized(20, 6), temperature: 0, ignore_eos: true });
    assert.equal(response.status, 200);
    return (await response.json()).choices[0].text;
  };
  const fresh = await start(["--kv-cache.prefix-caching", "false"]);
  const expected = [];
  for (const index of indices) expected.push(await ask(fresh, index));
  await fresh.stop();
  const owners = [await start(flags), await start(flags)];
  for (const index of indices) assert.equal(await ask(owners[index % 2], index), expected[index]);
  await owners[0].stop();
  for (const index of indices) assert.equal(await ask(owners[1], index), expected[index]);
  await owners[1].stop();
  const third = await start(flags);
  for (const index of indices) assert.equal(await ask(third, index), expected[index], `prompt ${index}`);
  assert.ok((await third.metrics())["quire:kv_blocks_restored_total"] > 0);
  await third.stop();
});

test("another layout of the same model finds nothing, and is not confused", async () => {
  const folder = temporary_folder();
  const first = await start(["--kv-cache.disk-tier-path", folder]);
  await converse(first, kQuestions.slice(0, 1));
  await first.stop();
  const second = await start(["--kv-cache.disk-tier-path", folder, "--block-size", "32"]);
  assert.equal((await converse(second, kQuestions.slice(0, 1)))[0].cached, 0);
  assert.equal((await second.metrics())["quire:kv_blocks_restored_total"], 0);
  await second.stop();
});

// Each index has a beginning of its own.
const long_prompt = (index) =>
  `${index} ` + Array.from({ length: sized(120, 40) }, (_, word) => ["block", "river", "token", "story", "cache"][(index * 3 + word * word) % 5]).join(" ");

async function completed(server, index) {
  const body = { model: "quire-demo", prompt: long_prompt(index), max_tokens: sized(40, 6), temperature: 0, ignore_eos: true };
  const response = await server.post("/v1/completions", body);
  assert.equal(response.status, 200);
  return (await response.json()).choices[0].text;
}

const kRounds = 3;
const kPerRound = sized(8, 4);
const kWritten = sized(5, 2);  // blocks in a round, before the kill
const indices = Array.from({ length: kRounds * kPerRound }, (_, index) => index);
const kSmallPool = ["--num-blocks", sized("40", "10")];  // for three long prompts

let completed_afresh = null;
// What a server that keeps nothing says to the long prompts.
async function expected_texts() {
  if (completed_afresh) return completed_afresh;
  const fresh = await start(["--kv-cache.prefix-caching", "false"]);
  completed_afresh = [];
  for (const index of indices) completed_afresh.push(await completed(fresh, index));
  await fresh.stop();
  return completed_afresh;
}

test("kill -9 while blocks are being written: the next start is clean, and says what a fresh server says", of_files, async () => {
  const expected = await expected_texts();

  const folder = temporary_folder();
  const flags = ["--kv-cache.disk-tier-path", folder, ...kSmallPool];
  const records = () => files_below(folder).filter((name) => name.endsWith(".kv")).length;
  let num_written = 0;
  for (let round = 0; round < kRounds; ++round) {
    const server = await start(flags);
    // Blocks are pushed out to the disk all the time.
    const first = round * kPerRound;
    let is_over = false;
    const load = Promise.all(indices.slice(first, first + kPerRound).map((index) => completed(server, index).catch(() => null)))
      .then(() => { is_over = true; });
    while (!is_over && records() < num_written + kWritten) await new Promise((resolve) => setImmediate(resolve));
    server.signal("SIGKILL");
    assert.equal((await server.ended()).signal, "SIGKILL");
    await load;
    assert.ok(records() >= num_written + kWritten, "it was killed while it wrote");
    num_written = records();
  }

  const server = await start(flags);
  for (const index of indices) assert.equal(await completed(server, index), expected[index], `prompt ${index}`);
  assert.ok((await server.metrics())["quire:kv_blocks_restored_total"] > 0, "what was whole is used");
  await server.stop();
  assert.deepEqual(others_below(folder), [], "no half-written file is left");
});

test("streams that are swapped out to host memory and back say what they say alone", async () => {
  const prompt = (index) => long_prompt(index).slice(0, sized(undefined, 60));
  const body = (index) => ({
    model: "quire-demo", prompt: prompt(index), max_tokens: sized(300, 40), temperature: 1, seed: index, ignore_eos: true,
  });
  const texts_of = async (server) =>
    Promise.all(indices.map(async (index) => (await (await server.post("/v1/completions", body(index))).json()).choices[0].text));
  const roomy = await start(["--max-num-seqs", "24"]);
  const expected = await texts_of(roomy);
  await roomy.stop();
  const server = await start(["--max-num-seqs", "24", "--num-blocks", sized("180", "16"), "--kv-cache.host-tier-bytes", "64MiB", "--scheduler.preemption", "swap"]);
  assert.deepEqual(await texts_of(server), expected);
  const metrics = await server.metrics();
  assert.ok(metrics["quire:preemptions_swapped_total"] > 0);
  assert.ok(metrics["quire:kv_blocks_restored_total"] > 0);
  await server.metric_becomes("quire:kv_blocks_used", (value) => value === 0);
  await server.stop();
});

test("on a full filesystem requests are served as ever, and the next start reads nothing that is not whole", of_files, async (context) => {
  const mounts = ["--user", "--map-root-user", "--mount"];
  const folder = temporary_folder();
  const mount = `mount -t tmpfs -o size=512k tmpfs '${folder}'`;
  if (spawnSync("unshare", [...mounts, "sh", "-c", mount]).status !== 0) {
    context.skip("no small filesystem can be mounted in a namespace here");
    return;
  }
  const script = join(temporary_folder(), "quire-in-namespace");
  writeFileSync(script, `#!/bin/sh\nexec unshare ${mounts.join(" ")} sh -c '${mount.replaceAll("'", '"')} && exec "$@"' sh '${process.env.QUIRE_BINARY}' "$@"\n`, { mode: 0o755 });
  const expected = await expected_texts();

  const flags = ["--kv-cache.disk-tier-path", folder, ...kSmallPool];
  const server = await start(flags, { binary: script });
  for (let round = 0; round < 2; ++round) {
    for (const index of indices) assert.equal(await completed(server, index), expected[index], `prompt ${index}`);
  }
  await server.logged((line) => /could not be written.*No space left/.test(line));
  const left = temporary_folder();
  cpSync(`/proc/${server.pid}/root${folder}`, left, { recursive: true });
  await server.stop();
  assert.deepEqual(others_below(left), [], "no half-written file is left");
  const next = await start(["--kv-cache.disk-tier-path", left, ...kSmallPool]);
  for (const index of indices) assert.equal(await completed(next, index), expected[index], `prompt ${index}`);
  assert.ok((await next.metrics())["quire:kv_blocks_restored_total"] > 0, "what was whole is used");
  await next.stop();
});
