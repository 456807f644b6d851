// API keys, quotas and the pages that stay open, with the configuration in a file as an operator writes it.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { QuireServer } from "../server_process.mjs";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");
let server;

before(async () => {
  const folder = mkdtempSync(join(tmpdir(), "quire-"));
  writeFileSync(join(folder, "carol"), "carol-secret\n");
  writeFileSync(join(folder, "quire.yaml"), `
security:
  keys:
    - {name: alice, sha256: ${sha256("alice-secret")}}
    - {name: bob, env: BOB_KEY, requests_per_minute: 2}
    - {name: carol, file: ${join(folder, "carol")}, admin: true}
  metrics: admin
  cors_origins: [https://chat.example]
`);
  server = await QuireServer.start(["--config", join(folder, "quire.yaml")], { env: { BOB_KEY: "bob-secret" } });
});
after(() => server.stop());

const kBody = { prompt: "Once", max_tokens: 2 };
const ask = (key) => server.post("/v1/completions", kBody, {
  headers: { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) },
});

test("an OpenAI client is served with its key and told apart without", async () => {
  const client = (apiKey) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
  const answer = await client("alice-secret").completions.create({ model: "quire-demo", ...kBody });
  assert.equal(answer.usage.completion_tokens, 2);
  await assert.rejects(client("wrong").completions.create({ model: "quire-demo", ...kBody }), (error) =>
    error instanceof OpenAI.AuthenticationError && error.code === "invalid_api_key");
  assert.equal((await ask()).status, 401);
  assert.equal((await ask("carol-secret")).status, 200);
});

test("a key over its share is a rate limit error with a time to come back", async () => {
  assert.equal((await ask("bob-secret")).status, 200);
  const second = await ask("bob-secret");
  assert.equal(second.status, 200);
  assert.equal(second.headers.get("x-ratelimit-remaining-requests"), "0");
  const third = await ask("bob-secret");
  assert.equal(third.status, 429);
  assert.ok(Number(third.headers.get("retry-after")) > 0);
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "bob-secret", maxRetries: 0 });
  await assert.rejects(client.completions.create({ model: "quire-demo", ...kBody }), OpenAI.RateLimitError);
});

test("health pages are open, the metrics page is the admin's", async () => {
  for (const path of ["/livez", "/readyz", "/startupz", "/health"]) {
    assert.equal((await fetch(server.url + path)).status, 200);
  }
  assert.equal((await fetch(`${server.url}/metrics`)).status, 401);
  const metrics = await fetch(`${server.url}/metrics`, { headers: { "x-api-key": "carol-secret" } });
  assert.match(await metrics.text(), /quire:key_requests_total\{code="429",key="bob"\}/);
});

test("no key is ever written to the log", () => {
  assert.ok(!server.log.join("\n").includes("secret"));
});
