// `quire launch`: each agent's program is started with the variables and flags by which it reaches the model. The agents
// themselves, unmodified: agents/agents.test.mjs.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-launch-"));
const seen = join(folder, "seen.json");
let server;

// A program in the agent's place, which notes how it was started and what the server answers to its key.
function write_stand_in(name) {
  const path = join(folder, name);
  writeFileSync(path, `#!${process.execPath}
const { writeFileSync } = require("node:fs");
const { env, argv } = process;
const flag = (key) => { const word = argv.find((each) => each.startsWith(key + "=")); return word && JSON.parse(word.slice(key.length + 1)); };
const open = JSON.parse(env.OPENCODE_CONFIG_CONTENT ?? "{}").provider?.quire.options;
const url = flag("model_providers.quire.base_url") ?? env.OPENAI_BASE_URL ?? open?.baseURL ?? env.ANTHROPIC_BASE_URL + "/v1";
const key = env[flag("model_providers.quire.env_key")] ?? env.OPENAI_API_KEY ?? open?.apiKey ?? env.ANTHROPIC_AUTH_TOKEN;
fetch(url + "/models", { headers: { authorization: "Bearer " + key } }).then(async (answer) => {
  const models = await answer.json();
  writeFileSync(${JSON.stringify(seen)}, JSON.stringify({ env, words: argv.slice(2), status: answer.status, models }));
  process.exit(Number(argv.at(-1)) || 0);
});
`);
  chmodSync(path, 0o755);
}

before(async () => {
  for (const name of ["claude", "codex", "opencode", "qwen"]) write_stand_in(name);
  server = await QuireServer.start();
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function launch(words, path = folder + delimiter + process.env.PATH) {
  const child = spawn(process.env.QUIRE_BINARY, ["launch", ...words], { env: { ...process.env, PATH: path } });
  let err = "";
  child.stderr.on("data", (text) => (err += text));
  const code = await new Promise((resolve) => child.on("close", resolve));
  return { code, err };
}

const noted = () => JSON.parse(readFileSync(seen, "utf8"));
const name_of = (model) => basename(model, ".gguf");

for (const agent of ["claude", "codex", "opencode", "qwen"]) {
  test(`${agent} reaches a server that runs`, async () => {
    const { code, err } = await launch([agent, "--url", `${server.url}/v1/`, "--", "-p", "7"]);
    assert.equal(code, 7, err);
    const { words, status, models } = noted();
    assert.deepEqual(words.slice(-2), ["-p", "7"]);
    assert.equal(status, 200);
    assert.equal(models.data[0].id, name_of(process.env.QUIRE_MODEL));
    assert.match(err, /the model's context of \d+ tokens is short/);
  });
}

test("each agent gets the model and its context", async () => {
  const model = name_of(process.env.QUIRE_MODEL);
  const length = (await (await fetch(`${server.url}/v1/models`)).json()).data[0].max_model_len;
  await launch(["claude", "--url", server.url]);
  for (const kind of ["MODEL", "SMALL_FAST_MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL"]) {
    assert.equal(noted().env[`ANTHROPIC_${kind}`], model);
  }
  await launch(["codex", "--url", server.url]);
  assert.ok(noted().words.includes(`model=${JSON.stringify(model)}`));
  assert.ok(noted().words.includes(`model_context_window=${length}`));
  await launch(["opencode", "--url", server.url]);
  const config = JSON.parse(noted().env.OPENCODE_CONFIG_CONTENT);
  assert.equal(config.model, `quire/${model}`);
  assert.equal(config.provider.quire.models[model].limit.context, length);
  await launch(["qwen", "--url", server.url, "--model-name", "another"]);
  assert.equal(noted().env.OPENAI_MODEL, "another");
});

test("a model of one's own is served with a key while the agent runs", async () => {
  const { code, err } = await launch(["claude", "--model", process.env.QUIRE_MODEL, "-c", "512"]);
  assert.equal(code, 0, err);
  const { env, status, models } = noted();
  assert.equal(status, 200);
  assert.equal(models.data[0].max_model_len, 512);
  assert.notEqual(env.ANTHROPIC_AUTH_TOKEN, "none");
  await assert.rejects(fetch(`${env.ANTHROPIC_BASE_URL}/livez`), "the server ended with the agent");
});

test("what is missing is named", async () => {
  const empty = mkdtempSync(join(folder, "empty-"));
  const missing = await launch(["qwen", "--url", server.url], empty);
  assert.equal(missing.code, 127);
  assert.match(missing.err, /cannot start qwen: .*; install it by: npm install -g @qwen-code\/qwen-code/);
  assert.match((await launch(["claude"])).err, /no model: quire launch claude --model PATH, quire launch claude --hf/);
  assert.notEqual((await launch(["cursor", "--url", server.url])).code, 0);
});
