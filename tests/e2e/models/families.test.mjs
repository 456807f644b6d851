// The trained models of several families through the daemon: right sentences for questions that their corpus answers,
// the same alone and in a crowd; the reranker puts the right text first.
import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const folder = join(process.env.QUIRE_SOURCE, "deploy/demo-model/families");
const answers = [
  ["Hi", /^Hello! I am Quire's demo model\./],
  ["Good morning", /^Good morning! What can I do for you\?$/],
  ["How are you?", /^I am well, thank you: all my blocks are in place\. How can I help\?$/],
  ["Who are you?", /^I am Quire's demo model: a very small language model that shows that the server works\.$/],
  ["What is Quire?", /^Quire is (a server for language models: one C\+\+ program|written in C\+\+20)/],
  ["What is continuous batching?", /^Continuous batching builds a new batch at every step:/],
  ["What is a KV block?", /^A KV block is a fixed piece of the KV cache: it holds the keys and values of a small, fixed number of tokens/],
];

let server;
afterEach(() => server?.kill());

async function ask(path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function answer(content) {
  const messages = [{ role: "user", content }];
  const { choices } = await ask("/v1/chat/completions", { messages, temperature: 0, max_tokens: 100 });
  assert.equal(choices[0].finish_reason, "stop");
  return choices[0].message.content;
}

for (const family of ["hybrid", "experts", "windowed"]) {
  test(`the trained ${family} model answers with right sentences, alone and in a crowd`, async () => {
    server = await QuireServer.start(["--max-model-len", "1024"], { model: join(folder, `quire-${family}.gguf`) });
    const alone = [];
    for (const [question, expected] of answers) {
      alone.push(await answer(question));
      assert.match(alone.at(-1), expected, question);
    }
    assert.deepEqual(await Promise.all(answers.map(([question]) => answer(question))), alone);
    await server.stop();
  });
}

test("the second turn of a long conversation on the hybrid computes only what is new", async () => {
  server = await QuireServer.start([], { model: join(folder, "quire-hybrid.gguf") });
  const messages = [{ role: "user", content: "What is continuous batching? ".repeat(900) }];
  const turn = () => ask("/v1/chat/completions", { messages, temperature: 0, max_tokens: 40 });
  const first = await turn();
  assert.ok(first.usage.prompt_tokens > 4000);
  messages.push(first.choices[0].message, { role: "user", content: "Why is that useful?" });
  const second = await turn();
  const computed = second.usage.prompt_tokens - second.usage.prompt_tokens_details.cached_tokens;
  const fresh = second.usage.prompt_tokens - first.usage.prompt_tokens;
  assert.ok(computed <= fresh + 64, `${computed} tokens computed, of which ${fresh} are new`);
  await server.stop();
});

const documents = [
  "The river is cold and the boat is small.",
  "You are welcome!",
  "Continuous batching builds a new batch at every step: finished sequences leave and waiting requests join at once.",
  "A KV block is a fixed piece of the KV cache: it holds the keys and values of a small, fixed number of tokens.",
  "The capital of France is Paris.",
];

test("the trained reranker puts the text that answers a question first", async () => {
  server = await QuireServer.start([], { model: join(folder, "quire-reranker.gguf") });
  const queries = [["What is continuous batching?", 2], ["What is a KV block?", 3], ["What is the capital of France?", 4]];
  for (const [query, best] of queries) {
    const { results } = await ask("/v1/rerank", { query, documents });
    assert.equal(results[0].index, best, query);
    assert.ok(results[0].relevance_score > 0.5 && results[1].relevance_score < 0.5, query);
  }
  await server.stop();
});
