// Texts judged and turned into vectors by the real engine: rerank, score, pooling and embeddings agree with each other.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

let server;
before(async () => (server = await QuireServer.start()));
after(() => server.stop());

async function ask(path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

function cosine(left, right) {
  const dot = left.reduce((sum, value, i) => sum + value * right[i], 0);
  return dot / (Math.hypot(...left) * Math.hypot(...right));
}

const query = "How are blocks of the cache shared?";
const documents = ["The river is cold.", query, "Equal prefixes share their blocks."];

test("without a classifier the nearest text is the best, as the vectors say", async () => {
  const { data } = await ask("/v1/embeddings", { input: [query, ...documents] });
  const [first, ...others] = data.map(({ embedding }) => embedding);
  const { results, usage } = await ask("/v1/rerank", { query, documents });
  assert.equal(results.length, 3);
  assert.equal(results[0].index, 1);
  for (const { index, relevance_score, document } of results) {
    assert.ok(Math.abs(relevance_score - cosine(first, others[index])) < 1e-5);
    assert.equal(document.text, documents[index]);
  }
  assert.ok(usage.total_tokens > 0);
  const scores = (await ask("/score", { text_1: query, text_2: documents })).data.map(({ score }) => score);
  for (const { index, relevance_score } of results) assert.equal(scores[index], relevance_score);
  const top = await ask("/v2/rerank", { query, documents: documents.map((text) => ({ text })), top_n: 1 });
  assert.deepEqual(top.results, [{ index: 1, relevance_score: results[0].relevance_score }]);
});

test("the vectors of a text's tokens end with the text's own", async () => {
  const input = documents[0];
  const { tokens } = await (await server.post("/tokenize", { prompt: input })).json();
  const rows = (await ask("/pooling", { input })).data[0].data;
  assert.equal(rows.length, tokens.length);
  const embedding = (await ask("/v1/embeddings", { input })).data[0].embedding;
  assert.deepEqual(rows.at(-1), embedding);
  const whole = (await ask("/v1/embeddings", { input, normalize: false })).data[0].embedding;
  assert.ok(Math.abs(cosine(whole, embedding) - 1) < 1e-6);
  assert.ok(Math.abs(Math.hypot(...whole) - 1) > 1e-3);
  const short = (await ask("/v1/embeddings", { input, dimensions: 8 })).data[0].embedding;
  assert.ok(Math.abs(Math.hypot(...short) - 1) < 1e-4);
  assert.ok(Math.abs(cosine(short, embedding.slice(0, 8)) - 1) < 1e-6);
});

test("classes need a classifier", async () => {
  const response = await server.post("/classify", { input: "x" });
  assert.equal(response.status, 400);
  assert.equal((await response.json()).error.code, "unsupported_operation");
});
