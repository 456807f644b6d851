// Coding agents, unmodified, in a scripted session each: it reads a file, edits it and finishes; every request is
// answered, and each turn's prompt comes from the prefix cache but for what is new.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { tool as langchain_tool } from "@langchain/core/tools";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { getModel, stream } from "@mariozechner/pi-ai";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { generateObject, generateText, stepCountIs, tool as ai_tool } from "ai";
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

// Its configuration, and the models' list that newer versions read.
function configure_codex(session, name, more = "") {
  mkdirSync(join(session.home, ".codex"));
  writeFileSync(join(session.home, ".codex/config.toml"), `
model = "quire-long"
model_provider = "quire"
check_for_update_on_startup = false
${more}
[model_providers.quire]
name = "${name}"
base_url = "${session.url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
`);
}

const codexes = ["@openai/codex/bin/codex.js", "codex-before/bin/codex.js"];
const codex_script = script(tool_call("exec_command", { cmd: "cat hello.txt" }), tool_call("exec_command", { cmd: mend }));
const codex_task = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", task];
const codex_tokens = new Map();  // tokens of the first prompt by version

for (const codex of codexes) {
  test(`Codex CLI: ${codex}`, () => with_session(codex_script, async (session) => {
    configure_codex(session, "quire");
    const out = await session.run(codex, codex_task);
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    const requests = await session.requests("/v1/responses");
    check_turns(requests);
    codex_tokens.set(codex, requests[0].prompt_tokens);
    assert.ok(session.server.log.some((line) => /a tool of type 'web_search' is left out/.test(line)));
  }));

  test(`Codex CLI: ${codex} --oss`, () => with_session(codex_script, async (session) => {
    const [command, ...args] = codex_task;
    const out = await session.run(codex, [command, "--oss", "--local-provider", "ollama", "-m", "quire-long", ...args], { CODEX_OSS_BASE_URL: session.url });
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    check_turns(await session.requests("/v1/responses"));
  }));

  // By a prompt of its own, or, of a provider that it takes for OpenAI's, by the server. The first result is longer than
  // what may be added to the first prompt; the edit may be made before and behind the compaction.
  for (const provider of ["quire", "OpenAI"]) {
    test(`Codex CLI: ${codex} compacts, provider ${provider}`, () => with_session([
      { after: task, say: tool_call("exec_command", { cmd: "cat hello.txt; seq 1 3000; echo that-was-it" }) },
      { after: "that-was-it", say: tool_call("exec_command", { cmd: mend }) },
      { after: "CONTEXT CHECKPOINT COMPACTION", say: "SUMMARY-OF-IT: there is a word to mend" },
      { after: "Summarize this conversation for a reader", say: "SUMMARY-OF-IT: there is a word to mend" },
      { after: "SUMMARY-OF-IT", say: tool_call("exec_command", { cmd: mend }) },
      { after: "mended-it", say: "The file is mended." },
    ], async (session) => {
      const limit = (codex_tokens.get(codex) ?? 12000) + 3000;
      configure_codex(session, provider, `model_auto_compact_token_limit = ${limit}\nmodel_context_window = 64000`);
      const out = await session.run(codex, codex_task);
      assert.match(out, /The file is mended\./);
      assert.equal(session.file(), "hello world\n");
      const requests = await session.requests("/v1/responses");
      assert.ok(requests.every(({ status }) => status === 200), JSON.stringify(requests));
      const shortened = requests.some(({ prompt_tokens }, i) => i > 0 && prompt_tokens < requests[i - 1].prompt_tokens);
      assert.ok(shortened, `a compaction shortens the prompt: ${JSON.stringify(requests)}`);
    }));
  }
}

test("Claude Code", () => with_session(
  script(tool_call("Bash", { command: "cat hello.txt", description: "reads" }), tool_call("Bash", { command: mend, description: "mends" })),
  async (session) => {
    const out = await session.run(".bin/claude", ["-p", task, "--allowedTools", "Bash", "--model", "quire-long"], {
      ANTHROPIC_BASE_URL: session.server.url, ANTHROPIC_AUTH_TOKEN: "none", ANTHROPIC_MODEL: "quire-long", ANTHROPIC_SMALL_FAST_MODEL: "quire-long",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1",
    });
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    check_turns((await session.requests("/v1/messages")).filter(({ prompt_tokens }) => prompt_tokens > 3000));
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
    const out = await session.run(".bin/opencode", ["run", task], {
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
    const out = await session.run(".bin/qwen", ["--auth-type", "openai", "-y", "-p", task], {
      OPENAI_API_KEY: "none", OPENAI_BASE_URL: session.url, OPENAI_MODEL: "quire-long",
    });
    assert.match(out, /The file is mended\./);
    assert.equal(session.file(), "hello world\n");
    check_turns((await session.requests("/v1/chat/completions")).filter(({ prompt_tokens }) => prompt_tokens > 3000));
  }));

// Each agent needs only the settings of `quire launch`.
const launched = [
  ["claude", "Bash", { description: "runs it" }, ["-p", task, "--allowedTools", "Bash"], { DISABLE_AUTOUPDATER: "1" }, "/v1/messages"],
  ["codex", "exec_command", {}, codex_task, {}, "/v1/responses"],
  ["opencode", "bash", { description: "runs it" }, ["run", task],
    { OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1" }, "/v1/chat/completions"],
  ["qwen", "run_shell_command", { is_background: false }, ["-y", "-p", task], {}, "/v1/chat/completions"],
];
for (const [agent, shell, more, args, env, path] of launched) {
  const word = agent === "codex" ? "cmd" : "command";
  test(`quire launch ${agent}`, () => with_session(
    script(tool_call(shell, { [word]: "cat hello.txt", ...more }), tool_call(shell, { [word]: mend, ...more })),
    async (session) => {
      const out = await session.launch(agent, args, env);
      assert.match(out, /The file is mended\./);
      assert.equal(session.file(), "hello world\n");
      check_turns((await session.requests(path)).filter(({ prompt_tokens }) => prompt_tokens > 3000));
    }));
}

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

const report = z.object({ file: z.string(), mended: z.boolean() });
const reported = { file: "hello.txt", mended: true };

test("OpenAI Agents SDK with an output type", () => with_session(
  [...script(tool_call("shell", { command: "cat hello.txt" }), tool_call("shell", { command: mend })).slice(0, 2),
    { after: "mended-it", say: JSON.stringify(reported) }],
  async (session) => {
    setTracingDisabled(true);
    const shell = tool({
      name: "shell", description: "Runs a command", parameters: z.object({ command: z.string() }),
      execute: ({ command }) => (command === "cat hello.txt" ? "helo wurld" : "mended-it"),
    });
    for (const useResponses of [true, false]) {
      const provider = new OpenAIProvider({ baseURL: session.url, apiKey: "none", useResponses });
      const agent = new Agent({ name: "mender", instructions: rules, tools: [shell], outputType: report, model: "quire-long" });
      const result = await new Runner({ modelProvider: provider }).run(agent, task);
      assert.deepEqual(result.finalOutput, reported);
    }
  }));

test("AI SDK: a loop of tools, and an object", () => with_session(
  [...script(tool_call("shell", { command: "cat hello.txt" }), tool_call("shell", { command: mend })),
    { after: "Report on it", say: JSON.stringify(reported) }],
  async (session) => {
    const provider = createOpenAICompatible({ name: "quire", baseURL: session.url, apiKey: "none", supportsStructuredOutputs: true });
    const model = provider.chatModel("quire-long");
    const shell = ai_tool({
      description: "Runs a command", inputSchema: z.object({ command: z.string() }),
      execute: async ({ command }) => (command === "cat hello.txt" ? "helo wurld" : "mended-it"),
    });
    const { text, steps } = await generateText({ model, system: rules, prompt: task, tools: { shell }, stopWhen: stepCountIs(5) });
    assert.equal(text, "The file is mended.");
    assert.equal(steps.length, 3);
    const { object } = await generateObject({ model, prompt: "Report on it", schema: report });
    assert.deepEqual(object, reported);
    check_turns((await session.requests("/v1/chat/completions")).filter(({ prompt_tokens }) => prompt_tokens > 1000));
  }));

test("LangGraph", () => with_session(
  script(tool_call("shell", { command: "cat hello.txt" }), tool_call("shell", { command: mend })),
  async (session) => {
    const shell = langchain_tool(({ command }) => (command === "cat hello.txt" ? "helo wurld" : "mended-it"),
      { name: "shell", description: "Runs a command", schema: z.object({ command: z.string() }) });
    const llm = new ChatOpenAI({ model: "quire-long", apiKey: "none", configuration: { baseURL: session.url } });
    const agent = createReactAgent({ llm, tools: [shell], prompt: rules });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: task }] });
    assert.equal(messages.at(-1).content, "The file is mended.");
    check_turns(await session.requests("/v1/chat/completions"));
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
