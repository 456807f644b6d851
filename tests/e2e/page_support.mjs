// A page in a real Chromium on a server of its own, for the tests of the web page.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { QuireServer } from "./server_process.mjs";

const kBrowser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
export const skip = !kBrowser && "chromium is absent (Debian package chromium)";

// {server, page, complaints}: complaints are errors of the page's console and requests to anywhere else.
// model: null where the flags name the models, `quire-demo` first.
export async function open(context, { options = {}, flags = [], model } = {}) {
  const server = await QuireServer.start([...(model === null ? [] : ["--kv-cache.num-blocks", "2048"]), ...flags], { model });
  context.after(() => server.kill());
  const browser = await chromium.launch({ executablePath: kBrowser, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  context.after(() => browser.close());
  const page = await browser.newPage(options);
  page.setDefaultTimeout(120_000);
  const complaints = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(server.url)) complaints.push(`asked ${request.url()}`);
  });
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

export async function settings(page, values) {
  if (!(await page.evaluate(() => document.querySelector("#settings").open))) await page.click("#settings summary");
  for (const [id, value] of Object.entries(values)) await page.fill(`#${id}`, String(value));
  await page.click("#settings summary");
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
