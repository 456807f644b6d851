// Daemons over a real cluster: three nodes with the slots and one replica each, of which nodes are killed under load.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { completed, prompt_of, published, resumed } from "./fleet_support.mjs";
import { kNeedsRedis as options, start_redis_cluster } from "./redis_server.mjs";
import { QuireServer } from "../server_process.mjs";

const kRequests = 240;  // per minute, of each key
const kPrompts = 12;
const secret_of = (name) => `${name}-secret`;
const headers_of = (name) => ({ "Content-Type": "application/json", Authorization: `Bearer ${secret_of(name)}` });

const folder = mkdtempSync(join(tmpdir(), "quire-cluster-"));
after(() => rmSync(folder, { recursive: true, force: true }));
let cluster;
const texts = [];

const become = (servers, name, wanted) => Promise.all(servers.map((server) => server.metric_becomes(name, wanted)));

async function start(shares = true, flags = []) {
  const store = ["--kv-cache.shared.url", cluster.url, "--shared-quotas.url", cluster.url, "--shared-quotas.replicas", "2", "--server.resume.window", "600s"];
  const server = await QuireServer.start(["--config", join(folder, "quire.yaml"), ...(shares ? store : []), ...flags]);
  after(() => server.kill());
  if (shares) await become([server], "quire:shared_store_up", (value) => value === 1);
  return server;
}

if (!options.skip) {
  const names = ["everywhere", "unlucky"];
  const key = (name, more) => `    - {name: ${name}, sha256: ${createHash("sha256").update(secret_of(name)).digest("hex")}${more}}\n`;
  writeFileSync(join(folder, "quire.yaml"), "security:\n  metrics: open\n  keys:\n" + key("free", "") +
    names.map((name) => key(name, `, requests_per_minute: ${kRequests}`)).join("") + "kv_cache:\n  isolate_by_key: false\n");
  cluster = await start_redis_cluster(3);
  const alone = await start(false);
  for (let index = 0; index < kPrompts; ++index) texts.push(await completed(alone, index, headers_of("free")));
  await alone.stop();
}

const cached_blocks = async (server) => (await server.metrics())["quire:shared_store_blocks_read_total"];

test("blocks lie on all nodes, and another daemon starts from them", options, async () => {
  const first = await start();
  for (let index = 0; index < kPrompts; ++index) assert.equal(await completed(first, index, headers_of("free")), texts[index]);
  await published(first);
  const written = (await first.metrics())["quire:shared_store_blocks_written_total"];
  const sizes = await Promise.all(cluster.masters().map((node) => node.num_keys("quire:*")));
  assert.equal(sizes.reduce((sum, size) => sum + size), written);
  for (const size of sizes) assert.ok(size > 0, `${sizes}`);
  await first.stop();
  // Whatever computing them would cost: the first of these requests names the blocks, the second one fetches them.
  const [again, second] = [await start(), await start()];
  for (let index = 0; index < kPrompts; ++index) {
    const body = { model: "quire-demo", prompt: prompt_of(index), max_tokens: 1, kv_transfer_params: { do_remote_decode: true } };
    const named = await (await again.post("/v1/completions", body, { headers: headers_of("free") })).json();
    const more = { kv_transfer_params: named.kv_transfer_params };
    assert.equal(await completed(second, index, headers_of("free"), more), texts[index]);
  }
  assert.ok(await cached_blocks(second) >= written / 2, `${await cached_blocks(second)} of ${written} were read`);
  await again.stop();
  console.log(`# ${written} blocks written, on the nodes ${sizes}; ${await cached_blocks(second)} read by another daemon`);
  await second.stop();
});

// Requests of one key at all of these, until `enough` were admitted; what is admitted of what its rate allows.
async function overload(servers, name, enough) {
  let admitted = 0;
  const begin = performance.now();
  await Promise.all(servers.map(async (server) => {
    while (admitted < enough) {
      const response = await server.post("/v1/completions", { prompt: "Once", max_tokens: 1 }, { headers: headers_of(name) });
      const answer = await response.json();
      assert.ok(response.status === 200 || answer.error.code === "rate_limit_exceeded", JSON.stringify(answer));
      if (response.status === 200) ++admitted;
    }
  }));
  return admitted / (kRequests * (1 + (performance.now() - begin) / 60_000));
}

// A stream that its daemon does not end is ended by the other.
const is_resumed = (first, second, id) => resumed(first, second,
  { model: "quire-demo", prompt: "Once upon a time", max_tokens: 600, temperature: 1, ignore_eos: true, stream: true },
  { ...headers_of("free"), "X-Request-Id": id }, () => cluster.num_keys("*:stream:*"));

test("a key has one rate, and a stream ends at another daemon", options, async () => {
  const servers = [await start(), await start()];
  await become(servers, "quire:shared_quota_replicas", (value) => value === 2);
  const share = await overload(servers, "everywhere", kRequests * 1.1);
  console.log(`# ${share.toFixed(3)} of the rate were admitted`);
  assert.ok(Math.abs(share - 1) <= 0.05, `${share}`);
  await is_resumed(servers[0], servers[1], "one");
  await servers[1].stop();
});

test("nodes die under load: no request fails, and what their replicas took over is used", options, async () => {
  const servers = [await start(), await start()];
  await become(servers, "quire:shared_quota_replicas", (value) => value === 2);
  let done = false;
  let num_answered = 0;
  const load = Promise.all(servers.map(async (server, place) => {
    for (let index = place; !done; ++index, ++num_answered) assert.equal(await completed(server, index % kPrompts, headers_of("free")), texts[index % kPrompts]);
  }));
  // That which has the quotas: every daemon needs its slot.
  const victim = await cluster.master_of("{quire:quotas}:");
  const begin = performance.now();
  await victim.kill();
  await become(servers, "quire:shared_quotas_up", (value) => value === 0);
  const replica = await cluster.promoted(victim);
  const promoted = performance.now();
  await become(servers, "quire:shared_quotas_up", (value) => value === 1);
  await become(servers, "quire:shared_quota_replicas", (value) => value === 2);
  const shared_again = performance.now();
  // Its blocks too: new ones reach the replica.
  const before = await replica.num_keys("quire:*");
  for (let index = kPrompts; (await replica.num_keys("quire:*")) <= before; ++index) await completed(servers[0], index, headers_of("free"));
  done = true;
  await load;
  for (const server of servers) {
    const metrics = await server.metrics();
    assert.equal(metrics["quire:shared_store_up"], 1);
    assert.equal(metrics["quire:shared_store_failures_total"], 0);
  }
  console.log(`# ${num_answered} requests answered; the replica had the slots ${((promoted - begin) / 1000).toFixed(1)} s after the death, the quotas were shared ` +
    `again ${((shared_again - promoted) / 1000).toFixed(1)} s after that`);
  const share = await overload(servers, "unlucky", kRequests * 1.1);
  console.log(`# ${share.toFixed(3)} of the rate were admitted after it`);
  assert.ok(Math.abs(share - 1) <= 0.05, `${share}`);
  await is_resumed(servers[0], servers[1], "two");
  await servers[1].stop();
});
