// Files and batches with the unmodified npm package `openai`: whole runs, kill -9 in the middle, keys, drain, expiry.
import assert from "node:assert/strict";
import { File } from "node:buffer";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import OpenAI, { toFile } from "openai";
import { QuireServer, sse_events } from "../server_process.mjs";

globalThis.File ??= File;  // node 18 has it in its module only

function folder() {
  const path = mkdtempSync(join(tmpdir(), "quire-batches-"));
  after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function start(directory, flags = [], options = {}) {
  const server = await QuireServer.start(["--batches.directory", directory, ...flags], options);
  after(() => server.kill());
  return server;
}

const client_of = (server, apiKey = "none") => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });

const lines = (requests) => requests.map((request) => JSON.stringify(request)).join("\n");
const chat = (custom_id, body = {}) => ({
  custom_id, method: "POST", url: "/v1/chat/completions",
  body: { model: "quire-demo", messages: [{ role: "user", content: `Say ${custom_id}` }], max_tokens: 24, temperature: 0, ...body },
});
const chats = (count, body) => Array.from({ length: count }, (_, i) => chat(`r${i}`, body));

async function submit(client, requests, endpoint = "/v1/chat/completions", more = {}) {
  const file = await client.files.create({ file: await toFile(Buffer.from(lines(requests)), "in.jsonl"), purpose: "batch" });
  return client.batches.create({ input_file_id: file.id, endpoint, completion_window: "24h", ...more });
}

// Until `wanted` accepts it.
async function until(client, id, wanted) {
  const late = Date.now() + 300_000;
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (wanted(batch)) return batch;
    if (Date.now() > late) throw new Error(`waited for the batch: ${JSON.stringify(batch)}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const ended = (batch) => ["completed", "failed", "expired", "cancelled"].includes(batch.status);

async function content(client, id) {
  if (!id) return [];
  const text = await (await client.files.content(id)).text();
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

// Each custom_id is in one of the two files, once.
async function check_once(client, batch, ids) {
  const output = await content(client, batch.output_file_id);
  const errors = await content(client, batch.error_file_id);
  assert.deepEqual([...output, ...errors].map((line) => line.custom_id).sort(), [...ids].sort());
  assert.equal(batch.request_counts.total, ids.length);
  assert.equal(batch.request_counts.completed, output.length);
  assert.equal(batch.request_counts.failed, errors.length);
  return { output, errors };
}

test("each endpoint's batch answers what its requests alone get", async () => {
  const server = await start(folder());
  const client = client_of(server);
  const kinds = [
    ["/v1/chat/completions", { messages: [{ role: "user", content: "What is a KV block?" }], max_tokens: 32, temperature: 0 },
      (body) => body.choices[0].message.content],
    ["/v1/completions", { prompt: "Once upon a time", max_tokens: 16, temperature: 0 }, (body) => body.choices[0].text],
    ["/v1/embeddings", { input: ["one", "two"] }, (body) => body.data.map((each) => each.embedding[0])],
    ["/v1/responses", { input: "What is a KV block?", max_output_tokens: 32, temperature: 0, store: false },
      (body) => body.output.at(-1).content[0].text],
  ];
  for (const [url, body, text_of] of kinds) {
    const request = { model: "quire-demo", ...body };
    const alone = text_of(await (await server.post(url, request)).json());
    const made = await submit(client, [{ custom_id: "a", method: "POST", url, body: request }], url, { metadata: { kind: url } });
    assert.equal(made.status, "validating");
    const batch = await until(client, made.id, ended);
    assert.equal(batch.status, "completed", JSON.stringify(batch));
    assert.equal(batch.metadata.kind, url);
    const { output } = await check_once(client, batch, ["a"]);
    assert.equal(output[0].response.status_code, 200);
    assert.deepEqual(text_of(output[0].response.body), alone, url);
    assert.ok(batch.usage.input_tokens > 0);
  }
  const listed = [];
  for await (const batch of client.batches.list({ limit: 2 })) listed.push(batch.endpoint);
  assert.deepEqual(listed.sort(), kinds.map(([url]) => url).sort());
  const files = [];
  for await (const file of client.files.list()) files.push(file.purpose);
  assert.equal(files.filter((purpose) => purpose === "batch_output").length, 4);
  await server.stop();
});

test("kill -9 again and again in a batch of hundreds: each request is answered once", async () => {
  const directory = folder();
  const requests = [...chats(300), chat("bad", { temperature: -1 })];
  let server = await start(directory);
  const { id } = await submit(client_of(server), requests);
  let num_kills = 0;
  let before = 0;
  for (;;) {
    const client = client_of(server);
    const batch = await until(client, id, (each) => ended(each) || each.request_counts.completed >= before + 40);
    if (ended(batch)) break;
    before = batch.request_counts.completed;
    server.kill();
    await server.ended();
    ++num_kills;
    server = await start(directory);
    // What was answered stays answered.
    const again = await client_of(server).batches.retrieve(id);
    assert.ok(again.request_counts.completed >= before, `${again.request_counts.completed} of ${before}`);
  }
  assert.ok(num_kills >= 3, `${num_kills} kills`);
  const client = client_of(server);
  const batch = await client.batches.retrieve(id);
  assert.equal(batch.status, "completed");
  const { output, errors } = await check_once(client, batch, requests.map((request) => request.custom_id));
  assert.equal(errors.length, 1);
  assert.equal(errors[0].response.body.error.param, "temperature");
  for (const line of output) assert.equal(line.response.body.object, "chat.completion");
  await server.stop();
});

test("a drain ends quickly with code 0, and the next process continues the batch", async () => {
  const directory = folder();
  const first = await start(directory);
  const requests = chats(120, { max_tokens: 200, ignore_eos: true });
  const { id } = await submit(client_of(first), requests);
  await until(client_of(first), id, (batch) => batch.request_counts.completed > 5);
  await first.stop();  // throws unless the code is 0
  const second = await start(directory);
  const client = client_of(second);
  const batch = await until(client, id, ended);
  assert.equal(batch.status, "completed");
  await check_once(client, batch, requests.map((request) => request.custom_id));
  await second.stop();
});

test("cancel: what was answered is in the output file, the rest in the error file", async () => {
  const server = await start(folder());
  const client = client_of(server);
  const requests = chats(200, { max_tokens: 60, ignore_eos: true });
  const { id } = await submit(client, requests);
  await until(client, id, (batch) => batch.request_counts.completed > 3);
  const cancelling = await client.batches.cancel(id);
  assert.equal(cancelling.status, "cancelling");
  const batch = await until(client, id, ended);
  assert.equal(batch.status, "cancelled");
  const { output, errors } = await check_once(client, batch, requests.map((request) => request.custom_id));
  assert.ok(output.length > 3);
  assert.ok(errors.length > 0);
  assert.ok(errors.every((line) => line.error.code === "batch_cancelled" && line.response === null));
  await assert.rejects(client.batches.cancel(id), OpenAI.ConflictError);
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  await server.stop();
});

test("a user's stream runs beside a batch, and both are answered", async () => {
  const server = await start(folder());
  const client = client_of(server);
  const requests = chats(60, { max_tokens: 40, ignore_eos: true });
  const { id } = await submit(client, requests);
  await server.metric_becomes("quire:batch_requests_running", (value) => value > 0);
  const response = await server.post("/v1/completions", {
    model: "quire-demo", prompt: "Once upon a time", max_tokens: 300, temperature: 0, ignore_eos: true, stream: true,
  });
  let text = "";
  for await (const event of sse_events(response)) text += event.choices[0]?.text ?? "";
  assert.ok(text.length > 300);
  await check_once(client, await until(client, id, ended), requests.map((request) => request.custom_id));
  await server.stop();
});

test("two keys: neither sees, reads, cancels or uses what the other stored", async () => {
  const keys = ["--security.keys", "name=ann,env=ANN_KEY", "--security.keys", "name=ben,env=BEN_KEY"];
  const server = await start(folder(), keys, { env: { ANN_KEY: "ann-secret", BEN_KEY: "ben-secret" } });
  const ann = client_of(server, "ann-secret");
  const ben = client_of(server, "ben-secret");
  const made = await submit(ann, chats(3));
  const batch = await until(ann, made.id, ended);
  assert.equal(batch.status, "completed");
  for (const id of [batch.input_file_id, batch.output_file_id]) {
    await assert.rejects(ben.files.retrieve(id), OpenAI.NotFoundError);
    await assert.rejects(ben.files.content(id), OpenAI.NotFoundError);
    await assert.rejects(ben.files.delete(id), OpenAI.NotFoundError);
  }
  await assert.rejects(ben.batches.retrieve(batch.id), OpenAI.NotFoundError);
  await assert.rejects(ben.batches.cancel(batch.id), OpenAI.NotFoundError);
  const steals = { input_file_id: batch.input_file_id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  await assert.rejects(ben.batches.create(steals), OpenAI.BadRequestError);
  assert.deepEqual((await ben.files.list()).data, []);
  assert.deepEqual((await ben.batches.list()).data, []);
  assert.equal((await ann.files.delete(batch.output_file_id)).deleted, true);
  assert.equal((await ann.batches.retrieve(batch.id)).output_file_id, null);
  await server.stop();
});

test("errors reach the SDK as its own classes", async () => {
  const server = await start(folder());
  const client = client_of(server);
  const jsonl = await toFile(Buffer.from("{\n"), "in.jsonl");
  await assert.rejects(client.files.create({ file: jsonl, purpose: "fine-tune" }), (error) => error.param === "purpose");
  const file = await client.files.create({ file: jsonl, purpose: "batch" });
  assert.equal(file.filename, "in.jsonl");
  const refused = { input_file_id: file.id, endpoint: "/v1/rerank", completion_window: "24h" };
  await assert.rejects(client.batches.create(refused), (error) => error.param === "endpoint");
  const made = await client.batches.create({ ...refused, endpoint: "/v1/completions" });
  const failed = await until(client, made.id, ended);
  assert.equal(failed.status, "failed");
  assert.equal(failed.errors.data[0].code, "invalid_json_line");
  assert.equal(failed.errors.data[0].line, 1);
  await server.stop();
});
