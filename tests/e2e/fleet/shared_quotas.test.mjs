// Three daemons share the rates of a key through a real Redis: together they admit the key's limit, however
// the requests are spread and even if the store fails.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { free_port, kNeedsRedis as options, Redis } from "./redis_server.mjs";
import { QuireServer } from "../server_process.mjs";

const kRequests = 600;  // per minute, of each key
const kTokens = 12_000;
const kTolerance = 0.05;
const secret_of = (name) => `${name}-secret`;

const folder = mkdtempSync(join(tmpdir(), "quire-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const redis = new Redis(await free_port());
let servers = [];
after(() => servers.forEach((server) => server.kill()));

const become = (name, wanted) => Promise.all(servers.map((server) => server.metric_becomes(name, wanted)));

before(async () => {
  if (options.skip) return;
  const key = (name, limits) => `    - {name: ${name}, sha256: ${createHash("sha256").update(secret_of(name)).digest("hex")}, ${limits}}\n`;
  const names = ["everywhere", "greedy", "unlucky", "returning"];
  writeFileSync(join(folder, "quire.yaml"), "security:\n  keys:\n" +
    names.map((name) => key(name, `requests_per_minute: ${kRequests}`)).join("") + key("wordy", `tokens_per_minute: ${kTokens}`));
  await redis.start();
  servers = await Promise.all([1, 2, 3].map(() =>
    QuireServer.start(["--config", join(folder, "quire.yaml"), "--shared-quotas.url", redis.url, "--shared-quotas.replicas", "3"])));
  await become("quire:shared_quota_replicas", (value) => value === 3);
});

const ask = (server, name, body) => server.post("/v1/completions", body,
  { headers: { "Content-Type": "application/json", Authorization: `Bearer ${secret_of(name)}` } });

// Requests of one key, three at each of these daemons at once, again and again until `enough` of what `cost` counts was
// admitted. What one daemon alone would have admitted in that time is a minute's worth and what the rate gave.
async function overload(over, name, per_minute, enough, { body = { prompt: "Once", max_tokens: 1 }, cost = () => 1, during = () => {} } = {}) {
  let admitted = 0;
  const begin = performance.now();
  const work = async (server) => {
    while (admitted < enough) {
      const response = await ask(server, name, body);
      const answer = await response.json();
      if (response.status === 200) {
        admitted += cost(answer);
        during(admitted);
      } else {
        assert.equal(response.status, 429, JSON.stringify(answer));
        assert.equal(answer.error.code, "rate_limit_exceeded");
        assert.ok(Number(response.headers.get("retry-after")) >= 1);
      }
    }
  };
  await Promise.all(over.flatMap((server) => [work(server), work(server), work(server)]));
  const allowed = per_minute * (1 + (performance.now() - begin) / 60_000);
  return { admitted, allowed, share: admitted / allowed };
}

const is_near = ({ admitted, allowed, share }) =>
  assert.ok(Math.abs(share - 1) <= kTolerance, `${admitted} were admitted where ${allowed.toFixed(1)} are allowed`);

test("requests at all daemons, far above the rate, are admitted at the rate", options, async () => {
  is_near(await overload(servers, "everywhere", kRequests, kRequests * 1.2));
});

test("one busy daemon gets all of the rate while the others are idle", options, async () => {
  is_near(await overload([servers[0]], "greedy", kRequests, kRequests * 1.1));
});

test("tokens, prompts' and generated ones, are counted together", options, async () => {
  const body = { prompt: "a story of a river and a token ".repeat(8), max_tokens: 8, ignore_eos: true };
  is_near(await overload(servers, "wordy", kTokens, kTokens * 1.15, { body, cost: ({ usage }) => usage.total_tokens }));
});

test("the store is killed and comes back: each daemon holds its part, and no request fails", options, async () => {
  let killed;
  const during = (admitted) => {
    if (admitted >= kRequests / 2) killed ??= redis.kill();
  };
  is_near(await overload(servers, "unlucky", kRequests, kRequests * 1.15, { during }));
  await killed;
  await become("quire:shared_quotas_up", (value) => value === 0);
  // Without it from the start, and with one that has lost everything.
  is_near(await overload(servers, "returning", kRequests, kRequests * 1.05));
  const used_up = performance.now();
  await redis.start();
  await become("quire:shared_quotas_up", (value) => value === 1);
  await become("quire:shared_quota_replicas", (value) => value === 3);
  const { admitted } = await overload(servers, "returning", kRequests, kRequests * 0.6);
  const beyond = admitted - kRequests * (performance.now() - used_up) / 60_000;  // what the rate gave meanwhile
  assert.ok(beyond <= kRequests * 2 * kTolerance, `${beyond} of the minute's worth that was used up were given again`);
});

test("daemons end in order, and none of them said that something is broken", options, async () => {
  for (const server of servers) {
    assert.equal(server.log.filter((line) => /CHECK|invariant/.test(line)).length, 0);
    await server.stop();
  }
});
