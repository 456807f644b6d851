// The page's settings in a real Chromium: presets, themes, shortcuts; notes that cover nothing; colours that a legend explains; icon.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { answered, answers, contrasts, has_started, luminance, open, say, settings, show_settings, skip } from "./page_support.mjs";

// A second model in the page's list, which is the first one under another name. Returns the models that chats ask for, as they come.
async function second_model(page) {
  const asked = [];
  await page.route("**/v1/models", async (route) => {
    const answer = await route.fetch();
    const list = await answer.json();
    list.data.push({ ...list.data[0], id: "second" });
    await route.fulfill({ response: answer, json: list });
  });
  await page.route("**/v1/chat/completions", async (route) => {
    const body = route.request().postDataJSON();
    asked.push(body.model);
    await route.continue({ postData: JSON.stringify({ ...body, model: "quire-demo" }) });
  });
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll("#model option").length === 2);
  return asked;
}

test("presets are named, belong to models, and are exported and imported", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await second_model(page);
  await show_settings(page, true);
  await page.fill("#temperature", "0.3");
  await page.fill("#system", "Be brief.");
  await page.fill("#preset-name", "Brief");
  await page.click("text=Save as preset");
  await page.check("#preset-model");
  await page.click("#reset");
  assert.equal(await page.inputValue("#temperature"), "");
  await page.fill("#temperature", "1.5");
  await page.fill("#preset-name", "Wild");
  await page.press("#preset-name", "Enter");
  assert.deepEqual(await page.locator("#preset option").allTextContents(), ["none", "Brief (quire-demo)", "Wild"]);

  // The model's own preset comes with the model; the other model has none.
  await page.selectOption("#model", "second");
  assert.equal(await page.inputValue("#temperature"), "1.5");
  await page.selectOption("#model", "quire-demo");
  assert.deepEqual([await page.inputValue("#temperature"), await page.inputValue("#system"), await page.inputValue("#preset")], ["0.3", "Be brief.", "Brief"]);
  await page.selectOption("#preset", "Wild");
  assert.deepEqual([await page.inputValue("#temperature"), await page.inputValue("#system")], ["1.5", ""]);
  await page.reload();
  await has_started(page);
  assert.equal(await page.inputValue("#temperature"), "1.5", "a reload keeps the settings, whatever the model's preset");

  await show_settings(page, true);
  const saved = page.waitForEvent("download");
  await page.click("#preset-export");
  const path = await (await saved).path();
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")).presets.map(({ name, model }) => [name, model]), [["Brief", "quire-demo"], ["Wild", ""]]);
  await page.selectOption("#preset", "Wild");
  await page.click("#preset-delete");
  assert.equal(await page.locator("#preset option").count(), 2);
  await page.setInputFiles("#preset-import", path);
  await page.waitForFunction(() => document.querySelectorAll("#preset option").length === 3);
  await page.setInputFiles("#preset-import", { name: "bad.json", mimeType: "application/json", buffer: Buffer.from('{"presets": [{"name": 1}]}') });
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("bad.json cannot be imported"));
  await page.unrouteAll({ behavior: "wait" });
  assert.deepEqual(complaints, []);
});

test("an answer is given again by another model, and says what it took", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  assert.ok(await page.isHidden(".again-with"), "with one model there is no other");
  const asked = await second_model(page);
  await settings(page, { temperature: 0, max_tokens: 24 });
  await say(page, "What is a KV block?");
  await answered(page, 1);
  await page.click(".usage summary");
  const usage = await page.textContent(".usage dl");
  for (const what of [/Modelquire-demo/, /Prompt\d+ tokens/, /Answer24 tokens/, /First tokenafter [\d.]+ s/, /Whole answer[\d.]+ s/, /Context\d+ of 2048 tokens/]) assert.match(usage, what);
  await page.hover(".message.assistant");
  await page.click(".again-with summary");
  assert.deepEqual(await page.locator(".again-with button").allTextContents(), ["second"]);
  await page.click(".again-with button");
  await page.waitForFunction(() => document.querySelector(".message.assistant .branches")?.textContent.includes("2/2"));
  await answered(page, 1);
  assert.deepEqual(asked, ["quire-demo", "second"]);
  assert.equal(await page.textContent(".message.assistant header b"), "second");
  assert.equal(await page.inputValue("#model"), "quire-demo", "the conversation's model is what it was");
  await page.unrouteAll({ behavior: "wait" });
  assert.deepEqual(complaints, []);
});

// The first conversation's answer, as the browser has stored it.
const stored_answer = (page) => page.evaluate(() => new Promise((resolve) => {
  const request = indexedDB.open("quire");
  request.onsuccess = () => {
    const all = request.result.transaction("conversations").objectStore("conversations").getAll();
    all.onsuccess = () => resolve(Object.values(all.result[0]?.messages ?? {}).find(({ role }) => role === "assistant"));
  };
}));

test("a reload resumes the running answer, which is computed once", { skip }, async (context) => {
  const tokens = 400;
  const { server, page, complaints } = await open(context, {
    flags: ["--server.resume.window", "60s", "--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  await settings(page, { temperature: 0, max_tokens: tokens });
  const endless = { ignore_eos: true };
  await page.route("**/v1/chat/completions", (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...endless }) }));
  await say(page, "Tell me a story.");
  while (!((await stored_answer(page))?.stream?.seen > 0)) await page.evaluate(() => new Promise(requestAnimationFrame));
  const resumed = page.waitForRequest((request) => request.headers()["last-event-id"] !== undefined);
  await page.reload();
  const { "x-request-id": id, "last-event-id": last } = (await resumed).headers();
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.ok(Number(last) > 0);
  await answered(page, 1);
  assert.equal((await server.metrics())["vllm:generation_tokens_total"], tokens);
  const stored = await stored_answer(page);
  assert.deepEqual([stored.finish, stored.stream], ["length", undefined]);
  const whole = await (await server.post("/v1/chat/completions", {
    model: "quire-demo", messages: [{ role: "user", content: "Tell me a story." }], temperature: 0, max_tokens: tokens, ...endless })).json();
  assert.equal(stored.content, whole.choices[0].message.content);
  await page.unrouteAll({ behavior: "wait" });
  assert.deepEqual(complaints, []);
});

test("stop ends an answer that the server would keep, at the server too", { skip }, async (context) => {
  const { server, page, complaints } = await open(context, { flags: ["--server.resume.window", "600s", "--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  const [tokens, choices] = [1800, 16];
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, max_tokens: tokens, n: choices }) }));
  await page.evaluate(() => new MutationObserver((_, observer) => {
    if ((document.querySelector(".message.assistant .content")?.textContent.length ?? 0) < 20) return;
    observer.disconnect();
    document.querySelector("#stop").click();
  }).observe(document.querySelector("#messages"), { childList: true, subtree: true, characterData: true }));
  const ended = page.waitForResponse((response) => response.request().method() === "DELETE");
  await say(page, "Tell me a story.");
  await answered(page, 1);
  assert.equal((await ended).status(), 200);
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  assert.ok((await server.metrics())["vllm:generation_tokens_total"] < tokens * choices, "it was not computed to its end");
  const id = (await ended).url().split("/").at(-1);
  assert.equal((await fetch(`${server.url}/v1/streams/${id}`, { method: "DELETE" })).status, 404, "it is gone");
  await page.unrouteAll({ behavior: "wait" });
  assert.deepEqual(complaints, []);
});

// Passes connections to the server until cut() breaks all of them.
async function breakable(context, url) {
  const sockets = new Set();
  const proxy = createServer((client) => {
    const upstream = connect(Number(new URL(url).port), "127.0.0.1");
    for (const [socket, other] of [[client, upstream], [upstream, client]]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => { sockets.delete(socket); other.destroy(); });
    }
    client.pipe(upstream).pipe(client);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  context.after(() => { sockets.forEach((socket) => socket.destroy()); proxy.close(); });
  return { url: `http://127.0.0.1:${proxy.address().port}`, cut: () => sockets.forEach((socket) => socket.destroy()) };
}

test("a lost connection is made again, and the answer is whole", { skip }, async (context) => {
  const tokens = 400;
  const { server, page } = await open(context, { flags: ["--server.resume.window", "60s", "--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  const proxy = await breakable(context, server.url);
  await page.goto(proxy.url);
  await has_started(page);
  await settings(page, { temperature: 0, max_tokens: tokens });
  const headers = [];
  await page.route("**/v1/chat/completions", (route) => {
    headers.push(route.request().headers()["last-event-id"]);
    return route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true }) });
  });
  await say(page, "Tell me a story.");
  for (const length of [100, 500]) {
    await page.waitForFunction((least) => document.querySelector(".message.assistant .content")?.textContent.length > least, length);
    proxy.cut();
  }
  await answered(page, 1);
  assert.equal(await page.locator(".message.error").count(), 0);
  assert.equal(headers[0], undefined);
  assert.ok(headers.length >= 2 && Number(headers[1]) > 0, String(headers));
  assert.equal((await server.metrics())["vllm:generation_tokens_total"], tokens);
  const whole = await (await server.post("/v1/chat/completions", {
    model: "quire-demo", messages: [{ role: "user", content: "Tell me a story." }], temperature: 0, max_tokens: tokens, ignore_eos: true })).json();
  assert.equal((await stored_answer(page)).content, whole.choices[0].message.content);
  await page.unrouteAll({ behavior: "wait" });
});

test("four themes, each readable, kept over a reload and shown from the first paint on", { skip }, async (context) => {
  const { page, complaints } = await open(context, { options: { colorScheme: "light" } });
  await settings(page, { max_tokens: 4 });
  await say(page, "Hello");
  await answered(page, 1);
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await show_settings(page, true);
  assert.equal(await page.locator("#theme option").count(), 5);
  for (const [theme, least] of [["light", 4.5], ["dark", 4.5], ["light-contrast", 7], ["dark-contrast", 7]]) {
    await page.selectOption("#theme", theme);
    assert.ok(theme.startsWith("dark") ? luminance(await back()) < 0.1 : luminance(await back()) > 0.8, theme);
    for (const [what, ratio] of await contrasts(page)) assert.ok(ratio >= least, `${theme}: contrast of ${what} is ${ratio.toFixed(1)}`);
  }
  await page.addInitScript(() => {
    new MutationObserver((_, observer) => {
      if (!document.body || document.documentElement.dataset.scheme === undefined) return;
      window.first_back = getComputedStyle(document.documentElement).colorScheme;
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true, attributes: true });
  });
  await page.reload();
  await has_started(page);
  assert.equal(await page.evaluate(() => window.first_back), "dark");
  assert.ok(luminance(await back()) < 0.1);
  await show_settings(page, true);
  await page.selectOption("#theme", "");
  assert.ok(luminance(await back()) > 0.8, "as the system has it");
  assert.deepEqual(complaints, []);
});

test("shortcuts do what their list says", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 4 });
  await say(page, "Hello");
  await answered(page, 1);
  await page.press("#prompt", "?");
  assert.equal(await page.inputValue("#prompt"), "?", "in a field a sign is text");
  await page.fill("#prompt", "");
  await page.focus("#tab-chat");
  await page.keyboard.press("?");
  const listed = await page.locator("#shortcuts th").allTextContents();
  for (const keys of ["Enter", "Escape", "Alt+N", "Alt+R", "Alt+C", "Ctrl+K", "Alt+S", "Alt+T", "Alt+V", "/", "?"]) assert.ok(listed.includes(keys), keys);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("#shortcuts"));
  await page.keyboard.press("/");
  assert.ok(await page.evaluate(() => document.activeElement.id === "prompt"));
  await page.keyboard.press("Alt+s");
  assert.ok(await page.isVisible("#settings"));
  await page.keyboard.press("Alt+s");
  assert.ok(await page.isHidden("#settings"));
  await page.keyboard.press("Control+k");
  assert.ok(await page.evaluate(() => document.activeElement.id === "search"));
  await page.keyboard.press("Alt+v");
  assert.ok(await page.isVisible("#view-status"));
  await page.keyboard.press("Alt+v");
  const theme = () => page.evaluate(() => document.documentElement.dataset.scheme);
  const before = await theme();
  await page.keyboard.press("Alt+t");
  assert.notEqual(await theme(), before);
  const again = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await page.keyboard.press("Alt+r");
  await again;
  await page.waitForFunction(() => document.querySelector(".message.assistant .branches")?.textContent.includes("2/2"));
  await answered(page, 1);
  await page.keyboard.press("Alt+c");
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("copied"));
  await page.keyboard.press("Alt+n");
  await page.waitForFunction(() => document.querySelectorAll(".message").length === 0 && document.activeElement.id === "prompt");
  assert.deepEqual(complaints, []);
});

for (const width of [390, 1280]) {
  test(`a note covers nothing on a window of ${width} pixels, and waits for its reader`, { skip }, async (context) => {
    const { page, complaints } = await open(context, { options: { viewport: { width, height: 780 } } });
    await settings(page, { temperature: 0, max_tokens: 4 });
    await say(page, "Hello");
    await answered(page, 1);
    await page.hover(".message.assistant");
    await page.click(".message.assistant [aria-label='Delete this message']");
    await page.waitForSelector("#toast:not([hidden])");
    const toast = await page.locator("#toast").boundingBox();
    for (const what of ["#top", "#view-chat", "#composer", "#send", "#messages"]) {
      const box = await page.locator(what).boundingBox();
      assert.ok(box.y + box.height <= toast.y + 0.5, `${what} ends at ${box.y + box.height}, the note begins at ${toast.y}`);
    }
    assert.ok(toast.y + toast.height <= 780.5, "all of it is seen");
    await page.click("#toast [aria-label='Close this note']");
    assert.ok(await page.isHidden("#toast"));
    assert.equal((await answers(page)).length, 0);
    assert.deepEqual(complaints, []);
  });
}

test("every colour of the pool is in its legend", { skip }, async (context) => {
  const { server, page, complaints } = await open(context);
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelector("#pool-map i"));
  let over = false;
  const busy = (async () => {
    while (!over) await server.post("/v1/completions", { prompt: "Once upon a time there was a block. ".repeat(8), max_tokens: 1700, ignore_eos: true, n: 2 });
  })();
  await page.waitForFunction(() => ["used", "used.odd", "shared", "free"].every((kind) => document.querySelector(`#pool-map i.${kind}`)));
  const shades = (selector) => page.evaluate((wanted) => [...new Set([...document.querySelectorAll(wanted)].map((cell) => {
    const { backgroundColor, opacity } = getComputedStyle(cell);
    return `${backgroundColor} ${opacity}`;
  }))], selector);
  for (const theme of ["light", "dark", "light-contrast", "dark-contrast"]) {
    await page.evaluate((wanted) => window.showTheme(wanted), theme);
    const explained = await shades("#pool-legend i");
    assert.equal(explained.length, 5, `${theme}: five colours, each its own`);
    for (const shade of await shades("#pool-map i")) assert.ok(explained.includes(shade), `${theme}: ${shade}`);
  }
  over = true;
  await busy;
  assert.deepEqual(complaints, []);
});

test("the page has an icon, which is its favicon", { skip }, async (context) => {
  const { server, page, complaints } = await open(context);
  assert.equal(await page.getAttribute("link[rel=icon]", "href"), "/ui/icon.svg");
  const icon = await fetch(`${server.url}/ui/icon.svg`);
  assert.equal(icon.headers.get("content-type"), "image/svg+xml");
  await page.waitForFunction(() => document.querySelector("h1 img").naturalWidth > 0);
  assert.deepEqual(complaints, []);
});
