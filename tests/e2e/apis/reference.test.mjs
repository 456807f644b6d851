// The API's reference against the running server: /openapi.json is valid OpenAPI, examples and answers agree with it,
// and every row of server/API.md that says "supported" changes the answer of the real engine.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import Ajv from "ajv/dist/2020.js";
import { Validator } from "@seriousme/openapi-schema-validator";
import { QuireServer } from "../server_process.mjs";

// A model that may think and shows in its prompt what the template gets.
const template = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% for d in documents or [] %}{{ d }}{% endfor %}{{ a }}{{ reasoning_effort }}{% if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}`;

let server, document, ajv;
before(async () => {
  const file = join(mkdtempSync(join(tmpdir(), "quire-")), "template.jinja");
  writeFileSync(file, template);
  server = await QuireServer.start(["--alias", "demo", "--alias", "fake", "--chat-template", file]);
  document = await (await fetch(`${server.url}/openapi.json`)).json();
  ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema(document, "openapi");
});
after(() => server.stop());

// [{path, inside, field, support, example}]
function rows() {
  const list = [];
  let paths = [];
  let inside = "";
  for (const line of readFileSync(join(process.env.QUIRE_SOURCE, "server/API.md"), "utf8").split("\n")) {
    const heading = /^## .*?: (?:(\w+) of )?POST (.+)$/.exec(line);
    if (heading) [inside, paths] = [heading[1] ?? "", heading[2].split(", ")];
    else if (line.startsWith("## ")) paths = [];
    const row = /^\| (\w+) \| (supported|accepted|conditional|refused) \| [^|]* \| `(.*)` \|/.exec(line);
    if (!row) continue;
    for (const path of paths) list.push({ path, inside, field: row[1], support: row[2], example: JSON.parse(row[3]) });
  }
  return list;
}

function body_schema(path) {
  const name = document.paths[path].post.requestBody.content["application/json"].schema.$ref;
  return document.components.schemas[name.split("/").pop()];
}

test("the document is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const result = await validator.validate(structuredClone(document));
  assert.ok(result.valid, JSON.stringify(result.errors)?.slice(0, 2000));
  assert.equal(validator.version, "3.1");
  const names = Object.values(document.paths).flatMap((item) => Object.values(item).map(({ operationId }) => operationId));
  assert.equal(new Set(names).size, names.length);
});

test("every example of the page agrees with its schema, and one that is refused does not", () => {
  assert.ok(rows().length > 350);
  for (const { path, inside, field, support, example } of rows()) {
    const { properties } = body_schema(path);
    const schema = inside ? properties[inside].properties[field] : properties[field];
    assert.ok(schema, `${path} ${field} is in no schema`);
    const fits = new Ajv({ strict: false }).compile(schema)(example);
    assert.equal(fits, support !== "refused", `${path} ${field} ${JSON.stringify(example)}`);
    assert.equal(schema["x-quire-support"], support, `${path} ${field}`);
  }
});

// Open questions at a high temperature: the model is sure of most answers.
const question = [{ role: "user", content: "Tell me a story about a block. Tell me a story about a block. Tell me a story" }];
const prompt = "Once upon a time there was a block. Once upon a time there was a block. Once upon a";
const draws = { temperature: 2, seed: 7 };
const end = 3071;  // the demo model's end of turn
const tool = { type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } };

const base = {
  "/v1/completions": { prompt, max_tokens: 40, n: 2, ...draws },
  "/v1/chat/completions": { messages: question, max_tokens: 40, n: 2, ...draws },
  "/v1/responses": { input: question, max_output_tokens: 40, reasoning: { summary: "auto" }, ...draws },
  "/v1/messages": { messages: question, max_tokens: 40, temperature: 1, seed: 7 },
  "/completion": { prompt, n_predict: 40, ...draws },
  "/tokenize": { content: "x <|im_end|>" },
  "/detokenize": { tokens: [100, end, 200] },
  "/v1/embeddings": { input: "a longer text of several tokens" },
  "/v1/rerank": { query: "a query", documents: ["some text of several tokens", "other"] },
  "/v1/score": { text_1: "a query", text_2: ["some text of several tokens", "other"] },
  "/v1/pooling": { input: "a longer text of several tokens" },
  "/api/chat": { messages: question, stream: false, options: { num_predict: 40, ...draws } },
  "/api/generate": { prompt, raw: true, stream: false, options: { num_predict: 40, ...draws } },
  "/api/embed": { input: "a longer text of several tokens" },
  "/api/embeddings": { prompt: "a longer text of several tokens" },
};

const ends = { logit_bias: { [end]: 100 } };  // a text that ends at once
const repeats = { dry_multiplier: 0.3, dry_allowed_length: 1 };
const repeating = {
  ...repeats, messages: [{ role: "assistant", content: "a KV block of a KV block of a KV block of a KV" }],
  continue_final_message: true, add_generation_prompt: false,
};
const marked = { prompt: "x <|im_end|>", input: "x <|im_end|>" };
function tools_of(path) {
  if (path === "/v1/messages") return [{ name: "f", input_schema: { type: "object" } }];
  return path === "/v1/responses" ? [{ type: "function", name: "f" }] : [tool];
}
const unfinished = [...question, { role: "assistant", content: "A KV block" }];

// What a field needs beside it to show its effect.
const beside = {
  xtc_threshold: { xtc_probability: 1 }, xtc_probability: { xtc_threshold: 0.05 }, min_keep: { top_p: 0.05, top_k: 40 },
  dynatemp_exponent: { dynatemp_range: 1 }, mirostat_tau: { mirostat: 2 }, mirostat_eta: { mirostat: 2, mirostat_tau: 2 },
  adaptive_decay: { adaptive_target: 0.2 }, repeat_last_n: { repeat_penalty: 1.8 }, repeat_penalty: { repeat_last_n: -1 },
  samplers: { top_k: 2 }, dry_base: { ...repeats, dry_multiplier: 0.001 }, dry_allowed_length: repeats, dry_penalty_last_n: repeats,
  dry_sequence_breakers: repeats, ignore_eos: ends, min_tokens: ends, skip_special_tokens: { ...ends, ignore_eos: true },
  stop_token_ids: { logit_bias: { 5: 100 } }, include_stop_str_in_output: { stop: ["e", "a", "o"] },
  truncation_side: { truncate_prompt_tokens: 5 }, return_progress: { stream: true }, timings_per_token: { stream: true },
  stream_options: { stream: true }, best_of: { n: 1 }, max_tokens: {}, return_tokens_as_token_ids: { logprobs: 1 },
  top_logprobs: { include: ["message.output_text.logprobs"] }, parse_special: marked,
  function_call: { functions: [{ name: "f" }] }, continue_final_message: { messages: unfinished, add_generation_prompt: false },
};
const beside_at = {
  "/v1/chat/completions return_tokens_as_token_ids": { logprobs: true },
  "/v1/chat/completions dry_sequence_breakers": repeating,
  "/tokenize prompt": { content: undefined, prompt: "z" }, "/api/generate system": { raw: false },
  "/api/generate think": { raw: false }, "/api/generate context": { raw: false },
  "/v1/rerank texts": { documents: undefined, texts: ["some text"] }, "/v1/rerank return_text": { documents: undefined, texts: ["some text"] },
  "/v1/embeddings messages": { input: undefined, messages: question }, "/v1/pooling messages": { input: undefined, messages: question },
  "/v1/score queries": { text_1: undefined, text_2: undefined, queries: "some text", documents: ["a", "b"] },
  "/v1/score documents": { text_1: undefined, text_2: undefined, queries: "some text", documents: ["a", "b"] },
};

// Values beside the page's example, one of which changes the answer.
const values = {
  prompt: ["Another text"], messages: [[{ role: "user", content: "Other?" }]], input: ["Another text"], query: ["Another query"],
  documents: [["another text"]], text_1: ["another query"], text_2: ["another text"], texts: [["another text"]], seed: [8],
  queries: ["another query"], repetition_penalty: [1.8], repeat_penalty: [1.8], repeat_last_n: [4], frequency_penalty: [2],
  presence_penalty: [2], dry_multiplier: [4], dry_base: [8], dry_allowed_length: [4], dry_penalty_last_n: [3],
  dry_sequence_breakers: [[" KV"], [" a", " is", " KV", " block", "?", "What", " time", " upon"]], top_p: [0.4], top_k: [2],
  min_p: [0.4], top_a: [1], typical_p: [0.3], temperature: [0.2], logit_bias: [{ 97: 100 }], stop: [["e", "a", "o"]], bad_words: [[" the", " a", "."]],
  min_tokens: [30], min_keep: [30], xtc_probability: [1], xtc_threshold: [0.02], mirostat_tau: [0.5], timeout: [0.001], n: [3], content: ["y"],
  tokens: [[100]], samplers: [["temperature"]], best_of: [8], truncate_prompt_tokens: [3], add_generation_prompt: [false],
  continue_final_message: [true], tool_choice: ["required", { type: "any" }], num_predict: [7], max_tokens_per_doc: [2], stop_sequences: [["e", "a", "o"]],
  top_n_sigma: [0.3], skip_special_tokens: [false], return_documents: [false], think: [false], stream: [true], raw: [false],
  num_ctx: [48], options: [{ num_ctx: 4 }], adaptive_decay: [0.99],
};

function normal(value) {
  if (Array.isArray(value)) return value.map(normal);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(([key]) => !/^(created|created_at|completed_at|timings|.*_duration)$/.test(key));
  return Object.fromEntries(kept.map(([key, each]) => {
    if (/^(id|item_id|call_id)$/.test(key) && typeof each === "string") return [key, each.replace(/[a-z0-9]{24,}/g, "*")];
    if (key === "prompt_tokens_details" || key === "input_tokens_details") return [key, null];
    return [key, normal(each)];
  }));
}

// [status, what is in the answer]
async function answer(path, body) {
  const response = await server.post(path, body);
  const text = await response.text();
  if (!/application.json/.test(response.headers.get("content-type"))) {
    return [response.status, text.replace(/"(created|time_ms|prompt_ms|predicted_ms|[a-z_]*(per_token_ms|per_second))":[\d.e+-]+|[a-z0-9]{24,}/g, "*")];
  }
  return [response.status, JSON.stringify(normal(JSON.parse(text)))];
}

// Supported, with an effect that no single answer shows, and where it is shown.
const elsewhere = new Map([
  ["priority", "scheduler_test"], ["speculative_config", "drafts.test.mjs"], ["cache_salt", "below"], ["store", "responses.test.mjs"],
  ["sse_ping_interval", "quiet_streams_test"], ["keep_alive", "ollama_test"], ["add_special_tokens", "tokenizer tests: this model has none"],
  ["parallel_tool_calls", "tools_test"], ["input_type", "encoders.test.mjs"], ["prompt_name", "encoders.test.mjs"],
  ["instruction", "rerank.test.mjs"], ["use_activation", "rerank.test.mjs"], ["activation", "rerank.test.mjs"],
  ["raw_scores", "rerank.test.mjs"], ["add_special", "tokenizer tests: this model has none"],
  ["/v1/chat/completions dry_base", "as in completions"], ["/v1/responses dry_base", "as in completions"], ["/v1/responses dry_sequence_breakers", "as in chats"],
  // Where the model repeats itself depends on the processor's level; in completions it does on each.
  ...["multiplier", "allowed_length", "penalty_last_n", "sequence_breakers"].flatMap((name) =>
    ["/v1/chat/completions", "/v1/responses"].map((path) => [`${path} dry_${name}`, "as in completions"])),
  ["truncation", "responses.test.mjs"], ["truncate", "encoders.test.mjs"], ["model", "models.test.mjs"],
  ["lora", "../server/adapters_test.cpp"], ["mm_processor_kwargs", "../server/media/media_test.cpp"], ["prompt_cache_key", "sessions.test.mjs"], ["prompt_cache_retention", "sessions.test.mjs"],
]);

test("every supported row changes the answer", async () => {
  const without_effect = [];
  for (const { path, inside, field, support, example } of rows()) {
    if (support !== "supported" || !base[path] || elsewhere.has(field) || elsewhere.has(`${path} ${field}`)) continue;
    const put = (body, fields) => (inside ? { ...body, [inside]: { ...body[inside], ...fields } } : { ...body, ...fields });
    const needs = field === "tool_choice" ? { tools: tools_of(path) } : beside_at[`${path} ${field}`] ?? beside[field] ?? {};
    const begun = put(base[path], needs);
    const [status, before] = await answer(path, begun);
    assert.equal(status, 200, `${path} ${field}: ${before}`);
    let differs = false;
    for (const value of [example, ...(values[field] ?? [])]) {
      const [code, changed] = await answer(path, put(begun, { [field]: value }));
      differs ||= (code === 200 || code === 504) && changed !== before;
    }
    if (!differs) without_effect.push(`${path} ${field}`);
  }
  assert.deepEqual(without_effect, []);
});

test("a cache salt keeps prompts apart", async () => {
  const cached = async (cache_salt) => {
    const body = await (await server.post("/v1/completions", { prompt: prompt.repeat(4), max_tokens: 1, cache_salt })).json();
    return body.usage.prompt_tokens_details.cached_tokens;
  };
  assert.equal(await cached("one"), 0);
  assert.ok((await cached("one")) > 0);
  assert.equal(await cached("two"), 0);
});

test("answers have the members that the document promises", async () => {
  const bodies = Object.entries(base).filter(([path]) => path !== "/completion");
  for (const [path, body] of bodies) {
    const { schema } = document.paths[path].post.responses["200"].content["application/json"];
    const response = await server.post(path, body);
    assert.equal(response.status, 200, path);
    const validate = ajv.compile(schema);
    assert.ok(validate(await response.json()), `${path} ${JSON.stringify(validate.errors)}`);
  }
  for (const [path, item] of Object.entries(document.paths)) {
    if (!item.get || path.includes("{") || path.startsWith("/admin") || path === "/is_sleeping" || path === "/metrics" ||
        path === "/v1/responses" ||  // a WebSocket
        path === "/v1/files" || path === "/v1/batches") continue;  // off here: batches.test.mjs has them
    const response = await fetch(server.url + path);
    assert.equal(response.status, 200, path);
    const validate = ajv.compile(item.get.responses["200"].content["application/json"].schema);
    assert.ok(validate(await response.json()), `${path} ${JSON.stringify(validate.errors)}`);
  }
});

test("errors have the shape that the document says", async () => {
  for (const [path, body] of [["/v1/completions", {}], ["/v1/messages", {}], ["/api/chat", { model: "nothing" }]]) {
    const response = await server.post(path, body);
    const name = document.paths[path].post.responses["400"].$ref.split("/").pop();
    const { schema } = document.components.responses[name].content["application/json"];
    const validate = ajv.compile({ ...schema, $ref: `openapi${schema.$ref}` });
    assert.ok(validate(await response.json()), path);
  }
});
