// Texts and logprobs of the bundled model on every level of arm64, byte for byte those of x86-64, and a chat end to end. Of x86-64 the
// level avx512 answers, or where the processor has none quire-fused, which has its bits (tests/kernels/fused_test.cpp).
// QUIRE_BINARY: starts the arm64 binary (tests/arm64/quire.sh). QUIRE_X86_BINARY, QUIRE_FUSED_BINARY: of the same version for this
// machine. QUIRE_MODEL: the model. QUIRE_LEVELS: the arm64 levels to compare, separated by commas.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, test } from "node:test";
import { QuireServer, sse_events } from "../e2e/server_process.mjs";

const kPrompts = [
  "Hello",
  "The library opened at nine, and by ten",
  "def add(a, b):\n",
  "Once upon a time there was a scheduler that " + "planned another step and ".repeat(12),
  "Zürich, 7 °C – naïve café №5: ",
];
const kLevels = (process.env.QUIRE_LEVELS ?? "neon,dotprod,i8mm").split(",");

let server;
after(() => server?.kill());

// Greedy and drawn, each with its logprobs.
async function answers(binary, isa) {
  server = await QuireServer.start(["--isa", isa, "--threads", "2"], { binary });
  const out = [];
  for (const [index, prompt] of kPrompts.entries()) {
    for (const temperature of [0, 1]) {
      const body = { model: "quire-demo", prompt, max_tokens: 48, temperature, seed: index, ignore_eos: true, logprobs: 3 };
      const response = await server.post("/v1/completions", body);
      assert.equal(response.status, 200, await response.clone().text());
      const { text, logprobs } = (await response.json()).choices[0];
      out.push({ text, logprobs });
    }
  }
  return out;
}

async function chat() {
  const messages = [{ role: "user", content: "What does a scheduler do?" }];
  const response = await server.post("/v1/chat/completions", { model: "quire-demo", messages, max_tokens: 32, stream: true });
  assert.equal(response.status, 200);
  let text = "";
  for await (const event of sse_events(response)) text += event.choices[0]?.delta?.content ?? "";
  return text;
}

const has_avx512 = spawnSync("grep", ["-q", "avx512_vnni", "/proc/cpuinfo"]).status === 0;
const reference = has_avx512 ? [process.env.QUIRE_X86_BINARY, "avx512"] : [process.env.QUIRE_FUSED_BINARY, "fused"];
let expected;

test(`x86-64's level ${reference[1]} answers`, async () => {
  expected = await answers(...reference);
  assert.equal(expected.length, 2 * kPrompts.length);
  assert.ok(expected.every(({ text }) => text.length > 0));
  await server.stop();
});

for (const level of kLevels) {
  test(`arm64's level ${level} has the same texts and logprobs, answers a chat, and drains`, async () => {
    const found = await answers(process.env.QUIRE_BINARY, level);
    assert.deepEqual(found, expected);
    assert.ok((await chat()).length > 0);
    await server.stop();
  });
}
