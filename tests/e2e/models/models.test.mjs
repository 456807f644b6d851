// Several models in one real daemon: load, unload, sleep, wake by request, replace under load, one memory plan.
// A second model comes from `quire synth`: its texts differ from the bundled one's.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer, sized, sse_events } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-models-"));
const demo = process.env.QUIRE_MODEL;
const other = join(folder, "other.gguf");
const file = join(folder, "quire.yaml");
const sha256 = (text) => createHash("sha256").update(text).digest("hex");
const key = (name, more = "") => `    - {name: ${name}, sha256: ${sha256(`${name}-secret`)}${more}}\n`;
const keys = `server: {model_root: /}\nsecurity:\n  keys:\n${key("root", ", admin: true")}${key("alice")}`;
const config = (models, more = "") => {
  writeFileSync(file, `${more}${keys}models:\n${models}`);
  return file;
};
const kMiB = 1024 * 1024;
let server;

before(async () => {
  execFileSync(process.env.QUIRE_BINARY, ["synth", other, "--shape", "tiny-llama", "--seed", "5"]);
  config(`  - {name: demo, path: ${demo}, aliases: [default], kv_memory: 32MiB}\n` +
    `  - {name: lazy, path: ${demo}, kv_memory: 256MiB, preload: false}\n`);
  server = await QuireServer.start(["--config", file], { model: null });
});
after(() => server.stop());

const ask = (model, more = {}, secret = "alice-secret") => fetch(`${server.url}/v1/completions`, {
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: `Bearer ${secret}` },
  body: JSON.stringify({ model, prompt: "Once upon a time", max_tokens: 12, temperature: 0, ...more }),
});
const text_of = async (response) => {
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body.choices[0].text;
};
const admin = async (operation, body, secret = "root-secret") => {
  const response = await fetch(`${server.url}/admin/models/${operation}`, {
    method: "POST", headers: { "Content-Type": "application/json", "x-api-key": secret }, body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
};
const models = async () => {
  const response = await fetch(`${server.url}/admin/models`, { headers: { "x-api-key": "root-secret" } });
  return Object.fromEntries((await response.json()).data.map((model) => [model.name, model]));
};
const done = async (operation, body) => {
  const { status, body: report } = await admin(operation, body);
  assert.equal(status, 200, JSON.stringify(report));
  return report;
};
const resident_mib = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1]) / 1024;

test("only an admin moves models", async () => {
  for (const operation of ["load", "unload", "sleep", "wake", "replace"]) {
    assert.equal((await admin(operation, { name: "demo", path: other }, "alice-secret")).status, 403);
    assert.equal((await admin(operation, { name: "demo", path: other }, "wrong")).status, 401);
  }
  const list = await fetch(`${server.url}/admin/models`, { headers: { "x-api-key": "alice-secret" } });
  assert.equal(list.status, 403);
  assert.equal((await models()).demo.state, "ready");
});

test("a model that was not preloaded is there, and wakes with its first request", async () => {
  const listed = await (await fetch(`${server.url}/v1/models`, { headers: { "x-api-key": "alice-secret" } })).json();
  assert.deepEqual(listed.data.map((model) => [model.id, model.state]), [["demo", "ready"], ["lazy", "sleeping"]]);
  const answers = await Promise.all([...Array(6)].map(() => ask("lazy").then(text_of)));
  const said = await text_of(await ask("default"));
  assert.ok(answers.every((text) => text === said), "the same file says the same, woken or not");
  const is_loaded = (line) => / lazy is loaded after /.test(line);
  await server.logged(is_loaded);
  await server.logged((line) => /a request wakes lazy/.test(line));
  assert.equal(server.log.filter(is_loaded).length, 1);
});

test("a sleeping model releases its memory, and answers the same after it wakes", async () => {
  const said = await text_of(await ask("lazy"));
  // A long prompt touches what is behind it: a pool that was not written to is not resident. An emulated GPU writes to all of it.
  await Promise.all([...Array(sized(40, 1))].map((_, i) => ask("lazy", { prompt: `${i} ${"Once upon a time ".repeat(90)}` }).then(text_of)));
  const awake = resident_mib();
  const pool_mib = (await models()).lazy.memory_bytes / kMiB;
  const report = await done("sleep", { name: "lazy" });
  assert.equal(report.state, "sleeping");
  assert.equal(report.memory_bytes, 0);
  const asleep = resident_mib();
  assert.ok(pool_mib > 256 && awake - asleep > 20, `${awake} MiB awake, ${asleep} MiB asleep`);
  assert.deepEqual(await done("sleep", { name: "lazy" }), report);
  assert.equal(await text_of(await ask("lazy")), said);
  assert.equal((await models()).lazy.state, "ready");
});

test("a model is loaded under a new name, limited, asked and unloaded", async () => {
  const report = await done("load", { name: "extra", path: other, aliases: ["more"], kv_memory: 16 * kMiB, max_model_len: 64 });
  assert.equal(report.state, "ready");
  assert.equal(report.max_model_len, 64);
  assert.notEqual(await text_of(await ask("more")), await text_of(await ask("demo")));
  assert.equal((await ask("more", { max_tokens: 5000 })).status, 200);
  assert.equal((await ask("more", { prompt: "Once upon a time ".repeat(60) })).status, 400);
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  for (const name of ["demo", "lazy", "extra"]) {
    assert.match(metrics, new RegExp(`vllm:num_requests_running\\{model_name="${name}"\\} 0`));
  }
  assert.equal(metrics.match(/^# TYPE vllm:num_requests_running /gm).length, 1);
  const again = await admin("load", { name: "extra", path: demo });
  assert.deepEqual([again.status, again.body.error.code], [409, "model_ready"]);
  // A stream that runs is not cut by the unloading.
  const stream = await ask("extra", { stream: true, max_tokens: 40, ignore_eos: true });
  const unloaded = admin("unload", { name: "extra" });
  let tokens = 0;
  for await (const event of sse_events(stream)) tokens += event.choices[0].text ? 1 : 0;
  assert.ok(tokens > 0);
  assert.equal((await unloaded).status, 200);
  assert.equal((await ask("extra")).status, 404);
  await server.logged((line) => /admin: the key root asks to unload the model extra/.test(line));
});

test("a load that is unloaded before its end leaves nothing behind", async () => {
  const loaded = (await models()).demo.memory_bytes;
  for (let i = 0; i < 8; ++i) {
    const ordered = await admin("load", { name: "brief", path: other, kv_memory: 16 * kMiB, wait: false });
    assert.equal(ordered.status, 202, JSON.stringify(ordered.body));
    assert.equal((await done("unload", { name: "brief" })).state, "unloaded");
    assert.equal((await models()).brief, undefined);
  }
  assert.equal((await models()).demo.memory_bytes, loaded);
  assert.equal((await ask("brief")).status, 404);
});

test("a model is replaced under load: no request fails, each is answered by one of the two", async () => {
  const said = {};
  said.old = await text_of(await ask("demo"));
  await done("load", { name: "probe", path: other, kv_memory: 16 * kMiB });
  said.new = await text_of(await ask("probe"));
  await done("unload", { name: "probe" });
  let over = false;
  const counts = { old: 0, new: 0, other: 0 };
  let answered = () => {};
  const client = async (streams) => {
    while (!over) {
      const response = await ask("demo", { stream: streams });
      let text = "";
      if (streams) {
        assert.equal(response.status, 200);
        for await (const event of sse_events(response)) text += event.choices[0]?.text ?? "";
      } else {
        text = await text_of(response);
      }
      ++counts[text === said.old ? "old" : text === said.new ? "new" : "other"];
      answered();
    }
  };
  const until = async (wanted) => {
    while (!wanted()) await new Promise((resolve) => { answered = resolve; });
  };
  const clients = [true, false, true, false].map(client);
  await until(() => counts.old >= 8);
  assert.equal((await done("replace", { name: "demo", path: other })).path, other);
  await until(() => counts.new >= 8);
  const before = counts.old;
  assert.equal((await done("replace", { name: "demo", path: demo, mode: "in_place" })).path, demo);
  await until(() => counts.old >= before + 8);
  over = true;
  await Promise.all(clients);
  assert.equal(counts.other, 0);
  const absent = await admin("replace", { name: "demo", path: `${other}.absent` });
  assert.deepEqual([absent.status, absent.body.error.code], [400, "invalid_model"]);
  assert.equal(await text_of(await ask("demo")), said.old);
});

test("a canary gets its share of the conversations, each of which stays with one version; it goes back, or becomes the model", async () => {
  const prompts = Array.from({ length: 40 }, (_, index) => `Story ${index}: once upon a time`);
  const versions = async () => Promise.all(prompts.map(async (prompt) => {
    const response = await ask("demo", { prompt, max_tokens: 2 });
    assert.equal(response.status, 200);
    return (await response.json()).model;
  }));
  const requests_of = async (name) => {
    const page = await (await fetch(`${server.url}/metrics`, { headers: { "x-api-key": "root-secret" } })).text();
    const line = page.split("\n").find((each) => each.startsWith("vllm:e2e_request_latency_seconds_count") && each.includes(`model_name="${name}"`));
    return line ? Number(line.split(" ").at(-1)) : 0;
  };
  const canaries = (list) => list.filter((name) => name === "demo@canary").length;
  assert.equal(canaries(await versions()), 0);
  const report = await done("replace", { name: "demo", path: other, share: 0.25 });
  assert.equal(report.canary_share, 0.25);
  assert.equal((await models())["demo@canary"].path, other);
  const counted = await requests_of("demo@canary");
  const first = await versions();
  assert.ok(canaries(first) >= 3 && canaries(first) <= 20, `${canaries(first)} of 40`);
  assert.deepEqual(await versions(), first);
  assert.equal(await requests_of("demo@canary") - counted, 2 * canaries(first));
  // What a client calls its conversation decides, however its text begins.
  const of_session = await Promise.all(prompts.map(async (prompt) =>
    (await (await ask("demo", { prompt, max_tokens: 2, session_id: "one" })).json()).model));
  assert.equal(new Set(of_session).size, 1);
  for (const [operation, body] of [["sleep", {}], ["unload", {}], ["replace", { path: other }], ["replace", { path: demo, share: 0.5 }]]) {
    const refused = await admin(operation, { name: "demo", ...body });
    assert.deepEqual([refused.status, refused.body.error.code], [409, "model_busy"], operation);
  }
  // A larger share moves conversations in one direction.
  await done("replace", { name: "demo", share: 0.75 });
  const more = await versions();
  assert.ok(canaries(more) > canaries(first));
  assert.ok(first.every((name, index) => name === "demo" || more[index] === "demo@canary"));
  // Back, with requests under way.
  const running = versions();
  await done("replace", { name: "demo", share: 0 });
  await running;
  assert.equal(canaries(await versions()), 0);
  const after_it = await models();
  assert.equal(after_it["demo@canary"], undefined);
  assert.deepEqual([after_it.demo.path, after_it.demo.canary_share], [demo, undefined]);
  // Promoted, and then the old file again.
  await done("replace", { name: "demo", path: other, share: 0.5 });
  const promoted = versions();
  assert.equal((await done("replace", { name: "demo", share: 1 })).path, other);
  await promoted;
  assert.equal(canaries(await versions()), 0);
  assert.equal((await models())["demo@canary"], undefined);
  await done("replace", { name: "demo", path: demo });
  for (const body of [{ share: 1.5 }, { share: 0.5, path: demo, mode: "in_place" }, {}]) {
    assert.equal((await admin("replace", { name: "demo", ...body })).status, 400, JSON.stringify(body));
  }
  assert.equal((await admin("replace", { name: "demo", share: 0.5 })).status, 409);
  assert.equal((await admin("replace", { name: "demo", path: `${other}.absent`, share: 0.5 })).status, 400);
  assert.equal((await models())["demo@canary"], undefined);
});

test("what does not fit is refused with the numbers: at run time, and at the start by the models' names", async () => {
  const large = await admin("load", { name: "large", path: demo, kv_memory: 2 ** 46 });
  assert.equal(large.status, 507);
  assert.equal(large.body.error.code, "insufficient_memory");
  assert.match(large.body.error.message, /the KV cache does not fit.* beside .*left/);
  assert.equal((await models()).large, undefined);
  const refused = join(folder, "refused.yaml");
  const start = (models) => {
    writeFileSync(refused, `server: {port: 0}\nmodels:\n${models}`);
    return spawnSync(process.env.QUIRE_BINARY, ["serve", "--config", refused], { encoding: "utf8" });
  };
  const plan = start(`  - {name: one, path: ${demo}, kv_memory: 64TiB}\n  - {name: two, path: ${demo}}\n`);
  assert.equal(plan.status, 2);
  assert.match(plan.stderr, /the models do not fit together: one: KV pool 64\.0 TiB, weights .*; two: KV pool .* has .* left/);
  const missing = start(`  - {name: one, path: ${demo}}\n  - {name: two, path: ${demo}.absent, preload: false}\n`);
  assert.equal(missing.status, 2);
  assert.match(missing.stderr, /model 'two': there is no/);
});

test("a reload takes over names and times, and says which operation adds and removes a model", async () => {
  const reload = async () => {
    const response = await fetch(`${server.url}/admin/reload`, { method: "POST", headers: { "x-api-key": "root-secret" } });
    return { status: response.status, body: await response.json() };
  };
  const lazy = `  - {name: lazy, path: ${demo}, kv_memory: 256MiB, preload: false, sleep_after: 1s}\n`;
  config(`  - {name: demo, path: ${demo}, aliases: [renamed], kv_memory: 32MiB}\n${lazy}`);
  assert.deepEqual((await reload()).body.changed, ["models"]);
  assert.equal((await ask("default")).status, 404);
  assert.equal((await ask("renamed")).status, 200);
  // It has nothing to do, and now a time to sleep after.
  for (;;) {
    if ((await models()).lazy.state === "sleeping") break;
    await new Promise((resolve) => setImmediate(resolve));
  }
  config(lazy);
  const missing = await reload();
  assert.equal(missing.status, 400);
  assert.match(missing.body.error.message, /'demo' is served, and missing.*\/admin\/models\/unload/);
  config(`  - {name: demo, path: ${demo}, aliases: [renamed], kv_memory: 32MiB}\n${lazy}  - {name: new, path: ${other}}\n`);
  assert.match((await reload()).body.error.message, /'new' is new: POST \/admin\/models\/load/);
  config(`  - {name: demo, path: ${demo}, aliases: [renamed], adapters: [sql=/absent.gguf], kv_memory: 32MiB}\n${lazy}`);
  assert.match((await reload()).body.error.message, /'demo' cannot change its adapters/);
  assert.equal((await ask("sql")).status, 404);
});

test("a drain waits for all models' requests", async () => {
  const copy = join(folder, "copy.gguf");
  copyFileSync(demo, copy);
  config(`  - {name: a, path: ${demo}, kv_memory: 32MiB}\n  - {name: b, path: ${copy}, kv_memory: 32MiB}\n`);
  const drained = await QuireServer.start(["--config", file], { model: null });
  const stream = (model) => fetch(`${drained.url}/v1/completions`, {
    method: "POST", headers: { "Content-Type": "application/json", Authorization: "Bearer alice-secret" },
    body: JSON.stringify({ model, prompt: "Once", max_tokens: sized(200, 40), ignore_eos: true, stream: true }),
  });
  const streams = await Promise.all([stream("a"), stream("b")]);
  drained.signal("SIGTERM");
  for (const each of streams) for await (const event of sse_events(each)) assert.ok(event.choices);
  assert.deepEqual(await drained.ended(), { code: 0, signal: null });
});
