// Measures the page in Chromium: bytes and first paint of a first visit, and a conversation of 2,000 messages: opened, and scrolled
// through by frames. Prints one line each. QUIRE_MESSAGES: another number of messages.
import { chromium } from "playwright-core";
import { QuireServer } from "../server_process.mjs";
import { has_started } from "./page_support.mjs";

const kMessages = Number(process.env.QUIRE_MESSAGES ?? 2000);
const kVisits = 9;
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const quantile = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];

// Questions and answers with what answers have: paragraphs, a list, a table, code.
function conversation() {
  const messages = {};
  let parent = null;
  for (let i = 0; i < kMessages; ++i) {
    const id = `m${String(i).padStart(5, "0")}`;
    const answer = `Answer ${i}: a paragraph with **bold** text and \`code\`.\n\n- one\n- two\n- three\n\n` +
      (i % 5 === 1 ? "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n" : "") + (i % 4 === 1 ? "```python\nfor i in range(10):\n    print(i)\n```\n" : "And some more words to fill a second paragraph. ".repeat(6));
    messages[id] = { id, parent, created: 1e12 + i, role: i % 2 ? "assistant" : "user", content: i % 2 ? answer : `Question ${i}: what is a KV block?`, ...(i % 2 ? { finish: "stop" } : {}) };
    parent = id;
  }
  return { id: "long", title: "Long", titled: true, created: 1e12, updated: 1e12, leaf: parent, messages };
}

async function first_paints(browser, url) {
  const paints = [];
  let bytes = 0;
  for (let visit = 0; visit < kVisits; ++visit) {
    const context = await browser.newContext();  // an empty cache
    const page = await context.newPage();
    let received = 0;
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    session.on("Network.loadingFinished", ({ encodedDataLength }) => (received += encodedDataLength));
    await page.goto(url);
    await has_started(page);
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime));
    bytes = received;
    await context.close();
  }
  return { paint: median(paints), bytes };
}

// Milliseconds between frames while the conversation is scrolled through by wheel-sized steps.
const scrolled = (page, frames) => page.evaluate((count) => new Promise((resolve) => {
  const box = document.querySelector("#messages");
  const gaps = [];
  const step = box.scrollHeight / count;
  let last = performance.now();
  const frame = (now) => {
    gaps.push(now - last);
    last = now;
    box.scrollTop -= step;
    if (gaps.length < count) requestAnimationFrame(frame);
    else resolve(gaps.slice(1));
  };
  requestAnimationFrame(frame);
}), frames);

// CPU seconds of the page's main thread since the start: what other programs on the machine do does not count.
async function main_thread(session) {
  const { metrics } = await session.send("Performance.getMetrics");
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
}

const server = await QuireServer.start(["--kv-cache.num-blocks", "256"]);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
try {
  const { paint, bytes } = await first_paints(browser, server.url);
  console.log(`first visit: first paint after ${paint.toFixed(0)} ms (median of ${kVisits}), ${(bytes / 1024).toFixed(0)} KiB received`);
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.goto(server.url);
  await has_started(page);
  await page.setInputFiles("#import", { name: "long.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ conversations: [conversation()] })) });
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  const opening = await page.evaluate(() => new Promise((resolve) => {
    const began = performance.now();
    document.querySelector("#conversations .name").click();
    const look = () => (document.querySelectorAll(".message").length > 0 ? requestAnimationFrame(() => resolve(performance.now() - began)) : requestAnimationFrame(look));
    look();
  }));
  console.log(`${kMessages} messages: shown after ${opening.toFixed(0)} ms`);
  for (const [what, frames] of [["fast", 240], ["slowly", 960]]) {
    await page.evaluate(() => { const box = document.querySelector("#messages"); box.scrollTop = box.scrollHeight; });
    const before = await main_thread(session);
    const gaps = await scrolled(page, frames);
    const after = await main_thread(session);
    console.log(`scrolled through ${what} (${frames} frames): ${(1000 * gaps.length / gaps.reduce((sum, gap) => sum + gap, 0)).toFixed(0)} frames/s, ` +
      `p50 ${quantile(gaps, 0.5).toFixed(1)} ms, p99 ${quantile(gaps, 0.99).toFixed(1)} ms, longest ${Math.max(...gaps).toFixed(1)} ms; ` +
      `main thread ${((after.TaskDuration - before.TaskDuration) * 1000 / frames).toFixed(1)} ms of CPU per frame, of it script ` +
      `${((after.ScriptDuration - before.ScriptDuration) * 1000 / frames).toFixed(1)}, layout ${((after.LayoutDuration - before.LayoutDuration) * 1000 / frames).toFixed(1)}`);
  }
} finally {
  await browser.close();
  await server.stop();
}
