// Pictures on the page in a real Chromium, with a model that sees: attached, pasted and dropped, with sizes and tokens; sent, kept and
// shown; refused with a clear word where the model reads text only.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { answered, answers, next_chat, open, say, settings, skip } from "./page_support.mjs";

// A server with a model that sees, `seeing`, beside the bundled one. make(folder): returns the model's path.
async function open_seeing(context, make = tiny_model) {
  const folder = mkdtempSync(join(tmpdir(), "quire-page-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "quire.yaml");
  writeFileSync(file, `models:\n  - {name: quire-demo, path: ${process.env.QUIRE_MODEL}}\n  - {name: seeing, path: ${make(folder)}}\n`);
  return open(context, { flags: ["--config", file], model: null });
}

function tiny_model(folder) {
  const model = join(folder, "seeing.gguf");
  execFileSync(process.env.QUIRE_BINARY, ["synth", "--shape", "tiny-qwen3vl", "--type", "F16", model]);
  execFileSync(process.env.QUIRE_BINARY, ["synth", "--shape", "tiny-qwen3vl-mmproj", "--type", "F16", join(folder, "mmproj-seeing.gguf")]);
  return model;
}

// A picture of the size in one colour, as the page's canvas writes it.
const picture = (page, width, height, colour) => page.evaluate(async (wanted) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: wanted.width, height: wanted.height });
  const context = canvas.getContext("2d");
  context.fillStyle = wanted.colour;
  context.fillRect(0, 0, wanted.width, wanted.height);
  return canvas.toDataURL("image/png").split(",")[1];
}, { width, height, colour });

// Pastes into the composer, or drops onto the conversation, what a user would bring: a file of this content.
const bring = (page, type, name, base64) => page.evaluate(async (what) => {
  const bytes = Uint8Array.from(atob(what.base64), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], what.name, { type: "image/png" }));
  const target = document.querySelector(what.type === "paste" ? "#prompt" : "#messages");
  if (what.type === "paste") return target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
  for (const type of ["dragenter", "dragover", "drop"]) target.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  return true;
}, { type, name, base64 });

const chips = (page) => page.locator("#attached .chip .note").allTextContents();

test("pictures are attached, pasted and dropped; sent, kept and shown with their sizes and tokens", { skip }, async (context) => {
  const { page, complaints } = await open_seeing(context);
  await settings(page, { temperature: 0, max_tokens: 4 });
  await page.selectOption("#model", "seeing");
  assert.match(await page.textContent("#model option:checked"), /sees images/);
  const red = await picture(page, 96, 64, "red");
  await page.setInputFiles("#files", { name: "red.png", mimeType: "image/png", buffer: Buffer.from(red, "base64") });
  await page.waitForFunction(() => document.querySelectorAll("#attached .chip img").length === 1);
  await bring(page, "paste", "blue.png", await picture(page, 64, 64, "blue"));
  await page.waitForFunction(() => document.querySelectorAll("#attached .chip img").length === 2);
  await bring(page, "drop", "green.png", await picture(page, 640, 480, "green"));
  await page.waitForFunction(() => document.querySelectorAll("#attached .chip img").length === 3);
  assert.equal(await page.locator(".dropping").count(), 0, "the mark of a drop is gone");
  await page.waitForFunction(() => [...document.querySelectorAll("#attached .chip .note")].every((note) => /\d+ tokens$/.test(note.textContent)));
  const sizes = await chips(page);
  assert.match(sizes[0], /^96 × 64, 1 KiB, \d+ tokens$/);
  assert.ok(Number(/(\d+) tokens/.exec(sizes[2])[1]) > Number(/(\d+) tokens/.exec(sizes[1])[1]), `a larger picture takes more: ${sizes}`);
  await page.click("[aria-label='Remove blue.png']");

  const sent = next_chat(page);
  await say(page, "What is this?");
  const [message] = (await sent).postDataJSON().messages;
  assert.deepEqual(message.content.map(({ type }) => type), ["image_url", "image_url", "text"]);
  assert.equal(message.content[0].image_url.url, `data:image/png;base64,${red}`);
  await answered(page, 1);
  assert.equal(await page.locator(".problem:not(:empty)").count(), 0);
  const shown = () => page.evaluate(() => [...document.querySelectorAll(".message.user figure.attached img")].map(({ naturalWidth }) => naturalWidth));
  assert.deepEqual(await shown(), [96, 640]);
  assert.match(await page.textContent(".message.user figcaption"), /^96 × 64, 1 KiB, \d+ tokens$/);

  await page.reload();
  await answered(page, 1);
  await page.waitForFunction(() => document.querySelector(".message.user figure.attached img")?.complete);
  assert.deepEqual(await shown(), [96, 640], "kept in the browser");
  await page.click("[aria-label='Show red.png']");
  assert.ok(await page.isVisible("#enlarged img"));
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));

  await page.click("#tab-status");
  await page.waitForSelector("#status-model");
  await page.selectOption("#status-model", "seeing");
  await page.waitForFunction(() => document.querySelector("#figure-encoded").textContent === "2");
  assert.ok(await page.isVisible("#encoder"));
  assert.match(await page.textContent("#figure-encoder"), /^[\d.]+ s$/);
  await page.selectOption("#status-model", "quire-demo");
  await page.waitForFunction(() => document.querySelector("#encoder").hidden);
  assert.deepEqual(complaints, []);
});

test("a model that cannot see: the page says so before anything is sent, and names one that can", { skip }, async (context) => {
  const { page, complaints } = await open_seeing(context);
  await settings(page, { max_tokens: 4 });
  await page.selectOption("#model", "quire-demo");
  await page.setInputFiles("#files", { name: "red.png", mimeType: "image/png", buffer: Buffer.from(await picture(page, 32, 32, "red"), "base64") });
  await page.waitForFunction(() => document.querySelector("#attached-problem").textContent !== "");
  assert.equal(await page.textContent("#attached-problem"), "quire-demo cannot see images: remove them, or choose seeing.");
  await say(page, "What is this?");
  assert.equal(await page.locator(".message").count(), 0);
  assert.equal(await page.inputValue("#prompt"), "What is this?", "the text stays");
  await page.selectOption("#model", "seeing");
  await page.waitForFunction(() => document.querySelector("#attached-problem").textContent === "");
  await page.press("#prompt", "Enter");
  await answered(page, 1);
  // Later turns with the model that cannot see: the server leaves the picture out and the answer says so.
  await page.selectOption("#model", "quire-demo");
  await say(page, "And now?");
  await answered(page, 2);
  assert.match(await page.locator(".message.assistant").last().locator(".warning").textContent(), /image is left out/);
  assert.deepEqual(complaints, []);
});

test("what is no picture or too large is refused with its reason", { skip }, async (context) => {
  const { page, complaints } = await open_seeing(context);
  await page.setInputFiles("#files", { name: "torn.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("torn.png was not attached: it is no image that can be shown"));
  await page.setInputFiles("#files", { name: "huge.png", mimeType: "image/png", buffer: Buffer.alloc(9 * 2 ** 20) });
  await page.waitForFunction(() => document.querySelector("#toast").textContent.includes("huge.png was not attached: it is larger than 8 MiB"));
  assert.equal(await page.locator("#attached .chip").count(), 0);
  assert.deepEqual(complaints.filter((text) => !text.includes("ERR_INVALID")), []);
});

test("the page offers a picture that it draws, and the trained model says what is in it", { skip }, async (context) => {
  const { page, complaints } = await open_seeing(context, () => join(process.env.QUIRE_SOURCE, "deploy/demo-model/seeing/quire-seeing.gguf"));
  assert.ok(await page.isHidden("#picture-idea"), "not for a model that reads text only");
  await page.selectOption("#model", "seeing");
  await settings(page, { temperature: 0, max_tokens: 40 });
  await page.click("#picture-idea");
  await page.waitForFunction(() => document.querySelectorAll("#attached .chip img").length === 1);
  await page.press("#prompt", "Enter");
  await answered(page, 1);
  assert.deepEqual(await answers(page), ["A red circle and a blue square."]);
  assert.deepEqual(complaints, []);
});
