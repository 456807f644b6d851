// Models by name over HTTP: /admin/models/pull, remove and cache, and Ollama's pull and delete by its npm client; their keys and limits.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { Ollama } from "ollama";
import { FakeHub, sha256 } from "./fake_hub.mjs";
import { QuireServer } from "../server_process.mjs";

const demo = readFileSync(process.env.QUIRE_MODEL);
const content = (seed, size) => createHash("shake256", { outputLength: size }).update(seed).digest();
const folder = mkdtempSync(join(tmpdir(), "quire-pull-"));
const cache = join(folder, "hub");
const file = join(folder, "quire.yaml");
const key = (name, more = "") => `    - {name: ${name}, sha256: ${sha256(Buffer.from(`${name}-secret`))}${more}}\n`;
const config = (pull, root = "") => {
  writeFileSync(file, `server:\n  pull: ${pull}\n${root && `  model_root: ${root}\n`}security:\n  keys:\n${key("root", ", admin: true")}${key("alice")}` +
    `models:\n  - {name: base, path: ${process.env.QUIRE_MODEL}, kv_memory: 32MiB}\n`);
};
let hub;
let server;

before(async () => {
  hub = await FakeHub.start();
  hub.add("owner/demo", { "demo.Q8_0.gguf": demo });
  hub.add("owner/large", { "large.Q8_0.gguf": content("large", 400_000) });
  hub.add("other/demo", { "demo.Q8_0.gguf": demo });
  config("{enabled: true, repositories: [owner/*], max_bytes: 300MiB}");
  server = await QuireServer.start(["--config", file], { model: null, env: { HF_ENDPOINT: hub.url, HF_HUB_CACHE: cache, HF_HOME: folder, HF_TOKEN: "" } });
});
after(async () => {
  await server.stop();
  await hub.stop();
});
afterEach(() => {
  hub.release();
  hub.faults = {};
  hub.requests = [];
});

const call = (method, path, body, secret = "root-secret", more = {}) => fetch(server.url + path, {
  method, headers: { "Content-Type": "application/json", Authorization: `Bearer ${secret}` }, body: body && JSON.stringify(body), ...more,
});
const admin = async (operation, body, secret) => {
  const response = await call("POST", `/admin/models/${operation}`, body, secret);
  return { status: response.status, body: await response.json() };
};
const refused = async (operation, body, status, what, secret) => {
  const answer = await admin(operation, body, secret);
  assert.equal(answer.status, status, JSON.stringify(answer.body));
  assert.match(`${answer.body.error.code} ${answer.body.error.message}`, what);
};
const cached = async () => (await call("GET", "/admin/models/cache")).json();
const blobs = (name) => readdirSync(join(cache, `models--${name.replace("/", "--")}`, "blobs"));
const client = (secret) => new Ollama({ host: server.url, headers: { Authorization: `Bearer ${secret}` } });
const completion = (model) => call("POST", "/v1/completions", { model, prompt: "Once", max_tokens: 3 }, "alice-secret");
const reload = async () => assert.equal((await call("POST", "/admin/reload")).status, 200);

test("a pull is an admin's, and bounded by the configuration", async () => {
  await refused("pull", { model: "owner/demo" }, 403, /admin_key_required/, "alice-secret");
  await refused("pull", { model: "other/demo" }, 403, /repository_not_allowed .*server\.pull\.repositories/);
  await refused("pull", { model: "owner/../other" }, 400, /invalid_model_reference/);
  await refused("pull", { model: "owner/nothing" }, 404, /model_repository_not_found .*HF_TOKEN/);
  await refused("pull", {}, 400, /model/);
  await refused("pull", { model: "owner/demo", servd_name: "mine" }, 400, /unknown_parameter .*'servd_name'/);
  await refused("remove", { model: "owner/demo", load: true }, 400, /unknown_parameter .*'load'/);
  config("{enabled: true, max_bytes: 100KiB}");
  await reload();
  await refused("pull", { model: "owner/large" }, 403, /model_too_large .*server\.pull\.max_bytes/);
  config("{enabled: true}", join(folder, "elsewhere"));
  await reload();
  await refused("pull", { model: "owner/demo" }, 403, /path_not_allowed .*server\.model_root/);
  config("{}");
  await reload();
  for (const operation of ["pull", "remove"]) await refused(operation, { model: "owner/demo" }, 403, /pull_disabled/);
  assert.equal(hub.transfers().length, 0);
  assert.ok(!existsSync(cache) || readdirSync(cache).every((name) => !name.startsWith("models--")));
  config("{enabled: true, repositories: [owner/*], max_bytes: 300MiB}");
  await reload();
});

test("a page of another site cannot make an admin's browser pull or delete", async () => {
  for (const [method, path] of [["POST", "/admin/models/pull"], ["POST", "/api/pull"], ["DELETE", "/api/delete"]]) {
    const response = await call(method, path, { model: "owner/demo" }, "root-secret", {
      headers: { "Content-Type": "text/plain", Authorization: "Bearer root-secret", Origin: "https://evil.example", "Sec-Fetch-Site": "cross-site" },
    });
    assert.equal(response.status, 403, path);
    await response.text();
  }
  assert.equal(hub.requests.length, 0);
});

test("a pull reports its progress as events, and the model is served afterwards", async () => {
  hub.faults = { hold_after: 100_000 };
  const response = await call("POST", "/admin/models/pull", { model: "owner/demo", stream: true, load: true, served_name: "pulled" });
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /text\/event-stream/);
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    text += decoder.decode(bytes, { stream: true });
    if (/"status":"downloading".*"completed":100000,/.test(text)) hub.release();
  }
  const events = text.trim().split("\n\n").map((each) => /^event: (\w+)\ndata: (.*)$/.exec(each)).map(([, name, data]) => [name, JSON.parse(data)]);
  assert.ok(events.slice(0, -1).every(([name]) => name === "progress"), text);
  const completed = events.slice(0, -1).map(([, { completed }]) => completed);
  assert.deepEqual(completed, [...completed].sort((a, b) => a - b));
  const [name, last] = events.at(-1);
  assert.deepEqual([name, last.status, last.name, last.bytes], ["done", "success", "pulled", demo.length]);
  assert.ok(last.path.startsWith(cache));
  const answer = await completion("pulled");
  assert.equal(answer.status, 200, await answer.text());
  assert.equal((await completion("owner/demo")).status, 200, "the repository's name is an alias");
  await refused("remove", { model: "owner/demo" }, 409, /model_in_use .*'pulled' uses these files/);
  assert.equal((await admin("unload", { name: "pulled" })).status, 200);
  assert.equal((await admin("load", { name: "again", hf: "owner/demo" })).status, 200);
  assert.equal((await completion("again")).status, 200);
  assert.equal((await admin("unload", { name: "again" })).status, 200);
  const removed = await admin("remove", { model: "owner/demo" });
  assert.deepEqual([removed.status, removed.body.freed_bytes], [200, demo.length]);
  assert.deepEqual((await cached()).models, []);
});

test("two clients share one download, and a third finds it done", async () => {
  hub.faults = { hold_after: 1000 };
  const first = admin("pull", { model: "owner/large" });
  await hub.held();
  const second = admin("pull", { model: "owner/large" });
  const waiting = await admin("pull", { model: "owner/large", wait: false });
  assert.equal(waiting.status, 202);
  assert.deepEqual((await cached()).pulls.map(({ model, total }) => [model, total]), [["owner/large", 400_000]]);
  hub.release();
  const done = await Promise.all([first, second]);
  assert.deepEqual(done.map(({ status, body }) => [status, body.bytes]), [[200, 400_000], [200, 400_000]]);
  assert.equal(hub.transfers().length, 1);
  assert.equal((await admin("pull", { model: "owner/large" })).status, 200);
  assert.equal(hub.transfers().length, 1);
  assert.equal((await admin("remove", { model: "owner/large" })).status, 200);
});

test("a pull whose client disconnects stops, and the next continues where it ended", async () => {
  hub.faults = { hold_after: 150_000 };
  const leaving = new AbortController();
  const response = await call("POST", "/admin/models/pull", { model: "owner/large", stream: true }, "root-secret", { signal: leaving.signal });
  const reader = response.body.getReader();
  for (let text = ""; !text.includes('"completed":150000');) text += new TextDecoder().decode((await reader.read()).value);
  leaving.abort();
  await server.logged((line) => /pull: the download of 'owner\/large' was stopped/.test(line));
  hub.release();
  assert.deepEqual(blobs("owner/large"), [`${sha256(content("large", 400_000))}.incomplete`]);
  hub.requests = [];
  assert.equal((await admin("pull", { model: "owner/large" })).status, 200);
  assert.deepEqual(hub.transfers().map(({ range, sent }) => [range, sent]), [["bytes=150000-", 250_000]]);
});

test("a pull that has answered holds nothing: its model can be deleted and pulled again at once", async () => {
  hub.faults = {};
  for (let round = 0; round < 40; ++round) {
    assert.equal((await admin("pull", { model: "owner/demo" })).status, 200);
    const removed = await admin("remove", { model: "owner/demo" });
    assert.equal(removed.status, 200, `round ${round}: ${JSON.stringify(removed.body)}`);
  }
});

test("a damaged download ends a stream with an error, and serves nothing", async () => {
  assert.equal((await admin("remove", { model: "owner/large" })).status, 200);
  hub.faults = { corrupt: 100 };
  const response = await call("POST", "/admin/models/pull", { model: "owner/large", stream: true, load: true });
  assert.match(await response.text(), /"error":\{.*arrives damaged.*checksum_mismatch/);
  const listed = await (await call("GET", "/admin/models")).json();
  assert.deepEqual(listed.data.map(({ name }) => name), ["base"]);
});

test("Ollama's client pulls with progress, chats, and deletes", async () => {
  const name = "hf.co/owner/demo:Q8_0";
  await assert.rejects(client("alice-secret").pull({ model: name }), /does not serve .*admin key/);
  assert.equal((await client("alice-secret").pull({ model: "base" })).status, "success");
  const parts = [];
  for await (const part of await client("root-secret").pull({ model: name, stream: true })) parts.push(part);
  assert.equal(parts[0].status, "pulling manifest");
  const progress = parts.filter(({ digest }) => digest);
  assert.ok(progress.length > 0 && progress.every(({ digest, total }) => digest === `sha256:${sha256(demo)}` && total === demo.length));
  assert.equal(progress.at(-1).completed, demo.length);
  assert.equal(parts.at(-1).status, "success");
  const alice = client("alice-secret");
  assert.ok((await alice.list()).models.some(({ model }) => model === name));
  const answer = await alice.chat({ model: name, messages: [{ role: "user", content: "What is a KV block?" }], options: { num_predict: 8 } });
  assert.ok(answer.message.content.length > 0);
  await assert.rejects(alice.delete({ model: name }), /admin key/);
  await assert.rejects(client("root-secret").delete({ model: "base" }), /was not downloaded: its files are the operator's/);
  await client("root-secret").delete({ model: name });
  assert.ok(!(await alice.list()).models.some(({ model }) => model === name));
  assert.ok(!existsSync(join(cache, "models--owner--demo")));
  await assert.rejects(client("root-secret").delete({ model: name }), /not in the cache/);
  assert.equal((await client("root-secret").pull({ model: "owner/demo" })).status, "success");
  await assert.rejects(client("root-secret").pull({ model: "llama3.2" }), /'llama3\.2'.*OWNER\/NAME/);
});

test("a drain ends a pull, which keeps what it has", async () => {
  const other = await QuireServer.start(["--config", file], { model: null, env: { HF_ENDPOINT: hub.url, HF_HUB_CACHE: join(folder, "third"), HF_HOME: folder, HF_TOKEN: "" } });
  hub.faults = { hold_after: 200_000 };
  const pull = fetch(`${other.url}/admin/models/pull`, {
    method: "POST", headers: { "Content-Type": "application/json", Authorization: "Bearer root-secret" }, body: '{"model":"owner/large"}',
  });
  await hub.held();
  other.signal("SIGTERM");
  const answer = await pull;
  assert.equal(answer.status, 503);
  assert.match((await answer.json()).error.message, /stopped: the next one continues where it ended/);
  assert.deepEqual(await other.ended(), { code: 0, signal: null });
  assert.match(readdirSync(join(folder, "third", "models--owner--large", "blobs"))[0], /\.incomplete$/);
});
