// What hostile and unlucky clients do. Each attack is a function of a context ({port, random, work, check, max_body}) that
// resolves once the server has dealt with it, and throws where it did so wrongly. `check(job, answer)` compares what was said
// with what the same request is answered alone.
import assert from "node:assert/strict";
import { kHost, other_answers, post, RawClient } from "./raw_client.mjs";

const kRefusedHeads = [
  "GET / HTTP/1.1\nHost: a\n\n",
  "GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
  "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
  "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
  "GET / HTTP/1.1\r\n\r\n",
  "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
  "GET / \x00 HTTP/1.1\r\nHost: a\r\n\r\n",
  "G\x00T / HTTP/1.1\r\nHost: a\r\n\r\n",
  "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  `POST /v1/completions HTTP/1.1\r\n${kHost}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Content-Length: +5\r\n\r\nhello`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Content-Length: 99999999999999999999\r\n\r\n`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n`,
  `POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n`,
];

// A job of the valid clients as bytes, and its whole answer.
const question = (job) => post(job.path, JSON.stringify(job.body), { fields: "Connection: close\r\n" });
const ask = (port, job) => new RawClient(port).send(question(job)).ended;

const noise = (random, length) => Buffer.from(Array.from({ length }, () => random(256)));

// Bytes of a valid message, some of them changed, cut out or doubled.
function damaged(random, text) {
  const bytes = Buffer.from(text);
  const parts = [bytes];
  for (let i = 0; i <= random(3); ++i) {
    const at = random(bytes.length);
    if (random(3) === 0) {
      parts.push(bytes.subarray(at, at + random(40)));
    } else if (random(2) === 0) {
      parts[0] = Buffer.concat([parts[0].subarray(0, at), parts[0].subarray(at + 1 + random(8))]);
    } else {
      bytes[at] = random(256);
    }
  }
  return Buffer.concat(parts);
}

// Never served, never left hanging: a refusal and a closed connection.
async function malformed_head({ port, random }) {
  const head = kRefusedHeads[random(kRefusedHeads.length)];
  const client = new RawClient(port).send(Buffer.from(head, "latin1"));
  const text = await client.ended;
  assert.match(text, /^HTTP\/1\.1 (400|408|413|414|431|501|505) /, `${JSON.stringify(head)}: ${text}`);
}

async function noisy_head({ port, random }) {
  const client = new RawClient(port).send(noise(random, 1 + random(3000))).finish_sending();
  assert.doesNotMatch(await client.ended, /^HTTP\/1\.1 (2|5)/);
}

async function damaged_body({ port, random, work }) {
  const { path, body } = work[random(work.length)];
  const client = new RawClient(port).send(post(path, damaged(random, JSON.stringify({ ...body, max_tokens: 2 }))));
  const status = await client.status();
  client.close();
  assert.ok([200, 400, 404, 413, 422, 429].includes(status), `status ${status}: ${client.text()}`);
}

async function deep_body({ port, random }) {
  const depth = 100 + random(100000);
  const client = new RawClient(port).send(post("/v1/chat/completions", `{"messages":${"[".repeat(depth)}`));
  assert.equal(await client.status(), 400);
  client.close();
}

async function hostile_schema({ port, random }) {
  const schemas = [
    { $ref: "#" }, { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } }, { pattern: "(a+)+$(".repeat(20) },
    { type: "array", minItems: 1e15 }, { enum: [] }, { type: "object", required: ["a"], additionalProperties: false },
    { allOf: Array.from({ length: 200 }, () => ({ type: "string", minLength: 3 })) }, { type: "string", pattern: "(?=a)b" },
    { type: "integer", minimum: 10, maximum: 1 },
  ];
  const schema = schemas[random(schemas.length)];
  const body = { model: "quire-demo", prompt: "x", max_tokens: 3,
    response_format: { type: "json_schema", json_schema: { name: "s", schema } } };
  const client = new RawClient(port).send(post("/v1/completions", JSON.stringify(body)));
  const status = await client.status();
  client.close();
  assert.ok([200, 400].includes(status), `status ${status}: ${client.text()}`);
}

async function oversized_body({ port, max_body }) {
  const head = `POST /v1/completions HTTP/1.1\r\n${kHost}Content-Length: ${max_body + 1}\r\n\r\n`;
  const client = new RawClient(port).send(head + "x".repeat(1000));
  assert.equal(await client.status(), 413);
  client.close();
}

async function oversized_chunks({ port, max_body }) {
  const client = new RawClient(port).send(`POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked\r\n\r\n`);
  const chunk = `10000\r\n${"x".repeat(65536)}\r\n`;
  for (let sent = 0; sent <= max_body + 65536; sent += 65536) client.send(chunk);
  assert.equal(await client.status(), 413);
  client.close();
}

async function oversized_head({ port }) {
  const client = new RawClient(port).send(`GET / HTTP/1.1\r\n${kHost}${"X-Long: ".padEnd(9000, "y")}\r\n`.repeat(20));
  assert.ok([400, 431].includes(await client.status()), client.text().slice(0, 200));
  client.close();
}

async function oversized_prompt({ port }) {
  const client = new RawClient(port).send(post("/v1/completions", JSON.stringify({ prompt: "word ".repeat(20000), max_tokens: 1 })));
  assert.equal(await client.status(), 400);
  client.close();
}

// A head that never comes to its end, a byte after each whole answer to another client: the server's patience ends it.
async function slow_head({ port, work, check }) {
  const client = new RawClient(port).send("GET /livez HTTP/1.1\r\nX-Slow: ");
  const job = work[0];
  while (!client.socket.destroyed && client.bytes.length === 0) {
    client.send("z");
    check(job, await ask(port, job));
  }
  assert.match(await client.ended, /^HTTP\/1\.1 408 /);
}

async function slow_body({ port, work }) {
  const bytes = post(work[0].path, JSON.stringify(work[0].body));
  const client = new RawClient(port).send(bytes.subarray(0, bytes.length - 20));
  assert.match(await client.ended, /^HTTP\/1\.1 408 /);
}

// Hangs up in the head, in the body, while waiting, or in the stream; politely or by a reset.
async function disconnecting({ port, random, work }) {
  const { path, body } = work[random(work.length)];
  const bytes = post(path, JSON.stringify(body));
  const client = new RawClient(port);
  const when = random(4);
  if (when < 2) {
    client.send(bytes.subarray(0, when === 0 ? random(60) : bytes.length - 1 - random(20)));
    await other_answers(port, random(3));
  } else {
    client.send(bytes);
    if (when === 3) await client.until((text) => text.split("\n\n").length > 1 + random(20));
  }
  if (random(2) === 0) client.reset();
  else client.close();
  await client.ended;
}

// Asks and reads nothing at all until another client has the whole answer to the same question; what was said is whole.
async function slow_reader({ port, random, work, check }) {
  const job = work[random(work.length)];
  const client = new RawClient(port);
  client.socket.pause();
  client.send(question(job));
  check(job, await ask(port, job));
  client.socket.resume();
  check(job, await client.ended);
}

// Bytes in many pieces, quick enough.
async function piecemeal({ port, random, work, check }) {
  const job = work[random(work.length)];
  const bytes = question(job);
  const client = new RawClient(port);
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + random(60);
    client.send(bytes.subarray(at, at + size));
    at += size;
    await other_answers(port);
  }
  check(job, await client.ended);
}

async function over_quota({ port }) {
  const body = JSON.stringify({ prompt: "a", max_tokens: 1 });
  const clients = Array.from({ length: 4 }, () =>
    new RawClient(port).send(post("/v1/completions", body, { key: "limited" })));
  for (const client of clients) {
    const status = await client.status();
    assert.ok([200, 429].includes(status), `status ${status}`);
    if (status === 429) assert.match(client.text(), /\r\nRetry-After: \d+\r\n/);
    client.close();
  }
}

async function wrong_key({ port }) {
  const client = new RawClient(port).send(post("/v1/completions", "{}", { key: "unknown" }));
  const status = await client.status();
  assert.ok([401, 429].includes(status), `status ${status}`);  // one address may fail sixty times a minute
  client.close();
}

// A request behind another one that ends its connection must not be answered.
async function smuggling({ port }) {
  const client = new RawClient(port).send(
    `POST /v1/completions HTTP/1.1\r\n${kHost}Connection: close\r\nContent-Length: 2\r\n\r\n{}GET /livez HTTP/1.1\r\n${kHost}\r\n`);
  assert.equal((await client.ended).split("HTTP/1.1 ").length - 1, 1);
}

const chunked = `POST /v1/completions HTTP/1.1\r\n${kHost}Transfer-Encoding: chunked\r\n\r\n`;

// Heads that declare the largest body and bring none: they reserve nothing, so the valid requests beside them are served.
async function declared_bodies({ port, max_body }) {
  const head = `POST /v1/completions HTTP/1.1\r\n${kHost}Expect: 100-continue\r\nContent-Length: ${max_body}\r\n\r\n`;
  const clients = Array.from({ length: 40 }, () => new RawClient(port).send(head));
  for (const client of clients) assert.equal(await client.status(), 100, client.text());  // read, and waiting for its body
  for (const client of clients) client.close();
}

// Uploads that never end.
async function unfinished_chunks({ port, random, max_body }) {
  const client = new RawClient(port).send(chunked);
  const size = 1 + random(max_body - 1);
  client.send(`${size.toString(16)}\r\n${"x".repeat(size)}`);
  await other_answers(port, random(3));
  client.close();
}

// A list of many prompts is one request among others.
async function prompt_list({ port, random }) {
  const prompt = Array.from({ length: 64 }, (_, index) => `${index} ${random(1000)}`);
  const client = new RawClient(port).send(post("/v1/completions", JSON.stringify({ prompt, max_tokens: 1 })));
  assert.equal(await client.status(), 200);
  client.close();
}

// Far beyond the context, in one text and in a list: refused without being tokenized whole.
async function long_prompts({ port, random, max_body }) {
  const text = "word ".repeat((max_body - 2000) / 10);
  const client = new RawClient(port).send(post("/v1/completions", JSON.stringify({ prompt: random(2) ? text : ["a", text] })));
  assert.equal(await client.status(), 400);
  client.close();
}

// Texts that are only counted or cut, and lists that a step would pay for, as large as a body may be: read in bounds, and refused.
async function oversized_fields({ port, random, max_body }) {
  const size = max_body - 2000;
  const words = "word ".repeat(size / 5);
  const requests = [
    ["/tokenize", { prompt: "a b ".repeat(size / 4), with_pieces: true }],
    ["/detokenize", { tokens: Array(size >> 2).fill(300) }],
    ["/v1/messages/count_tokens", { messages: [{ role: "user", content: words }] }],
    ["/v1/completions", { prompt: words, truncate_prompt_tokens: 8, max_tokens: 1 }],
    ["/v1/completions", { prompt: "x", max_tokens: 1, logit_bias: Array(size >> 4).fill([300, 0.25]) }],
    ["/v1/completions", { prompt: "x", max_tokens: 1, bad_words: [words] }],
  ];
  const [path, body] = requests[random(requests.length)];
  const client = new RawClient(port).send(post(path, JSON.stringify(body)));
  assert.equal(await client.status(), 400, client.text().slice(0, 200));
  client.close();
}

// Costs the compiler what it may, and is new each time.
async function costly_schema({ port, random }) {
  const branches = Array.from({ length: 30 }, (_, index) => `[a-z]{0,${40 + index}}[0-9]{0,${20 + random(40)}}x${index}`);
  const body = { prompt: "x", max_tokens: 1, guided_regex: `(${branches.join("|")}){1,${2 + random(40)}}` };
  const client = new RawClient(port).send(post("/v1/completions", JSON.stringify(body)));
  if (random(2) === 0) await other_answers(port, random(3));
  else assert.ok([200, 400].includes(await client.status()), client.text());
  client.close();
}

// What a page of another site can send without asking first.
async function page_on_admin({ port }) {
  const bytes = '{"name":"quire-demo"}';
  const client = new RawClient(port).send(`POST /admin/models/sleep HTTP/1.1\r\n${kHost}Origin: https://evil.example.com\r\n` +
    `Content-Type: text/plain\r\nContent-Length: ${bytes.length}\r\n\r\n${bytes}`);
  assert.equal(await client.status(), 403);
  client.close();
}

export const kQuickAttacks = { declared_bodies, unfinished_chunks, prompt_list, long_prompts, oversized_fields, costly_schema,
  page_on_admin, malformed_head, noisy_head, damaged_body, deep_body, hostile_schema, oversized_body,
  oversized_chunks, oversized_head, oversized_prompt, disconnecting, slow_reader, piecemeal, over_quota,
  wrong_key, smuggling };
// What ends by the server's timeouts alone.
export const kSlowAttacks = { slow_head, slow_body };
