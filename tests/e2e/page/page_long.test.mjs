// A long conversation opens at its end, and only the messages near the screen are rendered. `make bench-page` measures
// how smoothly it scrolls.
import assert from "node:assert/strict";
import { test } from "node:test";
import { answer_with, answered, open, say, skip } from "./page_support.mjs";

const kMessages = 400;

function conversation() {
  const messages = {};
  let parent = null;
  for (let i = 0; i < kMessages; ++i) {
    const id = `m${String(i).padStart(4, "0")}`;
    messages[id] = { id, parent, created: 1e12 + i, role: i % 2 ? "assistant" : "user", content: `Text number ${i} with **bold** words.`, finish: "stop" };
    parent = id;
  }
  return { id: "long", title: "Long", titled: true, created: 1e12, updated: 1e12, leaf: parent, messages };
}

test("a long conversation opens at its end and is rendered where it is read", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await answer_with(page, [{ content: "A short answer." }]); // the conversation is longer than the context of the demo model
  const file = { name: "long.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ conversations: [conversation()] })) };
  await page.setInputFiles("#import", file);
  await page.click("#conversations .name");
  const message = (number) => page.locator(`[data-id=m${String(number).padStart(4, "0")}]`);
  await page.waitForFunction((count) => document.querySelectorAll(".message").length === count, kMessages);
  await message(kMessages - 1).locator("strong").waitFor();
  const at_end = () => { const box = document.querySelector("#messages"); return box.scrollHeight - box.scrollTop - box.clientHeight < 40; };
  await page.waitForFunction(at_end);
  assert.ok(await page.locator(".message footer").count() < kMessages / 2, "most messages are not rendered yet");
  assert.match(await message(1).textContent(), /Text number 1 with \*\*bold\*\*/, "their text is there, for the browser's search");

  await page.evaluate(() => { document.querySelector("#messages").scrollTop = 0; });
  await message(1).locator("strong").waitFor();
  await message(1).locator("footer").waitFor();
  assert.ok(await message(0).isVisible());
  assert.equal(await message(kMessages / 2).locator("footer").count(), 0, "nor are those that were passed");

  await say(page, "One more?");
  await answered(page, kMessages / 2 + 1);
  await page.waitForFunction(at_end);
  assert.equal(await page.locator(".message").count(), kMessages + 2);
  assert.equal(await page.locator(".chunk").count(), Math.ceil((kMessages + 2) / 16));
  assert.deepEqual(complaints, []);
});
