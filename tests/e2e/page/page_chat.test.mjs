// The chat page in a real Chromium: answers streamed, stopped, continued and answered again; conversations kept, branched,
// searched and carried; Markdown without danger; settings, files and tools.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { answer_with, answered, answers, has_started, next_chat, open, say, settings, skip } from "./page_support.mjs";

const kAnswers = 16;
const kLong = 1800;  // tokens; what the demo model's context holds beside a short prompt

test("a chat is streamed, survives a reload, and an answer has versions", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, seed: 7, max_tokens: 48, system: "You are brief." });
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const boxes = document.querySelectorAll(".message.assistant .content");
      if (boxes.length) window.lengths.add(boxes[boxes.length - 1].textContent.length);
    }).observe(document.querySelector("#messages"), { childList: true, subtree: true, characterData: true });
  });
  const sent = next_chat(page);
  await say(page, "What is a KV block?");
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.messages, [{ role: "system", content: "You are brief." }, { role: "user", content: "What is a KV block?" }]);
  assert.deepEqual([body.temperature, body.seed, body.max_tokens, body.stream], [0, 7, 48, true]);
  assert.equal("top_p" in body, false, "an empty field leaves the choice to the model");
  await answered(page, 1);
  const [first] = await answers(page);
  assert.ok(first.length > 0);
  assert.match(await page.textContent(".message.assistant .rate"), /^\d+ tokens.*, first after [\d.]+ s/);

  await page.reload();
  await has_started(page);
  await answered(page, 1);
  assert.deepEqual(await answers(page), [first], "the conversation is there again");
  assert.equal(await page.inputValue("#temperature"), "0", "so are the settings");

  await page.click(".message.assistant .again");
  await page.waitForFunction(() => document.querySelector(".message.assistant .branches")?.textContent.includes("2/2"));
  await answered(page, 1);
  assert.deepEqual(await answers(page), [first], "the same seed gives the same answer");
  const again = next_chat(page);
  await say(page, "And why?");
  assert.deepEqual((await again).postDataJSON().messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  await answered(page, 2);
  await page.click("[aria-label='Earlier version']");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 2);
  await page.click("[aria-label='Later version']");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 4);
  assert.deepEqual(complaints, []);
});

test("stop ends the answer, at the server too", { skip }, async (context) => {
  const { server, page, complaints } = await open(context, { flags: ["--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  // Many answers without end, so that the server is not done before a slow browser clicks.
  const endless = { ignore_eos: true, max_tokens: kLong, n: kAnswers };
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...endless }) }));
  // Clicked from within the page, as soon as there is something: the answer is quick.
  await page.evaluate(() => new MutationObserver((_, observer) => {
    if ((document.querySelector(".message.assistant .content")?.textContent.length ?? 0) < 20) return;
    observer.disconnect();
    document.querySelector("#stop").click();
  }).observe(document.querySelector("#messages"), { childList: true, subtree: true, characterData: true }));
  await say(page, "Tell me a story.");
  await answered(page, 1);
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  const metrics = await server.metrics();
  assert.ok(metrics["vllm:generation_tokens_total"] < kLong * kAnswers, "it was not computed to its end");
  const numFirst = metrics["vllm:time_to_first_token_seconds_count"];
  assert.ok(numFirst >= 1 && numFirst <= kAnswers, "the first tokens of a stopped request's answers are counted");
  const [text] = await answers(page);
  assert.ok(text.length >= 20, "what had come stays");
  assert.match(await page.innerText(".message.assistant footer"), /Stopped/);
  assert.ok(await page.isEnabled("#send"));
  assert.deepEqual(complaints, []);
});

test("a conversation that is left and opened again shows the answer that still comes", { skip }, async (context) => {
  const { page, complaints } = await open(context, { flags: ["--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  await settings(page, { max_tokens: 4 });
  await say(page, "What is a KV block?");
  await answered(page, 1);
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, max_tokens: kLong }) }));
  await say(page, "Tell me a story.");
  const length = () => page.evaluate(() => [...document.querySelectorAll(".message.assistant .content")][1]?.textContent.length ?? 0);
  await page.waitForFunction(() => [...document.querySelectorAll(".message.assistant .content")][1]?.textContent.length > 0);
  await page.click("#new");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 0);
  await page.click("#conversations .name");
  await page.waitForFunction(() => document.querySelectorAll(".message.assistant").length === 2);
  const seen = await length();
  await page.waitForFunction((before) => [...document.querySelectorAll(".message.assistant .content")][1].textContent.length > before, seen);
  await page.click("#stop");
  await answered(page, 2);
  assert.match(await page.locator(".message.assistant footer").nth(1).innerText(), /Stopped/);
  assert.deepEqual(complaints, []);
});

test("an answer that was cut says so and can be continued", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 6 });
  await say(page, "What is a KV block?");
  await answered(page, 1);
  const [begun] = await answers(page);
  assert.match(await page.innerText(".message.assistant footer"), /maximum of tokens/);
  const sent = next_chat(page);
  await page.click("text=Continue");
  const body = (await sent).postDataJSON();
  assert.equal(body.continue_final_message, true);
  assert.equal(body.messages.at(-1).role, "assistant");
  await answered(page, 1);
  const [longer] = await answers(page);
  assert.ok(longer.startsWith(begun) && longer.length > begun.length);
  assert.deepEqual(complaints, []);
});

test("an error is shown with what can be done about it", { skip }, async (context) => {
  const { page, server } = await open(context);
  await settings(page, { top_p: 5 });
  await say(page, "Hello");
  await answered(page, 1);
  const problem = page.locator(".message.assistant.error .problem");
  assert.match(await problem.textContent(), /top_p.*Correct the setting/);
  await settings(page, { top_p: "", schema: "{not json" });
  await page.click(".message.assistant .again");
  await page.waitForFunction(() => document.querySelector(".problem")?.textContent.includes("JSON schema is not JSON"));
  await settings(page, { schema: "" });
  server.kill();
  await server.ended();
  await page.click(".message.assistant .again");
  await page.waitForFunction(() => document.querySelector(".problem")?.textContent.includes("The server does not answer"));
});

test("Markdown is rendered, and nothing in it acts", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const attacks = [
    "<script>window.taken = 1</script>", "<img src=x onerror='window.taken = 1'>", "[link](javascript:window.taken=1)",
    "<svg><animate onbegin='window.taken=1' attributeName=x dur=1s>", "<iframe srcdoc='<script>parent.taken=1</script>'></iframe>",
    "![image](https://example.invalid/pixel.png)", "<a href='https://example.invalid' style='position:fixed;inset:0'>cover</a>",
    "$\\href{javascript:window.taken=1}{x}$", "```html\n<img src=x onerror='window.taken = 1'>\n```",
    "<style>@import 'https://example.invalid/x.css';</style>", "<form action='https://example.invalid'><button>go</button></form>",
  ];
  const text = ["# Title", "A *list* of **things**: $x^2$ costs $5 and $6.", "- one `code`\n- two", "$$\\frac{1}{2}$$",
    "```python\ndef f(x):\n    return 1\n```", "| a | b |\n|---|---|\n| 1 | 2 |", ...attacks].join("\n\n");
  await answer_with(page, [{ reasoning_content: "Let me *think*." }, ...text.match(/[\s\S]{1,11}/g).map((content) => ({ content }))]);
  await say(page, "Show me");
  await answered(page, 1);
  await page.waitForSelector(".content .hljs-keyword");
  const counts = await page.evaluate(() => Object.fromEntries(["h1", "em", "li code", "table td", ".katex", "pre .hljs-keyword",
    "figure.code button"].map((what) => [what, document.querySelectorAll(`.content ${what}`).length])));
  for (const [what, count] of Object.entries(counts)) assert.ok(count > 0, what);
  assert.match(await page.innerText(".message.assistant .content"), /costs \$5 and \$6/, "money is no formula");
  const held = await page.evaluate(() => ({
    taken: window.taken, elements: document.querySelectorAll(".content :is(script, img, svg animate, iframe, style, form)").length,
    handlers: [...document.querySelectorAll(".content *")].filter((node) => [...node.attributes].some(({ name }) => name.startsWith("on"))).length,
    links: [...document.querySelectorAll(".content a")].map((link) => link.getAttribute("href")).filter((href) => href !== null && !/^https:/.test(href)),
  }));
  assert.deepEqual(held, { taken: undefined, elements: 0, handlers: 0, links: [] });
  assert.equal(await page.evaluate(() => document.querySelector(".message.assistant .reasoning").open), false, "reasoning is folded");
  assert.match(await page.textContent(".message.assistant .reasoning .text"), /Let me think/);
  assert.deepEqual(complaints, []);
});

test("messages are edited, deleted and branched, and a deletion is undone", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 16 });
  await say(page, "What is a block?");
  await answered(page, 1);
  await page.click(".message.user [aria-label='Edit this message']");
  await page.fill(".editor", "What is a sequence?");
  const sent = next_chat(page);
  await page.click(".message.user >> text=Send");
  assert.deepEqual((await sent).postDataJSON().messages, [{ role: "user", content: "What is a sequence?" }]);
  await answered(page, 1);
  assert.match(await page.textContent(".message.user .branches"), /2\/2/);
  await page.click(".message.assistant [aria-label='Branch this message']");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);
  await page.click(".message.assistant [aria-label='Delete this message']");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 1);
  await page.click("#toast >> text=Undo");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 2);
  assert.deepEqual(complaints, []);
});

test("conversations are renamed, searched, deleted with undo, exported and imported", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 8 });
  for (const text of ["What is a zebra?", "What is a quire?"]) {
    await page.click("#new");
    await page.waitForFunction(() => document.querySelectorAll(".message").length === 0);
    await say(page, text);
    await answered(page, 1);
  }
  const names = () => page.locator("#conversations .name").allTextContents();
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);
  assert.deepEqual(await names(), ["What is a quire?", "What is a zebra?"]);
  const act = async (number, action) => {
    await page.click(`#conversations li:nth-child(${number}) .more summary`);
    return page.click(`#conversations li:nth-child(${number}) >> text=${action}`);
  };
  await act(1, "Rename");
  await page.fill("#conversations input", "Papers");
  await page.press("#conversations input", "Enter");
  await page.waitForFunction(() => document.querySelector("#conversations .name")?.textContent === "Papers");
  await page.fill("#search", "ZEBRA");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  await page.fill("#search", "");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);

  const saved = page.waitForEvent("download");
  await act(1, "Export as JSON");
  const path = await (await saved).path();
  const [exported] = JSON.parse(readFileSync(path, "utf8")).conversations;
  assert.equal(exported.title, "Papers");
  await act(1, "Delete");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  await page.click("#toast >> text=Undo");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);
  await page.setInputFiles("#import", path);
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 3);
  await page.setInputFiles("#import", { name: "bad.json", mimeType: "application/json", buffer: Buffer.from('{"conversations": [{"title": 1}]}') });
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("bad.json cannot be imported"));
  assert.equal((await names()).length, 3);
  assert.deepEqual(complaints, []);
});

test("a tool call is shown, and its result goes back to the model", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object" } } }];
  await settings(page, { tools: JSON.stringify(tools) });
  const call = (text) => ({ tool_calls: [{ index: 0, ...(text === "{" && { id: "call_1", type: "function" }), function: { ...(text === "{" && { name: "get_weather" }), arguments: text } }] });
  await answer_with(page, [call("{"), call('"city": "Oslo"'), call("}")], "tool_calls");
  const sent = next_chat(page);
  await say(page, "How is the weather in Oslo?");
  assert.deepEqual((await sent).postDataJSON().tools, tools);
  await answered(page, 1);
  assert.match(await page.innerText(".call"), /Calls get_weather[\s\S]*"city": "Oslo"/);
  await page.unroute("**/v1/chat/completions");
  await answer_with(page, [{ content: "Rain." }]);
  const second = next_chat(page);
  await page.fill(".call textarea", "rain, 4 degrees");
  await page.click("text=Give this result");
  const { messages } = (await second).postDataJSON();
  assert.deepEqual(messages.slice(1), [
    { role: "assistant", content: "", tool_calls: [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } }] },
    { role: "tool", tool_call_id: "call_1", content: "rain, 4 degrees" }]);
  await answered(page, 2);
  assert.deepEqual(complaints, []);
});

test("files are attached as text; what is no text is refused", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { max_tokens: 4 });
  await page.setInputFiles("#files", [
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("```\nfenced ☃\n```") },
    { name: "photo.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0xff, 0xd8, 0x00]) }]);
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("photo.bin was not attached"));
  assert.deepEqual(await page.locator("#attached .chip").allTextContents(), ["notes.txt×"]);
  const sent = next_chat(page);
  await say(page, "What does it say?");
  assert.equal((await sent).postDataJSON().messages[0].content, "notes.txt:\n````\n```\nfenced ☃\n```\n````\n\nWhat does it say?");
  await answered(page, 1);
  assert.deepEqual(complaints, []);
});

test("Enter of an input method does not send, and a reader who scrolled up is left there", { skip }, async (context) => {
  const { page, complaints } = await open(context, { options: { viewport: { width: 900, height: 500 } } });
  await page.fill("#prompt", "こんに");
  await page.dispatchEvent("#prompt", "keydown", { key: "Enter", isComposing: true });
  assert.equal(await page.locator(".message").count(), 0);
  await page.fill("#prompt", "");
  // An answer in two halves; between them the reader scrolls up.
  await page.evaluate(() => {
    const real = window.fetch;
    window.fetch = (path, options) => {
      if (!String(path).endsWith("/v1/chat/completions")) return real(path, options);
      const event = (content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
      const body = new ReadableStream({
        start(controller) {
          const encoder = new TextEncoder();
          controller.enqueue(encoder.encode(event("word \n\n".repeat(200))));
          window.go_on = () => {
            controller.enqueue(encoder.encode(event("more \n\n".repeat(200) + "the end") + "data: [DONE]\n\n"));
            controller.close();
          };
        },
      });
      return Promise.resolve(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
    };
  });
  await say(page, "Go on");
  const at_end = () => { const box = document.querySelector("#messages"); return box.scrollHeight - box.scrollTop - box.clientHeight < 40; };
  await page.waitForFunction(() => document.querySelectorAll(".message.assistant .block").length === 200);
  await page.waitForFunction(at_end);
  await page.hover("#messages");
  await page.mouse.wheel(0, -1500);
  await page.waitForSelector("#jump:not([hidden])");
  const before = await page.evaluate(() => document.querySelector("#messages").scrollTop);
  await page.evaluate(() => window.go_on());
  await answered(page, 1);
  assert.ok(await page.evaluate((top) => document.querySelector("#messages").scrollTop <= top, before), "it did not jump to the end");
  await page.click("#jump");
  await page.waitForFunction(at_end);
  assert.deepEqual(complaints, []);
});

test("while a model loads, the page says so", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  let state = "ready";
  await page.route("**/v1/models", async (route) => {
    const answer = await route.fetch();
    const list = await answer.json();
    list.data[0].state = state;
    await route.fulfill({ response: answer, json: list });
  });
  let release;
  const released = new Promise((resolve) => { release = resolve; });
  await page.route("**/v1/chat/completions", async (route) => {
    await released;
    await route.continue();
  });
  state = "loading";
  await say(page, "Hello");
  await page.waitForFunction(() => /quire-demo is loading: \d+ s/.test(document.querySelector("#model-wait").textContent));
  assert.match(await page.textContent("#model option"), /loading/);
  state = "ready";
  release();
  await answered(page, 1);
  await page.waitForFunction(() => document.querySelector("#model-wait").textContent === "" && document.querySelector("#model option").textContent === "quire-demo");
  await page.unrouteAll({ behavior: "wait" });  // the page asks for the models again and again
  assert.deepEqual(complaints, []);
});
