// The programs of deploy/examples, run as a reader would run them, against the daemon with the bundled model.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { QuireServer } from "../server_process.mjs";

const examples = join(process.env.QUIRE_SOURCE, "deploy/examples");
const folder = mkdtempSync(join(tmpdir(), "quire-"));
const kPatience = 300_000;  // milliseconds
let server;

before(async () => {
  server = await QuireServer.start(["--api-key", "secret", "--batches.directory", join(folder, "batches")]);
});
after(() => server.stop());

// {stdout, stderr} of a program that ended with 0; else its output is the error.
const run = (program, args = [], key = "secret") => promisify(execFile)(program, args, {
  timeout: kPatience, env: { ...process.env, QUIRE_URL: server.url, QUIRE_KEY: key, QUIRE_MODEL_NAME: "quire-demo" },
});
const file = (name, text) => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

test("curl.sh shows each part of the API", async () => {
  const { stdout } = await run(join(examples, "curl.sh"));
  for (const part of ["models:", "a chat:", "a stream:", "schema:", "embeddings:", "tokens:"]) assert.ok(stdout.includes(part), part);
  assert.match(stdout, /"quire-demo"/);
  assert.match(stdout, /data: \[DONE\]/);
  assert.match(stdout, /"content":"\{(\\n| )*\\"answer\\":(\\n| )*\\"(yes|no)\\"(\\n| )*\}"/);
  assert.match(stdout, /"embedding":\[/);
  assert.match(stdout, /"tokens":\[/);
});

test("curl.sh fails with the server's message where the key is wrong", async () => {
  await assert.rejects(run(join(examples, "curl.sh"), [], "wrong"), (error) => /invalid_api_key/.test(error.stdout));
});

for (const [program, script] of [["python3", "chat.py"], [process.execPath, "chat.mjs"]]) {
  test(`${script} streams the answers of a conversation`, async () => {
    const { stdout } = await run(program, [join(examples, script), "What is a KV block?", "Hello!"]);
    const lines = stdout.trim().split("\n");
    assert.ok(lines.length >= 2 && lines.every((line) => line.trim() !== ""), stdout);  // an answer is sampled: its words are not known
  });
}

test("agent.py answers", async () => {
  const { stdout } = await run("python3", [join(examples, "agent.py"), "What is a KV block?"]);
  assert.ok(stdout.trim().length > 0);
});

// The bundled model seldom calls a tool of itself, so that a scripted one shows the loop.
test("agent.py runs the tools that are called and sends their results", async () => {
  const calls = [["calculate", '{"expression": "17*3"}'], ["calculate", '{"expression": "open(1)"}'], ["today", "{}"]];
  const asked = [];
  const scripted = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    asked.push(JSON.parse(body).messages);
    const tool_calls = calls.map(([name, text], i) => ({ id: `call-${i}`, type: "function", function: { name, arguments: text } }));
    const message = asked.length === 1 ? { role: "assistant", content: null, tool_calls } : { role: "assistant", content: "It is 51." };
    response.end(JSON.stringify({ choices: [{ message }] }));
  }).listen(0, "127.0.0.1");
  await once(scripted, "listening");
  const url = `http://127.0.0.1:${scripted.address().port}`;
  const { stdout } = await promisify(execFile)("python3", [join(examples, "agent.py"), "What is 17 times 3?"], {
    timeout: kPatience, env: { ...process.env, QUIRE_URL: url },
  });
  scripted.close();
  assert.equal(stdout, "It is 51.\n");
  const results = asked[1].filter((message) => message.role === "tool");
  assert.deepEqual(results.map((message) => message.tool_call_id), ["call-0", "call-1", "call-2"]);
  assert.equal(results[0].content, "51");
  assert.match(results[1].content, /^error: cannot calculate/);
  assert.match(results[2].content, /^\d{4}-\d\d-\d\d$/);
});

test("rag.py finds, reranks and answers", async () => {
  const text = "A KV block holds the keys and values of sixteen tokens. ".repeat(20) + "Bread is baked from flour and water. ".repeat(30);
  const { stdout, stderr } = await run("python3", [join(examples, "rag.py"), "What is a KV block?", file("text.md", text)]);
  assert.equal(stderr.trim().split("\n").length, 3);
  for (const line of stderr.trim().split("\n")) assert.match(line, /^\[-?\d\.\d{3}\] /);
  assert.ok(stdout.trim().length > 0);
});

test("batch.py answers every prompt once, names what was refused, and continues where it stopped", async () => {
  const jobs = Array.from({ length: 20 }, (_, i) => ({ id: `job-${i}`, prompt: "Hello!", max_tokens: 8 }));
  const prompts = file("prompts.jsonl", [...jobs, { id: "bad", prompt: "x", temperature: -1 }].map((job) => JSON.stringify(job)).join("\n"));
  const answers = join(folder, "answers.jsonl");
  const read = () => readFileSync(answers, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  await assert.rejects(run("python3", [join(examples, "batch.py"), prompts, answers, "8"]), (error) => /21 prompts.* 1 failed/.test(error.stdout));
  assert.deepEqual(new Set(read().map((line) => line.id)), new Set([...jobs.map((job) => job.id), "bad"]));
  assert.match(read().find((line) => line.id === "bad").error, /temperature/);
  const again = run("python3", [join(examples, "batch.py"), prompts, answers]);
  await assert.rejects(again, (error) => /^1 prompts.* 1 failed, 20 were there already/.test(error.stdout));
});

test("openai_batch.py uploads requests, waits, and writes what was answered", async () => {
  const requests = Array.from({ length: 5 }, (_, i) => ({
    custom_id: `job-${i}`, method: "POST", url: "/v1/chat/completions",
    body: { messages: [{ role: "user", content: "Hello!" }], max_tokens: 8 },
  }));
  const input = file("requests.jsonl", requests.map((request) => JSON.stringify(request)).join("\n"));
  const answers = join(folder, "batch_answers.jsonl");
  const { stdout } = await run("python3", [join(examples, "openai_batch.py"), input, answers]);
  assert.match(stdout, /completed: 5 of 5 answered, 0 failed/);
  const ids = readFileSync(answers, "utf8").trim().split("\n").map((line) => JSON.parse(line).custom_id);
  assert.deepEqual(ids.sort(), requests.map((request) => request.custom_id));
});

test("langchain.mjs streams, fills a schema and calls a tool", async () => {
  const script = join(process.cwd(), "langchain_example.mjs");  // beside the packages that it imports
  copyFileSync(join(examples, "langchain.mjs"), script);
  const { stdout } = await run(process.execPath, [script]);
  assert.match(stdout, /KV/);
  assert.match(stdout, /verdict: '(positive|negative)', sure: (true|false)/);
  assert.match(stdout, /It rains in (Paris|Rome)\./);
});
