// The web page in a real Chromium: a chat is streamed, stopped, answered anew; the status page moves; dark, narrow, quiet.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { chromium } from "playwright-core";
import { QuireServer } from "./server_process.mjs";

const kBrowser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const skip = !kBrowser && "chromium is absent (Debian package chromium)";

const kAnswers = 16;
const kLong = 1800;  // tokens; what the demo model's context holds beside a short prompt

// A page on a server of its own; what its console or its requests did wrong is collected in `complaints`.
async function open(context, { options = {}, flags = [] } = {}) {
  const server = await QuireServer.start(["--kv-cache.num-blocks", "2048", ...flags]);
  context.after(() => server.kill());
  const browser = await chromium.launch({ executablePath: kBrowser, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  context.after(() => browser.close());
  const page = await browser.newPage(options);
  page.setDefaultTimeout(120_000);
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url) && !request.url().startsWith("data:")) complaints.push(`asked ${request.url()}`);
  });
  await page.goto(server.url);
  await page.waitForFunction(() => document.querySelector("#model").value === "quire-demo");
  return { server, page, complaints };
}

async function say(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

const answer_ended = (page) => page.waitForFunction(() => document.querySelector("#stop").disabled);
const answers = (page) => page.locator(".message.assistant .content").allTextContents();

// How many different lengths the last answer has had: more than two only where it came in pieces.
async function watch_growth(page) {
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => {
      const boxes = document.querySelectorAll(".message.assistant .content");
      if (boxes.length) window.lengths.add(boxes[boxes.length - 1].textContent.length);
    }).observe(document.querySelector("#messages"), { childList: true, subtree: true, characterData: true });
  });
}

test("a chat is streamed, kept as a conversation and answered anew", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await page.click("#settings summary");
  await page.fill("#temperature", "0");
  await page.fill("#seed", "7");
  await page.fill("#max_tokens", "48");
  await page.fill("#system", "You are brief.");
  await watch_growth(page);
  const sent = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await say(page, "What is a KV block?");
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.messages, [{ role: "system", content: "You are brief." }, { role: "user", content: "What is a KV block?" }]);
  assert.deepEqual([body.temperature, body.seed, body.max_tokens, body.stream], [0, 7, 48, true]);
  await answer_ended(page);
  const [first] = await answers(page);
  assert.ok(first.length > 0);
  assert.ok((await page.evaluate(() => window.lengths.size)) > 2, "the answer came in pieces");
  assert.match(await page.textContent("#rate"), /^\d+ tokens, [\d.]+ tokens\/s, first after [\d.]+ s$/);

  await page.click("#regenerate");
  await answer_ended(page);
  assert.deepEqual(await answers(page), [first], "the same seed gives the same answer, in place of the first");

  const again = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await say(page, "And why?");
  assert.deepEqual((await again).postDataJSON().messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  await answer_ended(page);
  await page.click("#clear");
  assert.equal(await page.locator(".message").count(), 0);
  assert.deepEqual(complaints, []);
});

test("stop ends the answer, at the server too", { skip }, async (context) => {
  const { server, page, complaints } = await open(context, { flags: ["--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"] });
  // The page sends what its fields say; many answers without end are only asked for here, so that the server is not done
  // before a slow browser clicks.
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
  await answer_ended(page);
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  const metrics = await server.metrics();
  assert.ok(metrics["vllm:generation_tokens_total"] < kLong * kAnswers, "it was not computed to its end");
  const [text] = await answers(page);
  assert.ok(text.length >= 20, "what had come stays");
  assert.ok(await page.isEnabled("#send"));
  assert.deepEqual(complaints, []);
});

test("a refusal is told in the conversation", { skip }, async (context) => {
  const { page } = await open(context);
  await page.click("#settings summary");
  await page.fill("#top_p", "5");
  await say(page, "Hello");
  await answer_ended(page);
  const box = page.locator(".message.assistant.error .content");
  assert.match(await box.textContent(), /top_p/);
});

test("the status page moves with the server", { skip }, async (context) => {
  const { server, page, complaints } = await open(context);
  await page.click("#tab-status");
  assert.ok(await page.isHidden("#view-chat"));
  let over = false;
  const busy = (async () => {
    while (!over) {
      const answer = await server.post("/v1/completions", { prompt: "Once", max_tokens: kLong, ignore_eos: true });
      assert.equal(answer.status, 200, await answer.text());
    }
  })();
  await page.waitForFunction(() => Number(document.querySelector("#figure-running").textContent) === 1);
  await page.waitForFunction(() => parseFloat(document.querySelector("#value-output").textContent) > 0);
  await page.waitForFunction(() => document.querySelector("#line-output").getAttribute("points").split(" ").length > 2);
  over = true;
  await busy;
  await page.waitForFunction(() => Number(document.querySelector("#figure-running").textContent) === 0);
  // By keyboard back to the chat.
  await page.focus("#tab-status");
  await page.keyboard.press("ArrowLeft");
  assert.ok(await page.isVisible("#view-chat"));
  assert.equal(await page.getAttribute("#tab-chat", "aria-selected"), "true");
  assert.deepEqual(complaints, []);
});

// Relative luminance of a computed colour, 0 to 1 (WCAG 2).
function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((value) => {
    const share = Number(value) / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

test("dark and light have their own colours, each readable", { skip }, async (context) => {
  const { page } = await open(context);
  const colours = async (scheme) => {
    await page.emulateMedia({ colorScheme: scheme });
    const style = await page.evaluate(() => {
      const { backgroundColor, color } = getComputedStyle(document.body);
      return { backgroundColor, color };
    });
    return { back: luminance(style.backgroundColor), text: luminance(style.color) };
  };
  const dark = await colours("dark");
  const light = await colours("light");
  assert.ok(dark.back < 0.1 && light.back > 0.8);
  for (const { back, text } of [dark, light]) {
    assert.ok((Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05) >= 4.5, "WCAG AA contrast");
  }
});

test("on a phone nothing is wider than the screen, and every control has a name", { skip }, async (context) => {
  const { page, complaints } = await open(context, { options: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true } });
  const fits = async () => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
  assert.ok(await fits());
  await page.click("#settings summary");
  await page.fill("#max_tokens", "32");
  assert.ok(await fits(), "with the settings open");
  await say(page, `${"long".repeat(60)} https://example.invalid/${"path".repeat(40)}`);
  await answer_ended(page);
  assert.ok(await fits(), "with a word that is wider than the screen");
  await page.click("#tab-status");
  assert.ok(await fits(), "on the status page");
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, select, textarea")]
    .filter((control) => !control.textContent.trim() && !control.getAttribute("aria-label") && !control.labels?.length)
    .map((control) => control.id));
  assert.deepEqual(nameless, []);
  assert.deepEqual(complaints, []);
});
