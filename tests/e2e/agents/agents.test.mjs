// Coding agents, unmodified, in a scripted session each: it reads a file, edits it and finishes; every request is
// answered, and each turn's prompt comes from the prefix cache but for what is new.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { getModel, stream } from "@mariozechner/pi-ai";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { z } from "zod";
import { AgentSession, tool_call } from "./agent_session.mjs";

const task = "Mend the spelling in hello.txt";
const rules = "You mend files. ".repeat(2000);  // as long as agents' own prompts
const mend = "sed -i 's/helo wurld/hello world/' hello.txt && echo mended-it";

// Reads the file, edits it, says that it is done: by the tools that `read` and `edit` call.
const script = (read, edit) => [
  { after: task, say: read },
  { after: "helo wurld", say: edit },
  { after: "mended-it", say: "The file is mended." },
];

async function with_session(lines, body) {
  const session = await AgentSession.start(lines);
  try {
    await body(session);
  } finally {
    await session.stop();
  }
}

// The turns are those requests whose prompt begins with the one before.
function check_turns(requests) {
  assert.ok(requests.every(({ status }) => status === 200), JSON.stringify(requests));
  const turns = requests.filter(({ prompt_tokens }) => prompt_tokens > 1000);
  assert.ok(turns.length >= 3, `three turns: ${JSON.stringify(requests)}`);
  for (const [i, { prompt_tokens, cached_tokens }] of turns.entries()) {
    if (i === 0) continue;
    assert.ok(cached_tokens >= 0.98 * prompt_tokens, `turn ${i}: ${cached_tokens} of ${prompt_tokens} tokens from the cache`);
  }
}

test("Codex CLI", () => with_session(
  script(tool_call("exec_command", { cmd: "cat hello.txt" }), tool_call("exec_command", { cmd: mend })),
  async (session) => {
    mkdirSync(join(session.home, ".codex"));
    writeFileSync(join(session.home, ".codex/config.toml"), `
model = "quire-long"
model_provider = "quire"
check_for_update_on_startup = false
[model_providers.quire]
name = "quire"
base_url = "${session.url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
`);
    const out = await session.run("codex", ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", task]);
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    check_turns(await session.requests("/v1/responses"));
    assert.ok(session.server.log.some((line) => /a tool of type 'web_search' is left out/.test(line)));
  }));

test("opencode", () => with_session(
  script(tool_call("bash", { command: "cat hello.txt", description: "reads" }), tool_call("bash", { command: mend, description: "mends" })),
  async (session) => {
    const model = { name: "quire-long", limit: { context: 65536, output: 4096 } };
    writeFileSync(join(session.work, "opencode.json"), JSON.stringify({
      autoupdate: false, share: "disabled", model: "quire/quire-long", small_model: "quire/quire-long",
      permission: { bash: "allow", edit: "allow" },
      provider: {
        quire: { npm: "@ai-sdk/openai-compatible", name: "quire", options: { baseURL: session.url, apiKey: "none" }, models: { "quire-long": model } },
      },
    }));
    const out = await session.run("opencode", ["run", task], {
      OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
    });
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    const requests = await session.requests("/v1/chat/completions");
    // Its title is another conversation.
    check_turns(requests.filter(({ prompt_tokens }) => prompt_tokens > 3000));
  }));

test("Qwen Code", () => with_session(
  script(tool_call("run_shell_command", { command: "cat hello.txt", is_background: false }),
    tool_call("run_shell_command", { command: mend, is_background: false })),
  async (session) => {
    const out = await session.run("qwen", ["--auth-type", "openai", "-y", "-p", task], {
      OPENAI_API_KEY: "none", OPENAI_BASE_URL: session.url, OPENAI_MODEL: "quire-long",
    });
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    check_turns((await session.requests("/v1/chat/completions")).filter(({ prompt_tokens }) => prompt_tokens > 3000));
  }));

test("OpenAI Agents SDK", () => with_session(
  script(tool_call("shell", { command: "cat hello.txt" }), tool_call("shell", { command: mend })),
  async (session) => {
    setTracingDisabled(true);
    const shell = tool({
      name: "shell", description: "Runs a command", parameters: z.object({ command: z.string() }),
      execute: ({ command }) => (command === "cat hello.txt" ? "helo wurld" : "mended-it"),
    });
    const provider = new OpenAIProvider({ baseURL: session.url, apiKey: "none", useResponses: true });
    const agent = new Agent({ name: "mender", instructions: rules, tools: [shell], model: "quire-long" });
    const result = await new Runner({ modelProvider: provider }).run(agent, task);
    assert.equal(result.finalOutput, "The file is mended.");
    check_turns(await session.requests("/v1/responses"));
  }));

// An MCP server with a shell that works in the session's folder, and a client of it.
async function shell_over_mcp(session) {
  const server = new McpServer({ name: "shell", version: "1.0.0" });
  server.registerTool("shell", { description: "Runs a command", inputSchema: { command: z.string() } }, ({ command }) => ({
    content: [{ type: "text", text: execFileSync("/bin/sh", ["-c", command], { cwd: session.work, encoding: "utf8" }) }],
  }));
  const client = new Client({ name: "agent", version: "1.0.0" });
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  return client;
}

test("pi-ai with a tool of an MCP server", () => with_session(
  script(tool_call("shell", { command: "cat hello.txt" }), tool_call("shell", { command: mend })),
  async (session) => {
    const model = {
      ...getModel("openai", "gpt-4o-mini"), id: "quire-long", name: "quire-long", api: "openai-completions", provider: "quire",
      baseUrl: session.url, reasoning: false,
    };
    const mcp = await shell_over_mcp(session);
    const { tools } = await mcp.listTools();
    const context = {
      systemPrompt: rules, messages: [{ role: "user", content: task, timestamp: 1 }],
      tools: tools.map(({ name, description, inputSchema }) => ({ name, description, parameters: inputSchema })),
    };
    for (const wanted of ["helo wurld\n", "mended-it\n"]) {
      const message = await stream(model, context, { apiKey: "none" }).result();
      const call = message.content.find(({ type }) => type === "toolCall");
      assert.equal(call?.name, "shell", JSON.stringify(message));
      const { content } = await mcp.callTool({ name: call.name, arguments: call.arguments });
      assert.equal(content[0].text, wanted);
      context.messages.push(message, {
        role: "toolResult", toolCallId: call.id, toolName: "shell", content, isError: false, timestamp: 1,
      });
    }
    const last = await stream(model, context, { apiKey: "none" }).result();
    assert.equal(last.content.find(({ type }) => type === "text").text, "The file is mended.");
    assert.equal(session.file(), "hello world\n");
    await mcp.close();
    check_turns(await session.requests("/v1/chat/completions"));
  }));
