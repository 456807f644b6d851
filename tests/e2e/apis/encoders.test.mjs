// Encoders and a chat model in one daemon: vectors, scores and classes over the API, compared with another engine's if
// the test material is present, and refusals of requests that an encoder cannot serve.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-encoders-"));
const material = process.env.QUIRE_TEST_MATERIAL ?? join(process.env.QUIRE_SOURCE ?? ".", "../shared/material");
const architectures = join(material, "architectures/given");
const references = ["bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert",
  "gemma-embedding", "bert-rerank", "qwen3-embedding", "qwen3-rerank"];
const has_references = existsSync(architectures);
let server;

const config = (models) => {
  const file = join(folder, `${models.length}.yaml`);
  const rows = models.map(([name, path]) => `  - {name: ${name}, path: ${path}, kv_memory: 16MiB}\n`);
  writeFileSync(file, `models:\n${rows.join("")}`);
  return file;
};
const start = (models) => QuireServer.start(["--config", config(models)], { model: null });

before(async () => {
  const made = ["tiny-bert", "tiny-reranker"].map((shape) => [shape, join(folder, `${shape}.gguf`)]);
  for (const [shape, path] of made) execFileSync(process.env.QUIRE_BINARY, ["synth", path, "--shape", shape]);
  server = await start([...made, ["chat", process.env.QUIRE_MODEL]]);
});
after(() => server.stop());

async function ask(path, body, on = server) {
  const response = await on.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function refusal(path, body) {
  const response = await server.post(path, body);
  return { status: response.status, error: (await response.json()).error };
}

const embed = async (input, more = {}) =>
  (await ask("/v1/embeddings", { model: "tiny-bert", input, ...more })).data.map(({ embedding }) => embedding);

const texts = Array.from({ length: 64 }, (_, i) => `Text ${i} ${"speaks of the sea and of the land. ".repeat(1 + i % 9)}`);

test("a text's vector is the same alone, in one request of 64, in 64 requests and in any order", async () => {
  const together = await embed(texts);
  assert.deepEqual((await embed([...texts].reverse())).reverse(), together);
  assert.deepEqual(await Promise.all(texts.map(async (text) => (await embed(text))[0])), together);
  for (const i of [0, 31, 63]) assert.deepEqual((await embed(texts[i]))[0], together[i]);
  for (const vector of together) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
});

test("vectors come shortened, unscaled and as base64 where they are asked for", async () => {
  const [whole] = await embed(texts[3], { normalize: false });
  const [short] = await embed(texts[3], { dimensions: 32 });
  const length = Math.hypot(...whole.slice(0, 32));
  assert.equal(short.length, 32);
  short.forEach((value, i) => assert.ok(Math.abs(value - whole[i] / length) < 1e-6));
  const [raw] = await embed(texts[3], { normalize: false, encoding_format: "base64" });
  const bytes = Buffer.from(raw, "base64");
  assert.deepEqual(whole.map((_, i) => bytes.readFloatLE(4 * i)), whole.map(Math.fround));
});

test("a text that is too long is refused, or cut between the tokens around it", async () => {
  const long = "word ".repeat(600);
  const { status, error } = await refusal("/v1/embeddings", { model: "tiny-bert", input: long });
  assert.deepEqual([status, error.code, error.param], [400, "context_length_exceeded", "input"]);
  const tokens = async (prompt) => (await (await server.post("/tokenize", { model: "tiny-bert", prompt })).json()).tokens;
  const ids = await tokens(long);
  const kept = (count) => [...ids.slice(0, count - 1), ids.at(-1)];
  assert.deepEqual(await embed(long, { truncate: true }), await embed([kept(512)]));
  assert.deepEqual(await embed(long, { truncate: "END" }), await embed([kept(512)]));
  assert.deepEqual(await embed(long, { truncate_prompt_tokens: 20 }), await embed([kept(20)]));
  assert.deepEqual(await embed(long, { truncate_prompt_tokens: 20, truncation_side: "left" }),
    await embed([[ids[0], ...ids.slice(-19)]]));
  assert.deepEqual(await embed("a short text", { truncate: "START" }), await embed("a short text"));
});

test("a classifier ranks pairs, scores them and gives classes alike", async () => {
  const model = "tiny-reranker";
  const query = "What is a block?";
  const documents = ["A block holds tokens.", "The sea is deep.", "What is a block?"];
  const { results } = await ask("/v1/rerank", { model, query, documents });
  const scores = (await ask("/score", { model, text_1: query, text_2: documents })).data.map(({ score }) => score);
  assert.deepEqual(results.map(({ index }) => scores[index]), [...scores].sort((a, b) => b - a));
  for (const { index, relevance_score } of results) {
    assert.equal(relevance_score, scores[index]);
    assert.ok(relevance_score > 0 && relevance_score < 1);
  }
  // The token type marks the second text: both in one text are another input.
  const bos = (text) => ask("/tokenize", { model, prompt: text });
  const [first, second] = [(await bos(query)).tokens, (await bos(documents[0])).tokens];
  const joined = [...first, ...second.slice(1)];
  const [as_one] = (await ask("/classify", { model, input: [joined], use_activation: false })).data;
  const raw = await ask("/v1/rerank", { model, query, documents: [documents[0]], raw_scores: true });
  assert.notEqual(as_one.probs[0], raw.results[0].relevance_score);
  const long = await ask("/v1/rerank", { model, query, documents: ["sea ".repeat(900)], truncate: true });
  assert.equal(long.usage.total_tokens, 512);
});

test("endpoints that generate text refuse an encoder, and other requests continue", async () => {
  const messages = [{ role: "user", content: "Hello" }];
  for (const [path, body] of [["/v1/chat/completions", { messages }], ["/v1/completions", { prompt: "Hello" }],
    ["/completion", { prompt: "Hello" }], ["/v1/responses", { input: "Hello" }],
    ["/v1/messages", { messages, max_tokens: 4 }]]) {
    const { status, error } = await refusal(path, { model: "tiny-bert", ...body });
    assert.equal(status, 400, path);
    assert.match(error.message, /'tiny-bert' generates no text: it is an encoder/);
  }
  const [vectors, answer] = await Promise.all([
    embed(texts),
    ask("/v1/chat/completions", { model: "chat", messages, max_tokens: 8, temperature: 0 }),
  ]);
  assert.equal(vectors.length, 64);
  const alone = await ask("/v1/chat/completions", { model: "chat", messages, max_tokens: 8, temperature: 0 });
  assert.equal(answer.choices[0].message.content, alone.choices[0].message.content);
});

test("vectors and scores are those of another engine", { skip: !has_references && `test material '${architectures}' is absent` }, async () => {
  const judge = await start(references.map((name) => [name, join(architectures, name, "model.gguf")]));
  try {
    for (const model of references) {
      const { prompts, pooling } = JSON.parse(readFileSync(join(architectures, model, "reference.json"), "utf8"));
      const input = prompts.map(({ ids }) => ids);
      const is_score = pooling === "rank";
      const { data } = is_score
        ? await ask("/classify", { model, input, use_activation: model === "qwen3-rerank" }, judge)
        : await ask("/v1/embeddings", { model, input, normalize: false }, judge);
      data.forEach((each, i) => {
        const bytes = Buffer.from(prompts[i].embedding_f32_b64, "base64");
        const got = is_score ? each.probs : each.embedding;
        const count = Math.min(got.length, bytes.length / 4);
        assert.ok(count > 0);
        const worst = Math.max(...got.slice(0, count).map((value, j) => Math.abs(value - bytes.readFloatLE(4 * j))));
        // K and V are rounded to 16 bits, and matrix products to what the machine's level computes in.
        assert.ok(worst <= 4e-3 * Math.max(1, prompts[i].l2norm), `${model}, text ${i}: ${worst}`);
      });
    }
  } finally {
    await judge.stop();
  }
});
