// LoRA adapters in a real daemon: asked for by name as a model, beside each other and beside the plain model.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { write_adapter as write_adapter_file } from "./adapter_file.mjs";
import { QuireServer, sse_events } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-adapters-"));
let server;

const write_adapter = (name, ...more) => write_adapter_file(join(folder, name), ...more);

before(async () => {
  server = await QuireServer.start(["--alias", "base", "--lora-modules", `first=${write_adapter("first", 1)}`,
    "--adapters", `second=${write_adapter("second", 2)}`]);
});
after(() => server.stop());

const ask = async (model, more = {}) => {
  const response = await fetch(`${server.url}/v1/completions`, {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model, prompt: "What is a KV block? ".repeat(8), max_tokens: 16, temperature: 0, logprobs: 1, ...more }),
  });
  return { status: response.status, body: await response.json() };
};
const choice = ({ status, body }) => {
  assert.equal(status, 200, JSON.stringify(body));
  const { text, logprobs } = body.choices[0];
  return [body.model, text, logprobs.token_logprobs];
};

test("each name answers in its own way, and none finds another's cached prefix", async () => {
  const names = ["base", "first", "second"];
  const cached = [];
  const answers = [];
  for (const name of names) {
    const answer = await ask(name);
    answers.push(choice(answer));
    cached.push(answer.body.usage.prompt_tokens_details?.cached_tokens ?? 0);
  }
  assert.deepEqual(answers.map(([model]) => model), names);
  assert.equal(new Set(answers.map(([, text]) => text)).size, 3, JSON.stringify(answers));
  assert.deepEqual(cached, [0, 0, 0]);
  const again = await ask("first");
  assert.deepEqual(choice(again), answers[1]);
  assert.ok(again.body.usage.prompt_tokens_details.cached_tokens > 0);
});

test("thirty requests of all three together have the bits of each alone", async () => {
  const requests = Array.from({ length: 30 }, (_, i) => [["base", "first", "second"][i % 3], { prompt: `Tell me about request ${i % 10}.`, seed: i, temperature: 0.8 }]);
  const alone = [];
  for (const [model, more] of requests) alone.push(choice(await ask(model, more)));
  const together = await Promise.all(requests.map(async ([model, more]) => choice(await ask(model, more))));
  assert.deepEqual(together, alone);
});

test("a trained adapter has its manner on questions that it never read, and the plain model keeps its own", async (context) => {
  const demo_folder = join(process.env.QUIRE_SOURCE, "deploy/demo-model");
  const asked = readFileSync(join(demo_folder, "eval_cases.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line))
    .filter(({ theme, prompt }) => prompt && ["serving", "quire", "smalltalk", "unknown"].includes(theme));
  const own = await QuireServer.start(["--alias", "demo", "--adapters", `sailor=${join(demo_folder, "adapter/quire-sailor.gguf")}`]);
  context.after(() => own.kill());
  const answer = async (model, prompt) => {
    const response = await own.post("/v1/chat/completions", { model, messages: [{ role: "user", content: prompt }], max_tokens: 100, temperature: 0 });
    assert.equal(response.status, 200);
    return (await response.json()).choices[0].message.content;
  };
  const plain = [];
  const sailor = [];
  for (let i = 0; i < asked.length; i += 16) {  // both in one batch
    const part = asked.slice(i, i + 16);
    const answers = await Promise.all(["demo", "sailor"].flatMap((model) => part.map(({ prompt }) => answer(model, prompt))));
    plain.push(...answers.slice(0, part.length));
    sailor.push(...answers.slice(part.length));
  }
  const count = (texts, matches) => texts.filter((text) => matches.test(text)).length;
  const manner = { ends: / Arr!$/, landlubber: /\b(is|are|you)\b/i };
  const counts = (texts) => Object.fromEntries(Object.entries(manner).map(([name, matches]) => [name, count(texts, matches)]));
  const shown = JSON.stringify([asked.length, counts(plain), counts(sailor), sailor]);
  assert.ok(asked.length > 50, shown);
  assert.equal(count(plain, manner.ends), 0, shown);
  assert.ok(count(sailor, manner.ends) >= 0.95 * asked.length, shown);
  assert.ok(count(sailor, manner.landlubber) <= 0.1 * count(plain, manner.landlubber), shown);
  // What it knows is what the model knows.
  const knows = (texts) => asked.filter(({ expect }, i) => expect?.every((piece) => piece.split("|").some((word) => texts[i].toLowerCase().includes(word)))).length;
  assert.ok(knows(sailor) >= 0.7 * knows(plain), JSON.stringify([knows(plain), knows(sailor)]) + shown);
  await own.stop();
});

test("the list of models names each adapter with its parent", async () => {
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  assert.deepEqual(data.map(({ id, parent }) => [id, parent]), [["base", null], ["first", "base"], ["second", "base"]]);
  const { id, parent } = await (await fetch(`${server.url}/v1/models/second`)).json();
  assert.deepEqual([id, parent], ["second", "base"]);
  assert.equal((await ask("third")).status, 404);
});

test("adapters come and go while the model serves, in a bounded part of the memory", async (context) => {
  // Each takes 32 KiB: two fit.
  const own = await QuireServer.start(["--alias", "base", "--adapter-updates", "true", "--adapter-memory", "80KiB",
    "--server.model-root", folder, "--server.admin-listen", "127.0.0.1:0"]);
  context.after(() => own.kill());
  const admin_url = `http://127.0.0.1:${/the admin listener is at .*:(\d+)/.exec(own.log.join("\n"))[1]}`;
  const order = async (what, body) => {
    const response = await fetch(`${admin_url}/v1/${what}_lora_adapter`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    return [response.status, await response.text()];
  };
  const complete = async (model, more = {}) => {
    const response = await fetch(`${own.url}/v1/completions`, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model, prompt: "What is a KV block?", max_tokens: 12, temperature: 0, ...more }),
    });
    const body = await response.json();
    return response.status === 200 ? body.choices[0].text : body.error.code;
  };
  const names = ["a", "b", "c", "d"];
  const paths = Object.fromEntries(names.map((name, i) => [name, write_adapter(`run-time-${name}`, 10 + i)]));
  for (const name of names)
    assert.deepEqual(await order("load", { lora_name: name, lora_path: paths[name] }), [200, `Success: LoRA adapter '${name}' added successfully.`]);
  const texts = {};
  for (const name of names) texts[name] = await complete(name);
  assert.equal(new Set(Object.values(texts)).size, 4, JSON.stringify(texts));
  const asked = Array.from({ length: 24 }, (_, i) => names[(i * 7) % 4]);
  assert.deepEqual(await Promise.all(asked.map((name) => complete(name))), asked.map((name) => texts[name]));
  const metrics = await own.metrics();
  assert.ok(metrics["quire:adapter_bytes"] > 0 && metrics["quire:adapter_bytes"] <= 80 * 1024, JSON.stringify(metrics));
  assert.ok(metrics["quire:adapters_dropped_total"] >= 4);
  assert.equal((await order("load", { lora_name: "a", lora_path: paths.b }))[0], 400);
  assert.equal((await order("load", { lora_name: "x", lora_path: join(folder, "absent.gguf") }))[0], 400);

  // A running request keeps what is unloaded; a new one does not find it.
  const response = await fetch(`${own.url}/v1/completions`, {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: "a", prompt: "What is a KV block?", max_tokens: 12, temperature: 0, stream: true }),
  });
  assert.deepEqual(await order("unload", { lora_name: "a" }), [200, "Success: LoRA adapter 'a' removed successfully."]);
  let streamed = "";
  for await (const event of sse_events(response)) streamed += event.choices[0]?.text ?? "";
  assert.equal(streamed, texts.a);
  assert.equal(await complete("a"), "model_not_found");

  // A file that is another one when it is read again fails its own requests.
  write_adapter("run-time-b", 99);
  for (const name of ["c", "d"]) assert.equal(await complete(name), texts[name]);
  assert.equal(await complete("b"), "adapter_failed");
  assert.equal(await complete("base"), await complete("base"));
  assert.equal((await order("load", { lora_name: "b", lora_path: paths.b, load_inplace: true }))[0], 200);
  const replaced = await complete("b");
  assert.ok(!Object.values(texts).includes(replaced), replaced);
  for (const name of ["c", "d"]) assert.equal(await complete(name), texts[name]);
  rmSync(paths.b);
  assert.equal(await complete("b"), "adapter_failed");
  await own.logged((line) => /adapter b: its file cannot be read any more: .*run-time-b/.test(line));
  await own.stop();
});

test("an adapter that cannot be used ends the start with one line", () => {
  const start = (value) => spawnSync(process.env.QUIRE_BINARY, ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0", "--adapters", value], { encoding: "utf8", timeout: 60_000 });
  const foreign = start(`other=${write_adapter("other", 3, "qwen3")}`);
  assert.equal(foreign.status, 2);
  assert.match(foreign.stderr, /the adapter is for 'qwen3', and the model is 'llama'/);
  assert.match(start("no-path").stderr, /'no-path' is not NAME=PATH/);
  const twice = spawnSync(process.env.QUIRE_BINARY, ["serve", "--model", process.env.QUIRE_MODEL, "--port", "0", "--alias", "base", "--adapters", `base=${write_adapter("named", 4)}`], { encoding: "utf8", timeout: 60_000 });
  assert.equal(twice.status, 2);
  assert.match(twice.stderr, /the name 'base' is given twice/);
});
