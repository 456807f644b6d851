// Slots as in llama-server: an admin saves a conversation's blocks to a file and restores them into another process,
// which then answers with the same text from its cache; files of other models or with damage are refused.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const kAdmin = "an-admins-own-key";
const kUser = "a-users-own-key";

function temporary_folder() {
  const folder = mkdtempSync(join(tmpdir(), "quire-slots-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

// Prefixes are shared by all keys here: what one saved another may find.
async function start(folder, flags = []) {
  const config = join(temporary_folder(), "quire.yaml");
  writeFileSync(config, `security:
  keys:
    - {name: admin, sha256: ${sha256(kAdmin)}, admin: true}
    - {name: user, sha256: ${sha256(kUser)}}
kv_cache:
  isolate_by_key: false
`);
  chmodSync(config, 0o600);
  const server = await QuireServer.start(["--config", config, "--slot-save-path", folder, ...flags]);
  after(() => server.kill());
  return server;
}

function post(server, path, body, key = kAdmin) {
  return server.post(path, body,
    { headers: { "Content-Type": "application/json", Authorization: `Bearer ${key}` } });
}

async function complete(server, prompt, fields = {}) {
  const response = await post(server, "/completion", { prompt, n_predict: 40, temperature: 0, ignore_eos: true, ...fields }, kUser);
  assert.equal(response.status, 200);
  const body = await response.json();
  return { text: body.content, cached: body.tokens_cached ?? 0, evaluated: body.timings.prompt_n, total: body.tokens_evaluated };
}

async function slot(server, id, action, body, key = kAdmin) {
  const response = await post(server, `/slots/${id}?action=${action}`, body, key);
  return { status: response.status, body: await response.json() };
}

const kPrompt = `You keep the minutes of a meeting about storage. ${"Then a point about blocks was made. ".repeat(30)}Minutes:`;

test("a saved slot is restored into another process: the same text, its prompt from the cache", async () => {
  const folder = temporary_folder();
  const first = await start(folder);
  const before = await complete(first, kPrompt, { id_slot: 3 });
  const saved = await slot(first, 3, "save", { filename: "meeting.bin" });
  assert.equal(saved.status, 200, JSON.stringify(saved.body));
  assert.equal(saved.body.id_slot, 3);
  assert.equal(saved.body.filename, "meeting.bin");
  assert.ok(saved.body.n_saved > before.total - 16, "all full blocks of prompt and answer");
  assert.equal(saved.body.n_written, readFileSync(join(folder, "meeting.bin")).length);
  assert.deepEqual(readdirSync(folder), ["meeting.bin"]);
  await first.stop();

  const second = await start(folder);
  const restored = await slot(second, 5, "restore", { filename: "meeting.bin" });
  assert.equal(restored.status, 200, JSON.stringify(restored.body));
  assert.equal(restored.body.n_restored, saved.body.n_saved);
  assert.equal(restored.body.n_read, saved.body.n_written);
  const metrics = await second.metrics();
  assert.equal(metrics["vllm:prefix_cache_queries_total"], 0);
  const again = await complete(second, kPrompt);
  assert.equal(again.text, before.text);
  assert.ok(again.evaluated <= 16, `${again.evaluated} tokens were computed again`);
  // The slot has the conversation now: it can be saved from here, and is gone once it is erased.
  const copied = await slot(second, 5, "save", { filename: "copy.bin" });
  assert.equal(copied.body.n_saved, restored.body.n_restored);
  assert.ok(readFileSync(join(folder, "copy.bin")).equals(readFileSync(join(folder, "meeting.bin"))), "the same bits");
  const erased = await slot(second, 5, "erase", {});
  assert.ok(erased.body.n_erased >= restored.body.n_restored);
  const empty = await slot(second, 5, "save", { filename: "empty.bin" });
  assert.equal(empty.body.error.code, "slot_is_empty");
  await second.stop();
});

test("only an admin acts on slots, and only on plain files of the folder", async () => {
  const folder = temporary_folder();
  const elsewhere = temporary_folder();
  const server = await start(folder);
  await complete(server, kPrompt, { id_slot: 0 });
  assert.equal((await slot(server, 0, "save", { filename: "a" }, kUser)).status, 403);
  for (const filename of ["../a", "/tmp/a", "a/b", "..", ".", "", ".a", "-a", "a\u0000b", "a\\b", "a.part", "é", "a".repeat(200)]) {
    const refused = await slot(server, 0, "save", { filename });
    assert.equal(refused.status, 400, filename);
    assert.equal(refused.body.error.param, "filename");
  }
  assert.equal((await slot(server, 0, "save", {})).body.error.param, "filename");
  assert.equal((await slot(server, 0, "load", { filename: "a" })).body.error.param, "action");
  assert.equal((await slot(server, "x", "save", { filename: "a" })).body.error.param, "id_slot");
  assert.equal((await slot(server, 99999, "save", { filename: "a" })).status, 404);
  assert.equal((await slot(server, 0, "restore", { filename: "none" })).status, 404);
  assert.deepEqual(readdirSync(folder), []);
  // A link leads nowhere: not read through, and replaced, not followed, by a save.
  assert.equal((await slot(server, 0, "save", { filename: "real" })).status, 200);
  copyFileSync(join(folder, "real"), join(elsewhere, "outside"));
  symlinkSync(join(elsewhere, "outside"), join(folder, "link"));
  assert.equal((await slot(server, 0, "restore", { filename: "link" })).status, 404);
  const outside = readFileSync(join(elsewhere, "outside"));
  assert.equal((await slot(server, 0, "save", { filename: "link" })).status, 200);
  assert.ok(readFileSync(join(elsewhere, "outside")).equals(outside));
  await server.stop();
});

test("a file that is damaged, or another model's, is refused and changes nothing", async () => {
  const folder = temporary_folder();
  const server = await start(folder);
  const before = await complete(server, kPrompt, { id_slot: 0 });
  assert.equal((await slot(server, 0, "save", { filename: "whole" })).status, 200);
  await server.stop();
  const whole = readFileSync(join(folder, "whole"));
  const damaged = {
    empty: Buffer.alloc(0), text: Buffer.from("no slot at all, but long enough to hold a head of one".repeat(9)),
    cut: whole.subarray(0, whole.length - 1), longer: Buffer.concat([whole, Buffer.alloc(8)]),
  };
  for (const at of [0, 9, 30, 41, 60, 200, Math.floor(whole.length / 2), whole.length - 1]) {
    const bytes = Buffer.from(whole);
    bytes[at] ^= 1;
    damaged[`bit${at}`] = bytes;
  }
  for (const [name, bytes] of Object.entries(damaged)) writeFileSync(join(folder, name), bytes);
  const other = await start(folder, ["--kv-cache-dtype", "f32"]);
  const refused = await slot(other, 0, "restore", { filename: "whole" });
  assert.equal(refused.body.error.code, "slot_mismatch", "another arithmetic");
  for (const name of Object.keys(damaged)) {
    const answer = await slot(other, 0, "restore", { filename: name });
    assert.equal(answer.status, 400, name);
    assert.equal(answer.body.error.code, "invalid_slot_file", name);
  }
  assert.equal((await complete(other, kPrompt)).evaluated, before.evaluated, "nothing of it is in the cache");
  await other.stop();
});

test("the folder is bounded, and a cache that lacks room for a slot says so", async () => {
  const folder = temporary_folder();
  const small = await start(folder, ["--server.slots.max-bytes", "64KiB"]);
  await complete(small, kPrompt, { id_slot: 0 });
  const refused = await slot(small, 0, "save", { filename: "large" });
  assert.equal(refused.body.error.code, "slot_too_large");
  assert.ok(!existsSync(join(folder, "large")));
  await small.stop();
  const roomy = await start(folder);
  const before = await complete(roomy, kPrompt, { id_slot: 0 });
  await slot(roomy, 0, "save", { filename: "large" });
  await roomy.stop();
  const tight = await start(folder, ["--num-blocks", "12", "--max-model-len", "128"]);
  const answer = await slot(tight, 0, "restore", { filename: "large" });
  assert.equal(answer.status, 503);
  assert.equal(answer.body.error.code, "kv_cache_full");
  assert.ok(before.total > 0);
  await tight.stop();
});

test("without a folder slots are refused, with the setting that would allow them", async () => {
  const config = join(temporary_folder(), "quire.yaml");
  writeFileSync(config, `security: {keys: [{name: admin, sha256: ${sha256(kAdmin)}, admin: true}]}\n`);
  chmodSync(config, 0o600);
  const server = await QuireServer.start(["--config", config]);
  after(() => server.kill());
  const refused = await slot(server, 0, "save", { filename: "a" });
  assert.equal(refused.status, 400);
  assert.equal(refused.body.error.code, "unsupported_operation");
  assert.match(refused.body.error.message, /server\.slots\.directory/);
  await server.stop();
});
