// A cluster over TLS, whose nodes announce a host name: their certificate contains that name and no address.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { completed, prompt_of, published, resumed, start } from "./fleet_support.mjs";
import { kNeedsRedis, start_redis_cluster } from "./redis_server.mjs";
import { cut_stream } from "../server_process.mjs";

const kPrompts = 8;
// A bare root may have no /etc/hosts.
const has_name = spawnSync("getent", ["hosts", "localhost"]).status === 0;
const options = { ...kNeedsRedis, skip: kNeedsRedis.skip || (has_name ? false : "localhost has no address here") };

test("blocks lie on all nodes of a cluster that is reached by its nodes' names, over TLS with a user of its own", options, async () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-cluster-tls-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const [key, certificate] = [join(folder, "key.pem"), join(folder, "certificate.pem")];
  const made = spawnSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
  assert.equal(made.status, 0);
  const cluster = await start_redis_cluster(2, { key, certificate });
  // What the guide says that their users need, and nothing else.
  const users = [["kv", "~quire:*", "+get", "+set", "+strlen", "+ping", "+asking", "+cluster|nodes"],
    ["streams", "~quire:*", "~{quire:streams}:*", "+get", "+set", "+strlen", "+ping", "+asking", "+cluster|nodes", "+eval", "+exists", "+pexpire"],
    ["quotas", "~{quire:quotas}:*", "+eval", "+time", "+zadd", "+zremrangebyscore", "+zcard", "+hmget", "+hset", "+expire", "+ping", "+cluster|nodes"]];
  for (const node of cluster.nodes) {
    for (const [name, ...rules] of users) assert.match(await node.command("ACL", "SETUSER", name, "on", ">s3cret", ...rules), /OK/);
  }
  const flags = (host, user = "kv") => ["--kv-cache.shared.url", `rediss://${user}:s3cret@${host}:${cluster.nodes[0].tls_port}`, "--kv-cache.shared.ca", certificate];
  const alone = await start(null);
  const texts = [];
  for (let index = 0; index < kPrompts; ++index) texts.push(await completed(alone, index));
  await alone.stop();
  const first = await start(null, flags("localhost"));
  await first.metric_becomes("quire:shared_store_up", (up) => up === 1);
  for (let index = 0; index < kPrompts; ++index) assert.equal(await completed(first, index), texts[index]);
  await published(first);
  const written = (await first.metrics())["quire:shared_store_blocks_written_total"];
  const sizes = await Promise.all(cluster.masters().map((node) => node.num_keys("quire:*")));
  assert.equal(sizes.reduce((sum, size) => sum + size), written);
  for (const size of sizes) assert.ok(size > 0, `${sizes}`);
  assert.ok(!first.log.some((line) => line.includes("s3cret")), "a password was logged");
  const second = await start(null, flags("localhost"));
  await second.metric_becomes("quire:shared_store_up", (up) => up === 1);
  for (let index = 0; index < kPrompts; ++index) {
    const body = { model: "quire-demo", prompt: prompt_of(index), max_tokens: 1, kv_transfer_params: { do_remote_decode: true } };
    const named = await (await first.post("/v1/completions", body)).json();
    const more = { kv_transfer_params: named.kv_transfer_params };
    assert.equal(await completed(second, index, undefined, more), texts[index]);
  }
  assert.ok((await second.metrics())["quire:shared_store_blocks_read_total"] > 0, "blocks came from the cluster");
  // A stream whose daemon is killed is continued at another one, by a user for blocks and streams.
  const resuming = [];
  for (let index = 0; index < 2; ++index) {
    resuming.push(await start(null, [...flags("localhost", "streams"), "--server.resume.window", "60s"]));
    await resuming[index].metric_becomes("quire:shared_store_up", (up) => up === 1);
    await resuming[index].logged((line) => line.includes("streams can be resumed at another daemon"));
  }
  const asked = { model: "quire-demo", prompt: prompt_of(0), max_tokens: 600, temperature: 1, ignore_eos: true, stream: true };
  const headers = { "X-Request-Id": "cut" };
  const events = await resumed(...resuming, asked, headers, () => cluster.num_keys("{quire:streams}:stream:*"));
  const whole = await cut_stream(`${resuming[1].url}/v1/completions`, asked, { ...headers, "Last-Event-ID": "0" });
  assert.deepEqual(whole.events, events);
  await resuming[1].stop();
  // Rates of keys by a user of their own, on one of the nodes.
  const config = join(folder, "quire.yaml");
  writeFileSync(config, `security:\n  metrics: open\n  keys:\n    - {name: a, sha256: ${createHash("sha256").update("a").digest("hex")}, requests_per_minute: 60}\n`);
  const limited = await start(null, ["--config", config, "--shared-quotas.url", `rediss://quotas:s3cret@localhost:${cluster.nodes[0].tls_port}`,
    "--shared-quotas.ca", certificate]);
  await limited.metric_becomes("quire:shared_quotas_up", (up) => up === 1);
  await completed(limited, 0, { "Content-Type": "application/json", Authorization: "Bearer a" });
  await limited.metric_becomes("quire:shared_quota_replicas", (count) => count === 1);
  assert.equal((await limited.metrics())["quire:shared_quota_failures_total"], 0);
  while ((await cluster.num_keys("{quire:quotas}:*")) === 0);
  await limited.stop();
  // By its address the first node is not the one that the certificate names.
  const by_address = await start(null, flags("127.0.0.1"));
  await by_address.logged((line) => /kv_cache.shared: .* is not used: /.test(line));
  assert.equal(await completed(by_address, 0), texts[0]);
  for (const server of [first, second, by_address]) await server.stop();
});
