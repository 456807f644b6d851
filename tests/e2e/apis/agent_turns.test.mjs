// Turns of a coding agent's session: each prompt extends the one before, and only the addition is computed, on every
// API that agents use.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { long_model } from "../models/long_model.mjs";
import { QuireServer } from "../server_process.mjs";

let server;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "quire-turns-"));
  server = await QuireServer.start([], { model: long_model(folder) });
});
after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

const rules = (topic) => Array.from({ length: 300 }, (_, i) => `Rule ${i} of ${topic}: read a file before you edit it.`).join("\n");
const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const output = "1\thelo wurld";

async function ask(path, body) {
  const response = await server.post(path, body);
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

function check_cached(cached, all) {
  assert.ok(all > 3000, `${all} tokens are a prompt as agents have it`);
  assert.ok(cached >= 0.98 * all, `${cached} of ${all} tokens from the cache`);
}

test("Claude Code: its billing block, another one in each request, leaves the cache alone", async () => {
  const turn = (cch, messages) => ask("/v1/messages?beta=true", {
    model: "quire-long", max_tokens: 8, temperature: 0, metadata: { user_id: "u" },
    system: [{ type: "text", text: `x-anthropic-billing-header: cc_version=2.1.9; cc_entrypoint=cli; cch=${cch};` },
      { type: "text", text: rules("claude"), cache_control: { type: "ephemeral" } }],
    tools: [{ name: "Read", description: "Reads", input_schema: parameters }, { type: "web_search_20250305", name: "web_search", max_uses: 8 }],
    context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] }, messages,
  });
  const first = [{ role: "user", content: [{ type: "text", text: "Mend hello.txt", cache_control: { type: "ephemeral" } }] }];
  await turn("a1b2c", first);
  const call = { type: "tool_use", id: "toolu_1", name: "Read", input: { path: "hello.txt" } };
  const { usage } = await turn("d3e4f", [...first, { role: "assistant", content: [call] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [{ type: "text", text: output }] }] }]);
  check_cached(usage.cache_read_input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

test("Codex: developers' messages, tools of all kinds, outputs as arrays", async () => {
  const turn = (input) => ask("/v1/responses", {
    model: "quire-long", max_output_tokens: 16, temperature: 0, store: false, prompt_cache_key: "session", parallel_tool_calls: true,
    include: ["reasoning.encrypted_content"], reasoning: { summary: "auto" }, client_metadata: { a: "b" }, input,
    tools: [{ type: "function", name: "exec", strict: false, parameters }, { type: "web_search", external_web_access: true },
      { type: "namespace", name: "crew", description: "d", tools: [{ type: "function", name: "stop", parameters }] },
      { type: "custom", name: "apply_patch", description: "d", format: { type: "grammar", syntax: "lark", definition: "start: WORD" } },
      { type: "image_generation" }, { type: "local_shell" }],
  });
  const first = [{ type: "message", role: "developer", content: [{ type: "input_text", text: rules("codex") }] },
    { type: "message", role: "developer", content: [{ type: "input_text", text: "Be brief." }] },
    { type: "message", role: "user", content: [{ type: "input_text", text: "Mend hello.txt" }] }];
  await turn(first);
  const { usage } = await turn([...first, { type: "function_call", call_id: "c1", name: "exec", arguments: '{"path":"hello.txt"}' },
    { type: "function_call_output", call_id: "c1", output: [{ type: "input_text", text: output }] }]);
  check_cached(usage.input_tokens_details.cached_tokens, usage.input_tokens);
});

test("agents over chat completions", async () => {
  const turn = (messages) => ask("/v1/chat/completions", {
    model: "quire-long", max_tokens: 8, temperature: 0, messages,
    tools: [{ type: "function", function: { name: "read", parameters } }], tool_choice: "auto",
  });
  const first = [{ role: "system", content: rules("chats") }, { role: "user", content: "Mend hello.txt" }];
  await turn(first);
  const call = { id: "c1", type: "function", function: { name: "read", arguments: '{"path":"hello.txt"}' } };
  const { usage } = await turn([...first, { role: "assistant", content: null, tool_calls: [call] }, { role: "tool", tool_call_id: "c1", content: output }]);
  check_cached(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens);
});
