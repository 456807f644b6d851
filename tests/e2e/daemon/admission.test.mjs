// Waiting requests are bounded by number, tokens and time, over all keys and for each key: refusals come early, say
// when to retry, and do not affect admitted requests.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

async function start(flags) {
  const server = await QuireServer.start(["--max-num-seqs", "1", ...flags]);
  after(() => server.kill());
  return server;
}

const kWork = { model: "quire-demo", prompt: "Once upon a time", max_tokens: 1200, temperature: 0, ignore_eos: true };

async function asked(server, body = kWork, key = "none") {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  const response = await server.post("/v1/completions", body, { headers });
  const answer = await response.json();
  return { status: response.status, retry_after: response.headers.get("retry-after"), error: answer.error, usage: answer.usage };
}

// A burst that arrives long before its first request is finished: what was served, and the refusals.
async function burst(server, count, key) {
  const answers = await Promise.all(Array.from({ length: count }, () => asked(server, kWork, key)));
  const served = answers.filter(({ status }) => status === 200);
  for (const { usage } of served) assert.equal(usage.completion_tokens, kWork.max_tokens);
  return { served, refused: answers.filter(({ status }) => status !== 200) };
}

function tells_when_to_come_back({ retry_after }) {
  assert.match(retry_after, /^[1-9]\d*$/);
  assert.ok(Number(retry_after) <= 600);
}

test("the server's bound on waiting requests: 503 with Retry-After, and room again later", async () => {
  const server = await start(["--queue.max-queued-requests", "2"]);
  const { served, refused } = await burst(server, 16);
  assert.ok(served.length >= 2 && refused.length > 0);
  for (const each of refused) {
    assert.equal(each.status, 503);
    assert.equal(each.error.code, "server_overloaded");
    tells_when_to_come_back(each);
  }
  assert.equal((await asked(server)).status, 200);
  await server.stop();
});

test("a key's bound on waiting requests: 429 with Retry-After, and another key is served", async () => {
  const config = join(mkdtempSync(join(tmpdir(), "quire-")), "quire.yaml");
  const sha256 = (text) => createHash("sha256").update(text).digest("hex");
  writeFileSync(config, `
security: {keys: [{name: alice, sha256: ${sha256("alice-secret")}}, {name: bob, sha256: ${sha256("bob-secret")}}]}
queue: {max_queued_requests_per_key: 2}
`);
  const server = await start(["--config", config]);
  const neighbour = asked(server, kWork, "bob-secret");
  const { served, refused } = await burst(server, 16, "alice-secret");
  assert.equal((await neighbour).status, 200);
  assert.ok(served.length >= 2 && refused.length > 0);
  for (const each of refused) {
    assert.equal(each.status, 429);
    assert.equal(each.error.code, "rate_limit_exceeded");
    tells_when_to_come_back(each);
  }
  await server.stop();
});

test("the bound on waiting tokens: 503; a prompt that is larger by itself: 400", async () => {
  const server = await start(["--queue.max-queued-tokens", "12"]);
  const { refused } = await burst(server, 16);
  assert.ok(refused.length > 0);
  for (const each of refused) {
    assert.equal(each.status, 503);
    tells_when_to_come_back(each);
  }
  const larger = await asked(server, { ...kWork, prompt: "a story of a river ".repeat(10), max_tokens: 5 });
  assert.equal(larger.status, 400);
  assert.equal(larger.error.code, "request_too_large");
  await server.stop();
});

test("a request's own deadline cuts it with 504", async () => {
  const server = await start([]);
  const answer = await asked(server, { ...kWork, timeout: 0.005 });
  assert.equal(answer.status, 504);
  assert.equal(answer.error.code, "deadline_exceeded");
  assert.equal((await asked(server, { ...kWork, max_tokens: 5 })).status, 200);
  await server.stop();
});

test("a request that waits longer than the queue's deadline gets 503", async () => {
  const server = await start(["--queue.max-queue-time", "50ms"]);
  // The only place is taken, by a request that is known to run.
  const running = (await server.post("/v1/completions", { ...kWork, stream: true })).body.getReader();
  await running.read();
  const refused = await Promise.all([asked(server), asked(server)]);
  await running.cancel();
  for (const each of refused) {
    assert.equal(each.status, 503);
    assert.equal(each.error.code, "queue_timeout");
    tells_when_to_come_back(each);
  }
  await server.stop();
});
