// Scripted models behind templates of the test material: their calls are equal in every chat API, strict or not, and
// with accepted drafts; an agent's second turn finds the model's first answer in the cache.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { write_scripted_model } from "./scripted_model.mjs";
import { QuireServer } from "../server_process.mjs";

const material = process.env.QUIRE_TEST_MATERIAL ?? join(process.env.QUIRE_SOURCE ?? ".", "..", "shared", "material");
const templates = join(material, "chat-templates", "templates");
const skip = !existsSync(templates) && `test material '${templates}' is absent`;

// Each template with the pieces of a call as its model writes it, or of a call behind thoughts. `kept`: its history shows
// a turn as it was written.
const cases = [
  { template: "Qwen-Qwen3-0.6B", kept: true,
    thought: ["<think>\nI look.\n", "</think>\n\n<tool_call>\n{\"name\": \"read\", ", "\"arguments\": {\"path\": \"hello.txt\"", "}}\n</tool_call>"],
    pieces: ["<tool_call>", "\n{\"name\": \"read\", \"arguments\": ", "{\"path\": \"hello.txt\"}", "}\n</tool_call>"] },
  { template: "mistralai-Ministral-3-14B-Reasoning-2512", kept: true, pieces: ["[TOOL_CALLS]", "read", "[ARGS]", "{\"path\": \"hello.txt\"}"] },
  { template: "google-gemma-4-31B-it", kept: false,
    pieces: ["<|tool_call>", "call:read{", "path:<|\"|>hello", ".txt<|\"|>}", "<tool_call|>"] },
];
const rules = Array.from({ length: 150 }, (_, i) => `Rule ${i}: look at the whole file before you edit any of its lines.`).join("\n");
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"], additionalProperties: false };

async function with_server(each, flags, run) {
  const folder = mkdtempSync(join(tmpdir(), "quire-scripted-"));
  const model = join(folder, "scripted.gguf");
  const source = readFileSync(join(templates, `${each.template}.jinja`), "utf8");
  const first = write_scripted_model(model, each.thought ? { call: each.pieces, thought: each.thought } : { call: each.pieces }, source);
  const server = await QuireServer.start([...flags, "--alias", "scripted"], { model });
  try {
    await run(server, (script) => ({ model: "scripted", temperature: 0, logit_bias: { [first[script]]: 5 } }));
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function ask(server, path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

const wish = [{ role: "system", content: rules }, { role: "user", content: "Mend hello.txt" }];
const thoughtless = { chat_template_kwargs: { enable_thinking: false } };
const tool = (strict) => ({ type: "function", function: { name: "read", description: "Reads a file", parameters, strict } });

for (const each of cases) {
  test(`${each.template}: the second turn comes from the cache`, { skip }, () => with_server(each, [], async (server, saying) => {
    const base = each.thought ? saying("thought") : { ...saying("call"), ...thoughtless };
    const turn = (messages) => ask(server, "/v1/chat/completions", { ...base, messages, tools: [tool(false)], max_tokens: 50 });
    const one = await turn(wish);
    const { message } = one.choices[0];
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { path: "hello.txt" });
    const two = await turn([...wish, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "helo" }]);
    const { prompt_tokens, prompt_tokens_details: { cached_tokens } } = two.usage;
    assert.ok(prompt_tokens > 8000 && cached_tokens >= 0.98 * prompt_tokens, `${cached_tokens} of ${prompt_tokens} tokens`);
    const kBlock = 16;
    const written = one.usage.prompt_tokens + one.usage.completion_tokens - 1;
    if (each.kept) assert.ok(cached_tokens > written - kBlock, `${cached_tokens} of ${written} tokens of the first turn`);
  }));

  test(`${each.template}: the call comes back, strict or not, with drafts or without`, { skip }, async () => {
    for (const flags of [["--speculation", "none"], ["--speculation", "prompt_lookup"]]) {
      await with_server(each, flags, async (server, saying) => {
        // The call is in the history, so that it is drafted where drafts are worth their time.
        const call = { id: "abcdef123", type: "function", function: { name: "read", arguments: "{\"path\": \"hello.txt\"}" } };
        const messages = [...wish, { role: "assistant", content: "", tool_calls: [call] }, { role: "tool", tool_call_id: call.id, content: "helo" },
          { role: "assistant", content: "Done." }, { role: "user", content: "Again" }];
        for (const strict of [false, true]) {
          for (const tool_choice of ["auto", "required", { type: "function", function: { name: "read" } }]) {
            const answer = await ask(server, "/v1/chat/completions",
              { ...saying("call"), ...thoughtless, messages, tools: [tool(strict)], tool_choice, parallel_tool_calls: false, max_tokens: 50 });
            const [choice] = answer.choices;
            assert.equal(choice.finish_reason, "tool_calls", JSON.stringify({ flags, strict, tool_choice, choice }));
            assert.equal(choice.message.tool_calls.length, 1);
            assert.equal(choice.message.tool_calls[0].function.name, "read");
            assert.deepEqual(JSON.parse(choice.message.tool_calls[0].function.arguments), { path: "hello.txt" });
          }
        }
      });
    }
  });
}
