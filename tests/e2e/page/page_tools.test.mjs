// Tools on the page in a real Chromium: written as forms; servers of the Model Context Protocol that the user adds, whose calls are
// approved once or always, run, and answered to the model.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { answered, answers, open, say, show_settings, skip } from "./page_support.mjs";

// A picture of one pixel.
const kDot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const kTools = [
  { name: "add", description: "Adds two numbers", inputSchema: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] } },
  { name: "fail", description: "Fails", inputSchema: { type: "object", properties: {} } },
  { name: "draw", description: "Returns a picture", inputSchema: { type: "object", properties: {} } },
  { name: "hang", description: "Never ends", inputSchema: { type: "object", properties: {} } },
];

// A tool server over streamable HTTP with sessions: answers calls of `add` as an event stream, behind a ping of its own.
async function tool_server(context) {
  const seen = { calls: [], pongs: 0, sessions: 0, tokens: new Set() };
  const results = {
    initialize: () => ({ protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "calculator", version: "1" } }),
    "tools/list": ({ cursor }) => (cursor ? { tools: kTools.slice(1) } : { tools: kTools.slice(0, 1), nextCursor: "more" }),
    "tools/call": ({ name, arguments: { a, b } }) => {
      seen.calls.push(name);
      if (name === "draw") return { content: [{ type: "text", text: "a dot" }, { type: "image", mimeType: "image/png", data: kDot }] };
      return name === "add" ? { content: [{ type: "text", text: String(a + b) }] } : { content: [{ type: "text", text: "broken" }], isError: true };
    },
  };
  const server = createServer(async (request, response) => {
    const origin = request.headers.origin;
    response.setHeader("Access-Control-Allow-Origin", origin ?? "*");
    response.setHeader("Access-Control-Allow-Headers", "content-type, accept, authorization, mcp-session-id, mcp-protocol-version");
    response.setHeader("Access-Control-Allow-Methods", "POST, DELETE");
    response.setHeader("Access-Control-Expose-Headers", "mcp-session-id");
    if (request.method !== "POST") return response.writeHead(204).end();
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const message = JSON.parse(Buffer.concat(chunks));
    if (message.method === undefined) {
      seen.pongs += message.result ? 1 : 0;
      return response.writeHead(202).end();
    }
    if (message.method === "initialize") {
      seen.sessions += 1;
      seen.tokens.add(request.headers.authorization);
      response.setHeader("Mcp-Session-Id", `session-${seen.sessions}`);
    } else if (request.headers["mcp-session-id"] !== `session-${seen.sessions}`) return response.writeHead(404).end();
    if (message.id === undefined) return response.writeHead(202).end();
    if (message.params.name === "hang") return undefined;
    const reply = JSON.stringify({ jsonrpc: "2.0", id: message.id, result: results[message.method](message.params) });
    if (message.method !== "tools/call") return response.writeHead(200, { "Content-Type": "application/json" }).end(reply);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write('event: message\ndata: {"jsonrpc":"2.0","id":"p1","method":"ping"}\n\n');
    return response.end(`event: message\r\ndata: ${reply}\r\n\r\n`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, seen, forget: () => { seen.sessions += 1; } };
}

const call = (name, args, index = 0) => ({ tool_calls: [{ index, id: `call_${name}_${index}`, type: "function", function: { name, arguments: JSON.stringify(args) } }] });

// The model answers with these deltas, one list after the other; returns the requests' bodies as they come.
async function scripted(page, rounds) {
  const bodies = [];
  await page.route("**/v1/chat/completions", (route) => {
    bodies.push(route.request().postDataJSON());
    const deltas = rounds[Math.min(bodies.length, rounds.length) - 1];
    const events = [...deltas.map((delta) => ({ choices: [{ delta }] })), { choices: [{ delta: {}, finish_reason: deltas[0].tool_calls ? "tool_calls" : "stop" }] }];
    return route.fulfill({ status: 200, contentType: "text/event-stream", body: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("") + "data: [DONE]\n\n" });
  });
  return bodies;
}

async function add_server(page, url, token = "") {
  await show_settings(page, true);
  await page.fill("#server-url", url);
  await page.fill("#server-token", token);
  await page.click("text=Add a tool server");
}

const connected = (page) => page.waitForFunction(() => document.querySelector("#server-list [role=status]")?.textContent === "4 tools");

test("a tool server's calls are shown, approved once or always, and answered to the model", { skip }, async (context) => {
  const tools = await tool_server(context);
  const { page, server, complaints } = await open(context, { others: [tools.url] });
  const bodies = await scripted(page, [[call("add", { a: 2, b: 3 })], [{ content: "Five." }], [call("add", { a: 4, b: 5 })], [call("add", { a: 1, b: 1 }), call("fail", {}, 1)], [{ content: "Done." }]]);
  await add_server(page, `${tools.url}/mcp`, "secret");
  await connected(page); // after a reload, by which the server's policy allows the connection
  assert.ok(await page.isVisible("#settings"), "the panel is open again");
  assert.deepEqual([...tools.seen.tokens], ["Bearer secret"]);
  assert.match((await fetch(server.url, { headers: { Cookie: `quire_connect=${tools.url}` } })).headers.get("content-security-policy"), new RegExp(`connect-src 'self' ${tools.url};`));

  await say(page, "What is 2 + 3?");
  await page.waitForSelector("button:text-is('Allow once')");
  assert.deepEqual(bodies[0].tools.map(({ function: { name } }) => name), ["add", "fail", "draw", "hang"]);
  assert.deepEqual(bodies[0].tools[0].function.parameters, kTools[0].inputSchema);
  assert.match(await page.innerText(".call"), /Calls add[\s\S]*"a": 2[\s\S]*Run this at calculator\?/);
  assert.deepEqual(tools.seen.calls, [], "nothing runs before it is allowed");
  await page.click("button:text-is('Allow once')");
  await answered(page, 2);
  assert.deepEqual(bodies[1].messages.at(-1), { role: "tool", tool_call_id: "call_add_0", content: "5" });
  assert.equal(tools.seen.pongs, 1, "the server's ping is answered");

  await say(page, "And 4 + 5?");
  await page.waitForSelector("button:text-is('Always allow')");
  await page.click("button:text-is('Always allow')");
  // The next round runs by itself, but for the tool that is not allowed.
  await page.waitForFunction(() => document.querySelectorAll(".approval").length === 1 && document.querySelectorAll(".message.tool").length === 3);
  assert.deepEqual(tools.seen.calls, ["add", "add", "add"]);
  await page.click("button:text-is('Allow once')");
  await answered(page, 5);
  assert.deepEqual(bodies[4].messages.slice(-2), [{ role: "tool", tool_call_id: "call_add_0", content: "2" }, { role: "tool", tool_call_id: "call_fail_1", content: "Error: broken" }]);
  assert.equal((await answers(page)).at(-1).trim(), "Done.");
  assert.deepEqual(complaints.filter((text) => !/Content Security Policy/.test(text)), []);
});

test("the page's policy takes origins from its cookie, and nothing else", { skip }, async (context) => {
  const { server } = await open(context);
  const connects = async (cookie) => /connect-src ([^;]*);/.exec((await fetch(server.url, { headers: { Cookie: cookie } })).headers.get("content-security-policy"))[1];
  assert.equal(await connects("other=1"), "'self'");
  assert.equal(await connects("a=1; quire_connect=https://a.example|http://[::1]:80; b=2"), "'self' https://a.example http://[::1]:80");
  for (const bad of ["*", "https:", "https://", "https://*", "https://a.example/path", "ftp://a.example", "https://a.example 'unsafe-inline'", "https://a,b", `https://${"a".repeat(300)}`]) {
    assert.equal(await connects(`quire_connect=${bad}|https://b.example`), "'self' https://b.example", bad);
  }
  assert.equal((await connects(`quire_connect=${Array.from({ length: 40 }, (_, i) => `https://h${i}`).join("|")}`)).split(" ").length, 17);
  assert.match((await fetch(server.url)).headers.get("vary"), /Cookie/);
});

test("a call is refused or cancelled, a forgotten session is opened again, and a server is switched off and removed", { skip }, async (context) => {
  const tools = await tool_server(context);
  const { page } = await open(context, { others: [tools.url] });
  const bodies = await scripted(page, [[call("add", { a: 2, b: 3 })], [call("hang", {})], [call("add", { a: 1, b: 2 })], [{ content: "Done." }]]);
  await add_server(page, tools.url);
  await connected(page);
  await say(page, "Compute");
  await page.click("button:text-is('Refuse')");
  await page.waitForFunction(() => /Run this/.test([...document.querySelectorAll(".approval")].at(-1)?.textContent) && document.querySelectorAll(".message.tool").length === 1);
  assert.equal(bodies[1].messages.at(-1).content, "Error: the user refused this call");
  await page.click("button:text-is('Allow once')");
  await page.click("button:text-is('Cancel')");
  await answered(page, 3);
  await page.waitForSelector(".approval");
  assert.equal(bodies[2].messages.at(-1).content, "Error: the user cancelled this call");
  tools.forget();
  await page.click("button:text-is('Allow once')");
  await answered(page, 4);
  assert.equal(bodies[3].messages.at(-1).content, "3");

  // A function of the settings keeps its name; the server's tool of the same name gets another, under which it is found.
  await page.fill("#tools", JSON.stringify([{ type: "function", function: { name: "add" } }]));
  await say(page, "Which one?");
  await answered(page, 5);
  const [own, of_server] = bodies.at(-1).tools.map(({ function: { name } }) => name);
  assert.deepEqual([own, of_server], ["add", "calculator_add"]);
  await page.fill("#tools", "");

  await page.uncheck("#server-list input[type=checkbox]");
  await say(page, "Again");
  await answered(page, 6);
  assert.equal(bodies.at(-1).tools, undefined);
  await page.click("button:text-is('Remove')");
  await page.click("button:text-is('Really remove?')");
  assert.equal(await page.locator("#server-list li").count(), 0);
  assert.ok(!(await page.evaluate(() => document.cookie)).includes("quire_connect"));
});

test("a picture that a tool returns is shown, and given to the model", { skip }, async (context) => {
  const tools = await tool_server(context);
  const { page } = await open(context, { others: [tools.url] });
  const bodies = await scripted(page, [[call("draw", {})], [{ content: "A dot." }]]);
  await add_server(page, tools.url);
  await connected(page);
  await say(page, "Draw");
  await page.click("button:text-is('Allow once')");
  await answered(page, 2);
  assert.deepEqual(bodies[1].messages.at(-1).content, [{ type: "image_url", image_url: { url: `data:image/png;base64,${kDot}` } }, { type: "text", text: "a dot\n[image]" }]);
  assert.equal(await page.locator(".message.tool figure.attached img").count(), 1);
});

test("a tool server that does not answer, or is none, is named with what to do", { skip }, async (context) => {
  const { page, server } = await open(context);
  await add_server(page, `${server.url}/nothing`);
  await page.waitForFunction(() => /^Failed: it answers 404/.test(document.querySelector("#server-list [role=status]")?.textContent));
  await page.fill("#server-url", "ftp://host/mcp");
  await page.click("text=Add a tool server");
  await page.waitForFunction(() => document.querySelector("#server-problem").textContent === "Tool servers have http or https URLs");
});

test("tools are written and changed as forms", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const bodies = await scripted(page, [[{ content: "Yes." }]]);
  await show_settings(page, true);
  await page.click("#add-tool");
  await page.fill("[aria-label=\"Tool's name\"]", "get_weather");
  await page.fill("[aria-label=\"Tool's description\"]", "The weather of a city");
  for (const [i, [name, type, note]] of [["city", "string", "its name"], ["days", "integer", ""]].entries()) {
    await page.click("text=Add a parameter");
    const row = page.locator(".parameter").nth(i);
    await row.locator("[aria-label=\"Parameter's name\"]").fill(name);
    await row.locator("[aria-label=\"Parameter's type\"]").selectOption(type);
    await row.locator("[aria-label=\"Parameter's description\"]").fill(note);
    if (i === 0) await row.locator("input[type=checkbox]").check();
  }
  await page.click("text=Save the tool");
  const written = [{ type: "function", function: { name: "get_weather", description: "The weather of a city", parameters: {
    type: "object", properties: { city: { type: "string", description: "its name" }, days: { type: "integer" } }, required: ["city"] } } }];
  assert.deepEqual(JSON.parse(await page.inputValue("#tools")), written);

  // Fields that the form does not show are kept.
  written[0].function.parameters.properties.days.minimum = 1;
  await page.fill("#tools", JSON.stringify(written));
  await page.click("[aria-label='Edit the tool get_weather']");
  await page.fill("[aria-label=\"Tool's name\"]", "weather");
  await page.click("text=Save the tool");
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#model").value);
  await say(page, "Hello");
  await answered(page, 1);
  written[0].function.name = "weather";
  assert.deepEqual(bodies[0].tools, written);
  await show_settings(page, true);
  await page.click("[aria-label='Delete the tool weather']");
  await page.click("[aria-label='Delete the tool weather']");
  assert.equal(await page.inputValue("#tools"), "");
  assert.deepEqual(complaints, []);
});
