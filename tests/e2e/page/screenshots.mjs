// Pictures of the page for the documents: node screenshots.mjs FOLDER. Run by `make screenshots`.
import { chromium } from "playwright-core";
import { QuireServer } from "../server_process.mjs";

const [folder] = process.argv.slice(2);
const server = await QuireServer.start(["--kv-cache.num-blocks", "2048"]);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 760 } });
  await page.goto(server.url);
  await page.waitForFunction(() => document.querySelector("#model").value !== "");
  await page.click("#toggle-settings");
  await page.fill("#temperature", "0");
  await page.click("#close-settings");
  for (const [i, text] of ["What is a KV block?", "What is continuous batching?", "Tell me a very short story."].entries()) {
    await page.fill("#prompt", text);
    await page.press("#prompt", "Enter");
    await page.waitForFunction((count) => document.querySelector("#stop").disabled &&
      document.querySelectorAll(".message.assistant .rate:not(:empty)").length === count, i + 1);
  }
  await page.screenshot({ path: `${folder}/chat.png` });
  await page.click("#toggle-settings");
  await page.fill("#preset-name", "Exact");
  await page.press("#preset-name", "Enter");
  await page.click("#toast [aria-label='Close this note']");
  await page.evaluate(() => window.showTheme("dark"));
  await page.screenshot({ path: `${folder}/settings.png` });
  await page.evaluate(() => window.showTheme("light"));
  await page.click("#close-settings");
  await page.click("#tab-status");
  await page.selectOption("#status-range", "60");
  // A minute of users that come and go, so that there is something to see.
  const until = Date.now() + 60_000;
  const user = async (number) => {
    while (Date.now() < until) {
      await server.post("/v1/completions", {
        prompt: "Once upon a time there was a block. ".repeat(1 + 7 * number), max_tokens: 60 + 90 * number, ignore_eos: true, n: 1 + (number % 2),
      });
      await new Promise((resolve) => setTimeout(resolve, 250 * number));
    }
  };
  const users = [1, 2, 3, 4, 5, 6].map(user);
  await page.setViewportSize({ width: 1200, height: 1100 });
  await new Promise((resolve) => setTimeout(resolve, 50_000));
  await page.screenshot({ path: `${folder}/status.png` });
  await Promise.all(users);
} finally {
  await browser.close();
  server.kill();
}
