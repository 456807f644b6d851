// The page's prompts, search and voice input in a real Chromium.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { answer_with, answered, has_started, open, say, skip } from "./page_support.mjs";

test("prompts are kept, found, inserted, written by name, exported and imported", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await page.fill("#prompt", "Summarise in three sentences:\n");
  await page.click("#show-prompts");
  await page.fill("[aria-label='Name of the prompt']", "Three Sentences");
  assert.equal(await page.inputValue("[aria-label='Text of the prompt']"), "Summarise in three sentences:\n", "what is being written is offered");
  await page.click("#prompts button[type=submit]:has-text('Save')");
  await page.fill("[aria-label='Name of the prompt']", "Translate");
  await page.fill("[aria-label='Text of the prompt']", "Translate into French: ");
  await page.click("#prompts button[type=submit]:has-text('Save')");
  const names = () => page.locator("#prompts .name b").allTextContents();
  assert.deepEqual(await names(), ["/three-sentences", "/translate"]);
  await page.fill("[aria-label='Search prompts']", "french");
  assert.deepEqual(await names(), ["/translate"]);
  await page.click("#prompts .name");
  await page.waitForFunction(() => !document.querySelector("#prompts"));
  assert.equal(await page.inputValue("#prompt"), "Translate into French: ");
  await page.fill("#prompt", "");
  await page.type("#prompt", "/three-sentences rest");
  assert.equal(await page.inputValue("#prompt"), "Summarise in three sentences:\nrest");

  await page.reload();
  await has_started(page);
  await page.click("#show-prompts");
  assert.deepEqual(await names(), ["/three-sentences", "/translate"], "kept");
  await page.click("[aria-label='Edit Translate']");
  await page.fill("[aria-label='Text of the prompt']", "Translate into Danish: ");
  await page.click("#prompts button[type=submit]:has-text('Save')");
  const saved = page.waitForEvent("download");
  await page.click("#prompts >> text=Export");
  const path = await (await saved).path();
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")).prompts.map(({ text }) => text), ["Summarise in three sentences:\n", "Translate into Danish: "]);
  await page.click("[aria-label='Delete Translate']");
  assert.equal((await names()).length, 2, "it asks once more");
  await page.click("[aria-label='Delete Translate']");
  assert.deepEqual(await names(), ["/three-sentences"]);
  await page.setInputFiles("[aria-label='Import prompts']", path);
  await page.waitForFunction(() => document.querySelectorAll("#prompts .name").length === 2);
  assert.deepEqual(complaints, []);
});

test("a search finds words in texts, shows where, and highlights them in the conversation", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const text = `${"Filler words stand here. ".repeat(12)}Then the **needle** is in (brackets).`;
  await answer_with(page, [{ content: text }]);
  await say(page, "First question");
  await answered(page, 1);
  // A branch that is not shown: the first answer is on it.
  await page.unroute("**/v1/chat/completions");
  await answer_with(page, [{ content: "Another answer." }]);
  await page.click(".message.assistant .again");
  await page.waitForFunction(() => document.querySelector(".message.assistant .branches")?.textContent.includes("2/2"));
  await page.click("#new");
  await say(page, "Second question");
  await answered(page, 1);
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);

  await page.fill("#search", "NEEDLE (brackets");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  assert.match(await page.textContent("#conversations .snippet"), /^….*needle.*brackets/);
  assert.deepEqual(await page.locator("#conversations .snippet mark").allTextContents(), ["needle", "(brackets"]);
  await page.click("#conversations .name");
  await page.waitForFunction(() => document.querySelector(".message.assistant .branches")?.textContent.includes("1/2"));
  const highlighted = () => page.evaluate(() => [...(CSS.highlights.get("found") ?? [])].map(String));
  await page.waitForFunction(() => (CSS.highlights.get("found")?.size ?? 0) >= 2);
  assert.deepEqual(await highlighted(), ["needle", "(brackets"]);
  // The search reads attached files, too.
  await page.setInputFiles("#files", { name: "list.txt", mimeType: "text/plain", buffer: Buffer.from("haystack in a file") });
  await page.waitForSelector("#attached .chip");
  await say(page, "Third question");
  await answered(page, 2);
  await page.fill("#search", "haystack");
  await page.waitForFunction(() => /haystack in a file/.test(document.querySelector("#conversations .snippet")?.textContent));
  await page.fill("#search", "second");
  await page.waitForFunction(() => document.querySelector("#conversations .name .title")?.textContent === "Second question");
  assert.deepEqual(await page.locator("#conversations .title mark").allTextContents(), ["Second"]);
  await page.fill("#search", "");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2 && !CSS.highlights.get("found"));
  assert.equal(await page.locator("mark").count(), 0);
  assert.deepEqual(complaints, []);
});

test("speech becomes text where the browser recognises it, and the button is absent where not", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await page.addInitScript(() => {
    if (sessionStorage.getItem("deaf")) {
      for (const name of ["SpeechRecognition", "webkitSpeechRecognition"]) Object.defineProperty(window, name, { value: undefined });
      return;
    }
    window.SpeechRecognition = class {
      start() { window.recognition = this; }
      stop() { this.onend(); }
    };
  });
  await page.reload();
  await page.waitForSelector("#speak:not([hidden])");
  await page.fill("#prompt", "Written,");
  await page.click("#speak");
  assert.equal(await page.getAttribute("#speak", "aria-pressed"), "true");
  await page.evaluate(() => window.recognition.onresult({ results: [[{ transcript: "then " }], [{ transcript: "said" }]] }));
  assert.equal(await page.inputValue("#prompt"), "Written, then said");
  await page.evaluate(() => window.recognition.onerror({ error: "not-allowed" }));
  assert.match(await page.textContent("#toast"), /does not allow the microphone/);
  await page.click("#speak");
  assert.equal(await page.getAttribute("#speak", "aria-pressed"), "false");
  await page.evaluate(() => sessionStorage.setItem("deaf", "1"));
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#model").value);
  assert.ok(await page.isHidden("#speak"));
  assert.deepEqual(complaints, []);
});
