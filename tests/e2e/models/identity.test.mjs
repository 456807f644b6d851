// A model is identified by its content: a file with the same name, size and time reuses nothing of another's in the
// disk tier, slots or packed weights.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const kPrompt = "The library lends books for three weeks, and longer to those who ask at the desk. ".repeat(10);

// Two models of the same name, size and time: the bundled one, and one with other weights.
function two_models() {
  const folder = mkdtempSync(join(tmpdir(), "quire-identity-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  const paths = ["one", "two"].map((name) => {
    mkdirSync(join(folder, name));
    return join(folder, name, "model.gguf");
  });
  copyFileSync(process.env.QUIRE_MODEL, paths[0]);
  const bytes = readFileSync(paths[0]);
  // The lowest bit of each byte of a part of the weights: finite numbers, another model.
  for (let at = Math.floor(bytes.length * 0.5); at < bytes.length * 0.6; at++) bytes[at] ^= 1;
  writeFileSync(paths[1], bytes);
  for (const path of paths) utimesSync(path, 1, 1);
  assert.equal(statSync(paths[0]).size, statSync(paths[1]).size);
  return { folder, paths };
}

async function answer(server) {
  const response = await server.post("/v1/completions",
    { prompt: kPrompt, max_tokens: 16, temperature: 0, ignore_eos: true, logprobs: 1 });
  assert.equal(response.status, 200);
  const { choices, usage } = await response.json();
  return { logprobs: choices[0].logprobs.token_logprobs, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
}

async function served(path, flags) {
  const server = await QuireServer.start(flags, { model: path });
  after(() => server.kill());
  const given = await answer(server);
  await server.stop();
  return given;
}

test("the disk tier and packed weights of a file of the same name, size and time are not used", async () => {
  const { folder, paths } = two_models();
  const alone = await served(paths[1], []);
  for (const flag of ["--kv-cache.disk-tier-path", "--packed-cache"]) {
    const flags = [flag, join(folder, flag.slice(2))];
    const first = await served(paths[0], flags);
    assert.notDeepEqual(first.logprobs, alone.logprobs, "these are two models");
    const second = await served(paths[1], flags);
    assert.deepEqual(second, alone, flag);
    // The folder keeps the hashes, for the user alone.
    assert.match(readFileSync(join(flags[1], "content-hashes"), "utf8"), /\S/);
    assert.equal(statSync(flags[1]).mode & 0o777, 0o700);
    // Each again, with hashes that may be remembered.
    assert.deepEqual((await served(paths[0], flags)).logprobs, first.logprobs, flag);
    assert.deepEqual((await served(paths[1], flags)).logprobs, alone.logprobs, flag);
    // One file takes the other's place.
    const place = join(folder, "place.gguf");
    for (const path of [paths[0], paths[1]]) {
      copyFileSync(path, place);
      utimesSync(place, 1, 1);
      assert.deepEqual((await served(place, flags)).logprobs, (path === paths[0] ? first : alone).logprobs, flag);
    }
  }
});
