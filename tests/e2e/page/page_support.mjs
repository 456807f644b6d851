// A page in a real Chromium on a server of its own, for the tests of the web page.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { QuireServer } from "../server_process.mjs";

const kBrowser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
export const skip = !kBrowser && "chromium is absent (Debian package chromium)";

// {server, page, complaints}: complaints are errors of the page's console and requests to anywhere else.
// model: null where the flags name the models, `quire-demo` first. key: the page's API key. others: origins that it may ask.
export async function open(context, { options = {}, flags = [], model, env, key, others = [] } = {}) {
  const server = await QuireServer.start([...(model === null ? [] : ["--kv-cache.num-blocks", "2048"]), ...flags], { model, env });
  context.after(() => server.kill());
  const browser = await chromium.launch({ executablePath: kBrowser, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  context.after(() => browser.close());
  const page = await browser.newPage(options);
  page.setDefaultTimeout(120_000);
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && ![server.url, ...others].some((origin) => request.url().startsWith(origin))) complaints.push(`asked ${request.url()}`);
  });
  if (key) await page.addInitScript((value) => { sessionStorage["quire.api_key"] ??= value; }, key);
  await page.goto(server.url);
  await has_started(page);
  return { server, page, complaints };
}

export const has_started = (page) => page.waitForFunction(() => document.querySelector("#model").value === "quire-demo");

export async function say(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

// The conversation shows so many answers, and none is under way.
export const answered = (page, count) => page.waitForFunction((wanted) =>
  document.querySelector("#stop").disabled && document.querySelectorAll(".message.assistant").length === wanted, count);

export const answers = (page) => page.locator(".message.assistant .content").allInnerTexts();

// Opens the panel of settings, or closes it.
export async function show_settings(page, open) {
  if (await page.isHidden("#settings") === open) await page.click("#toggle-settings");
}

export async function settings(page, values) {
  await show_settings(page, true);
  for (const [id, value] of Object.entries(values)) await page.fill(`#${id}`, String(value));
  await page.click("#close-settings");
}

export const next_chat = (page) => page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));

// The next answers are these deltas instead of a model's.
export async function answer_with(page, deltas, finish_reason = "stop") {
  const events = [...deltas.map((delta) => ({ choices: [{ delta, finish_reason: null }] })), { choices: [{ delta: {}, finish_reason }] }];
  await page.route("**/v1/chat/completions", (route) => route.fulfill({
    status: 200, contentType: "text/event-stream",
    body: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("") + "data: [DONE]\n\n",
  }));
}

// Relative luminance of a computed colour, 0 to 1 (WCAG 2).
export function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map((value) => {
    const share = Number(value) / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// [what, ratio]: the contrast of each text that is seen with what is behind it (WCAG 2).
export async function contrasts(page) {
  const colours = await page.evaluate(() => {
    const behind = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (!/^rgba\(.*, 0\)$/.test(colour)) return colour;
      }
      return "rgb(255, 255, 255)";
    };
    const own = (node) => [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim());
    return [...document.querySelectorAll("body *")].filter((node) => own(node) && node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) &&
      !node.matches(":disabled, option, script, .offscreen") && getComputedStyle(node).opacity === "1")
      .map((node) => ({ what: node.id || node.className || node.tagName, back: behind(node), text: getComputedStyle(node).color }));
  });
  return colours.map(({ what, back, text }) => {
    const [low, high] = [luminance(back), luminance(text)].sort((a, b) => a - b);
    return [what, (high + 0.05) / (low + 0.05)];
  });
}
