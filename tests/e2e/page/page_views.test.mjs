// Views of the page as page_views.json describes them: each is opened in its size and colours, and a screenshot of each
// listed part is checked. QUIRE_SCREENSHOTS: a folder in which the screenshots are kept.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { answer_with, answered, luminance, open, say, show_settings, skip } from "./page_support.mjs";

const kAnswer = "Sorted by size:\n\n```python\ndef sort(values):\n    # stable\n    return sorted(values, key=lambda v: v.size)\n```\n\n" +
  "| Function | Time |\n|---|---|\n| `sorted` | $O(n \\log n)$ |\n\n$$\\int_0^1 x^2\\,dx = \\frac{1}{3}$$";

const kOpen = {
  empty: async () => {},
  answer: async (page) => {
    await answer_with(page, [{ reasoning_content: "They want a sort." }, { content: kAnswer }], "length");
    await say(page, "How do I sort files by size?");
    await answered(page, 1);
    await page.waitForSelector(".content .hljs-keyword");
    await page.waitForSelector(".katex-display");
  },
  settings: async (page) => {
    await kOpen.answer(page);
    await show_settings(page, true);
    await page.evaluate(() => { document.querySelector("#settings").scrollTop = 0; });
  },
  status: async (page, server) => {
    assert.equal((await server.post("/v1/completions", { prompt: "Once upon a time", max_tokens: 64, ignore_eos: true })).status, 200);
    await page.waitForFunction(async () => (await (await fetch("/status")).json()).models[0].history.output_tokens_s.some((rate) => rate > 0));
    await page.click("#tab-status");
    await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7 && document.querySelector("#pool-map i"));
    await page.selectOption("#status-range", "60");
  },
};

// Different colours in a picture, of which each has more than a hundredth of a percent of the pixels.
const colours = (page, picture) => page.evaluate(async (data) => {
  const image = new Image();
  image.src = `data:image/png;base64,${data}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: image.width, height: image.height });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data: pixels } = context.getImageData(0, 0, image.width, image.height);
  const counts = new Map();
  for (let i = 0; i < pixels.length; i += 4) {
    const colour = (pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2];
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  return [...counts.values()].filter((count) => count > pixels.length / 4 / 10_000).length;
}, picture.toString("base64"));

async function look(page, part, view) {
  const where = `${view}: ${part.what}`;
  const found = page.locator(part.selector);
  if (part.count) assert.equal(await found.count(), part.count, where);
  const shown = part.text ? found.filter({ hasText: part.text }).first() : found.first();
  assert.ok(await shown.isVisible(), where);
  const box = await shown.boundingBox();
  const { width, height } = page.viewportSize();
  const sides = { left: box.x, top: box.y, width: box.width, height: box.height };
  for (const [side, value] of Object.entries(sides)) {
    const [least, most] = part[side] ?? [-Infinity, Infinity];
    assert.ok(value >= least && value <= most, `${where}: ${side} is ${value}, not ${least} to ${most}`);
  }
  const middle = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  assert.ok(middle.x < width && middle.y > 0 && middle.y < height, `${where}: within the window`);
  if (part.colours) {
    const number = await colours(page, await shown.screenshot());
    assert.ok(number >= part.colours, `${where}: ${number} colours, not ${part.colours} or more`);
  }
}

for (const { view, width, height, scheme, theme, open: what, see, not } of JSON.parse(readFileSync(new URL("page_views.json", import.meta.url), "utf8"))) {
  test(`seen: ${view}`, { skip }, async (context) => {
    const options = { viewport: { width, height }, colorScheme: scheme, isMobile: width < 500, hasTouch: width < 500 };
    const { server, page, complaints } = await open(context, { options });
    if (theme) await page.evaluate((name) => window.showTheme(name), theme);
    await kOpen[what](page, server);
    const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.ok(scheme === "dark" ? luminance(back) < 0.1 : luminance(back) > 0.8, `${view}: ${back}`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), `${view}: no wider than the window`);
    for (const part of see) await look(page, part, view);
    for (const selector of not) assert.ok(await hidden(page, selector), `${view}: ${selector} is not seen`);
    if (process.env.QUIRE_SCREENSHOTS) await page.screenshot({ path: join(process.env.QUIRE_SCREENSHOTS, `${view.replaceAll(" ", "-")}.png`) });
    assert.deepEqual(complaints, []);
  });
}

// Absent, not displayed, or moved out of the window for screen readers alone.
const hidden = (page, selector) => page.evaluate((wanted) => {
  const found = document.querySelector(wanted);
  return !found || !found.checkVisibility() || found.getBoundingClientRect().right <= 0;
}, selector);
