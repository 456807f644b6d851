// The page's appearance and cost: colours, phones, names of controls, keyboard, size; and the status view.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { answer_with, answered, contrasts, luminance, open, say, settings, show_settings, skip } from "./page_support.mjs";

const kMostBytes = 1 << 20;  // of everything that the page can load, compressed
const kLong = 1700;  // tokens

test("the status view shows the load, the pool and the history that the server kept", { skip }, async (context) => {
  const { server, page, complaints } = await open(context, { flags: ["--kv-cache.host-tier-bytes", "64MiB"] });
  const load = (n) => server.post("/v1/completions", { prompt: "Once upon a time there was a block", max_tokens: 200, ignore_eos: true, n });
  assert.equal((await load(4)).status, 200);
  // The page was not open at its status view, yet the peak is there.
  await page.waitForFunction(async () => {
    const { models: [model] } = await (await fetch("/status")).json();
    return model.history.output_tokens_s.some((rate) => rate > 0) && model.history.first_token_ms.p50.some((value) => value > 0);
  });
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7);
  assert.ok(await page.isHidden("#view-chat"));
  let over = false;
  const busy = (async () => {
    while (!over) {
      const answer = await server.post("/v1/completions", { prompt: "Once upon a time there was a block. ".repeat(8), max_tokens: kLong, ignore_eos: true, n: 2 });
      assert.equal(answer.status, 200, await answer.text());
    }
  })();
  await page.waitForFunction(() => Number(document.querySelector("#figure-running").textContent) === 2);
  await page.waitForFunction(() => document.querySelectorAll("#sequences tbody tr").length === 2);
  await page.waitForFunction(() => document.querySelectorAll("#pool-map i.used").length > 0 && document.querySelectorAll("#pool-map i.shared").length > 0);
  assert.match(await page.getAttribute("#pool-map", "aria-label"), /\d+ of 2048 blocks in use, \d+ shared/);
  assert.match(await page.getAttribute("#tiers progress", "aria-label"), /^Host memory: [\d.]+ of 64 MiB$/);
  over = true;
  await busy;
  await page.waitForFunction(() => Number(document.querySelector("#figure-running").textContent) === 0);
  const { models: [model] } = await (await fetch(`${server.url}/status`)).json();
  assert.ok(model.pool.used_peak > 0 && model.steps.length > 0 && model.steps.every(({ ms }) => ms >= 0));
  assert.ok(model.steps.some((step) => step.decode_tokens === 2 && step.sequences === 2));
  // By keyboard back to the chat.
  await page.focus("#tab-status");
  await page.keyboard.press("ArrowLeft");
  assert.ok(await page.isVisible("#view-chat"));
  assert.equal(await page.getAttribute("#tab-chat", "aria-selected"), "true");
  assert.deepEqual(complaints, []);
});

test("dark and light have their own colours, each readable", { skip }, async (context) => {
  const { page } = await open(context);
  await settings(page, { max_tokens: 4 });
  await say(page, "Hello");
  await answered(page, 1);
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  for (const scheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme: scheme });
    assert.ok(scheme === "dark" ? luminance(await back()) < 0.1 : luminance(await back()) > 0.8, scheme);
    for (const [what, ratio] of await contrasts(page)) assert.ok(ratio >= 4.5, `${scheme}: contrast of ${what} is ${ratio.toFixed(1)} (WCAG AA)`);
  }
});

test("on a phone nothing is wider than the screen, and every control has a name", { skip }, async (context) => {
  const { page, complaints } = await open(context, { options: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true } });
  const fits = async () => page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);
  assert.ok(await fits());
  assert.ok(await page.isHidden("#sidebar"), "the list of conversations opens when it is wanted");
  await settings(page, { max_tokens: 32 });
  await show_settings(page, true);
  assert.ok(await fits(), "with the settings open");
  await page.click("#close-settings");
  await say(page, `${"long".repeat(60)} https://example.invalid/${"path".repeat(40)}`);
  await answered(page, 1);
  assert.ok(await fits(), "with a word that is wider than the screen");
  await page.click("#toggle-sidebar");
  assert.ok(await fits(), "with the list of conversations");
  await page.click("#toggle-sidebar");
  const nameless = () => page.evaluate(() => [...document.querySelectorAll("button, input, select, textarea, summary, canvas, [role=img]")]
    .filter((control) => !control.textContent.trim() && !control.getAttribute("aria-label") && !control.labels?.length)
    .map((control) => control.outerHTML.slice(0, 80)));
  assert.deepEqual(await nameless(), []);
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7);
  assert.ok(await fits(), "on the status view");
  assert.deepEqual(await nameless(), []);
  assert.deepEqual(complaints, []);
});

test("on a phone wide tables, formulas and code scroll on their own", { skip }, async (context) => {
  const { page, complaints } = await open(context, { options: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true } });
  const columns = Array.from({ length: 14 }, (_, i) => `column ${i}`);
  const long = `\\underbrace{${Array.from({ length: 40 }, (_, i) => `x_{${i}}`).join("+")}}_{n}`;
  const text = [`| ${columns.join(" | ")} |`, `|${"---|".repeat(14)}`, `| ${columns.map(() => "value").join(" | ")} |`, "", `Inline $${long}$ here.`, "", `$$${long}$$`, "",
    "```", "code ".repeat(40), "```"].join("\n");
  await answer_with(page, [{ content: text }]);
  await say(page, "Show me");
  await answered(page, 1);
  await page.waitForFunction(() => document.querySelectorAll(".formula.wide").length === 2);
  for (const selector of [".wide-table", "p .formula.wide:not(.display)", ".formula.display", ".block pre"]) {
    const moved = await page.evaluate((wanted) => {
      const box = document.querySelector(`.message.assistant ${wanted}`);
      box.scrollLeft = 50;
      return box.scrollLeft;
    }, selector);
    assert.equal(moved, 50, `${selector} scrolls`);
  }
  assert.ok(await page.evaluate(() => [document.documentElement, document.querySelector("#messages")].every((box) => box.scrollWidth <= box.clientWidth)), "the page does not");
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelector("#status-models table"));
  assert.ok(await page.evaluate(() => [document.documentElement, document.querySelector("#view-status")].every((box) => box.scrollWidth <= box.clientWidth)), "nor does the status view");
  assert.deepEqual(complaints, []);
});

test("the page's files are compressed, small, and not sent twice", { skip }, async (context) => {
  const { server, page, complaints } = await open(context);
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7);
  const urls = await page.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name).filter((name) => name.includes("/ui/")));
  const fonts = (await (await fetch(`${server.url}/ui/lib/katex.css`)).text()).match(/fonts\/[\w-]+\.woff2/g);
  const modules = readdirSync(join(process.env.QUIRE_SOURCE, "server/web")).filter((name) => name.endsWith(".js")).map((name) => `${server.url}/ui/${name}`);
  const all = new Set([`${server.url}/`, ...urls, ...modules, ...fonts.map((font) => `${server.url}/ui/lib/${font}`)]);
  let total = 0;
  for (const url of all) {
    const sent = await raw(url, { "Accept-Encoding": "gzip" });
    assert.equal(sent.status, 200, url);
    total += sent.body.length;
    const plain = await raw(url, {});
    assert.equal(plain.encoding, undefined);
    assert.deepEqual(sent.encoding === "gzip" ? gunzipSync(sent.body) : sent.body, plain.body, url);
    assert.equal((await raw(url, { "If-None-Match": sent.etag })).status, 304, url);
  }
  assert.ok(all.size > 30 && total < kMostBytes, `${total} bytes`);
  assert.equal((await fetch(`${server.url}/ui/../etc/passwd`)).status, 404);
  assert.equal((await fetch(`${server.url}/ui/nothing.js`)).status, 404);
  assert.deepEqual(complaints, []);
});

// fetch() would add Accept-Encoding and undo the compression.
async function raw(url, headers) {
  const { request } = await import("node:http");
  return new Promise((resolve, reject) => {
    request(url, { headers }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => resolve({
        status: answer.statusCode, etag: answer.headers.etag, encoding: answer.headers["content-encoding"], body: Buffer.concat(parts),
      }));
    }).on("error", reject).end();
  });
}

test("nothing but the head stands before the first paint, and no other inline script may run", { skip }, async (context) => {
  const { server, page, complaints } = await open(context, {});
  const answer = await fetch(server.url);
  const html = await answer.text();
  assert.doesNotMatch(html, /<script[^>]+src=|modulepreload/);
  assert.equal(html.match(/<script>/g).length, 1);
  assert.equal(html.match(/rel="stylesheet"/g).length, 1);
  assert.match(html, /<div id="view-chat"[^>]* hidden>/);
  assert.match(answer.headers.get("content-security-policy"), /script-src 'self' 'sha256-[A-Za-z0-9+/]{43}='; style-src 'self';/);
  assert.ok(await page.isVisible("#prompt"));
  assert.deepEqual(complaints, []);
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.injected = true";
    document.body.append(script);
  });
  assert.equal(await page.evaluate(() => window.injected), undefined);
});
