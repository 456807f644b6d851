// Every generating model of the test material through the daemon: greedy tokens equal another engine's. Skipped where
// the material is absent.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const material = process.env.QUIRE_TEST_MATERIAL ?? join(process.env.QUIRE_SOURCE ?? ".", "..", "shared", "material");
const folder = join(material, "architectures", "given");
const names = existsSync(folder) ? readdirSync(folder).sort() : [];
// Another engine's context: models with two sets of frequencies choose theirs by it.
const flags = ["--isa", "avx2", "--kv-cache-dtype", "f32", "--max-model-len", "256"];
// Two candidates closer than this may change places: by the order of sums, or by activations of eight bits.
const ambiguous = (name) => (name.includes("mxfp4") ? 0.6 : 1e-3);

let server;
after(() => server?.kill());

async function check(name, reference) {
  server = await QuireServer.start(flags, { model: join(folder, name, "model.gguf") });
  const limit = ambiguous(name);
  for (const { ids, greedy, greedy_gap } of reference.prompts) {
    const first_close = greedy_gap.findIndex((gap) => gap < limit);
    const certain = first_close < 0 ? greedy.length : first_close;
    const body = { prompt: ids, max_tokens: greedy.length, temperature: 0, ignore_eos: true, return_token_ids: true };
    const response = await server.post("/v1/completions", body);
    assert.equal(response.status, 200, await response.clone().text());
    const { token_ids } = (await response.json()).choices[0];
    assert.deepEqual(token_ids.slice(0, certain), greedy.slice(0, certain));
    assert.equal(token_ids.length, greedy.length);
  }
  await server.stop();
}

test("the material is there", { skip: names.length === 0 && `${folder} is absent` }, () => assert.ok(names.length > 0));

for (const name of names) {
  const reference = JSON.parse(readFileSync(join(folder, name, "reference.json"), "utf8"));
  if (reference.mode !== "generate") continue;
  test(`${name} continues as another engine does`, () => check(name, reference));
}
