// The management of models on the page in a real Chromium, for an admin: sleep, wake, load, download with progress, delete.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FakeHub, sha256 } from "../models/fake_hub.mjs";
import { open, show_settings, skip } from "./page_support.mjs";

async function open_as_admin(context, pull = "server:\n  pull: {enabled: true}\n") {
  const folder = mkdtempSync(join(tmpdir(), "quire-page-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const hub = await FakeHub.start();
  context.after(() => hub.stop());
  hub.add("owner/demo", { "demo.Q8_0.gguf": readFileSync(process.env.QUIRE_MODEL) });
  const file = join(folder, "quire.yaml");
  const key = (name, more = "") => `    - {name: ${name}, sha256: ${sha256(Buffer.from(`${name}-secret`))}${more}}\n`;
  writeFileSync(file, `${pull}security:\n  keys:\n${key("root", ", admin: true")}${key("alice")}` +
    `models:\n  - {name: quire-demo, path: ${process.env.QUIRE_MODEL}, kv_memory: 32MiB}\n`);
  const env = { HF_ENDPOINT: hub.url, HF_HUB_CACHE: join(folder, "hub"), HF_HOME: folder, HF_TOKEN: "" };
  const opened = await open(context, { flags: ["--config", file], model: null, env, key: "root-secret" });
  return { hub, ...opened };
}

const state = (page, name, wanted) => page.waitForFunction((what) =>
  document.querySelector(`#manager tr[data-name="${what.name}"]`)?.dataset.state === what.wanted, { name, wanted });

test("an admin sleeps, wakes, downloads, loads, unloads and deletes models", { skip }, async (context) => {
  const { hub, page, complaints } = await open_as_admin(context);
  await page.click("#tab-status");
  await page.click("#manager summary");
  await state(page, "quire-demo", "ready");
  await page.click("[aria-label='Sleep quire-demo']");
  await state(page, "quire-demo", "sleeping");
  await page.click("[aria-label='Wake quire-demo']");
  await state(page, "quire-demo", "ready");

  hub.faults = { hold_after: 100_000 };
  await page.fill("[aria-label='Model to download']", "owner/demo:Q8_0");
  await page.click("#manager >> text='Download'");
  await page.waitForFunction(() => document.querySelector("#pulls progress")?.value >= 100_000);
  assert.match(await page.textContent("#pulls .note"), /^downloading: [\d.]+ MiB of [\d.]+ MiB$/);
  await page.click("[aria-label='Stop the download of owner/demo:Q8_0']");
  await page.waitForFunction(() => document.querySelector("#pulls .note").textContent === "stopped");
  hub.release();
  hub.faults = {};
  await page.click("[aria-label='Forget the download of owner/demo:Q8_0']");
  await page.click("#manager >> text='Download'");
  await page.waitForFunction(() => document.querySelector("#pulls .note")?.textContent === "complete");
  await page.waitForSelector("#manager tr[data-name='owner/demo:Q8_0']");
  await page.waitForSelector(".downloads [aria-label='Delete owner/demo:Q8_0']");

  // Deleting what is in use is refused with the reason; unloaded, it goes.
  const remove = async () => {
    await page.click(".downloads [aria-label='Delete owner/demo:Q8_0']");
    await page.click(".downloads [aria-label='Delete owner/demo:Q8_0']");
  };
  await remove();
  await page.waitForFunction(() => /uses these files/.test(document.querySelector("#manager .problem")?.textContent));
  await page.click("[aria-label='Unload owner/demo:Q8_0']");
  await page.click("[aria-label='Unload owner/demo:Q8_0']");
  await page.waitForFunction(() => !document.querySelector("#manager tr[data-name='owner/demo:Q8_0']:not([data-state=unloaded])"));
  await page.fill("[aria-label='Name of the model to load']", "second");
  await page.fill("[aria-label='File of the model to load']", process.env.QUIRE_MODEL);
  await page.click("#manager >> text='Load a model'");
  await state(page, "second", "ready");
  await remove();
  await page.waitForFunction(() => document.querySelector("#manager .downloads").textContent.startsWith("None in "));
  assert.deepEqual(complaints.filter((text) => !text.includes("409")), []);
});

test("where the operator allows no downloads, models are managed all the same", { skip }, async (context) => {
  const { page } = await open_as_admin(context, "");
  await page.click("#tab-status");
  await page.click("#manager summary");
  await state(page, "quire-demo", "ready");
  await page.waitForFunction(() => /server\.pull\.enabled/.test(document.querySelector("#manager section")?.textContent));
  assert.equal(await page.textContent("#manager .problem"), "");
  await page.click("[aria-label='Sleep quire-demo']");
  await state(page, "quire-demo", "sleeping");
});

test("without an admin's key the page says what is needed", { skip }, async (context) => {
  const { page } = await open_as_admin(context);
  await show_settings(page, true);
  await page.fill("#api_key", "alice-secret");
  await page.click("#close-settings");
  await page.click("#tab-status");
  await page.click("#manager summary");
  await page.waitForFunction(() => /admin key.*Enter an admin's API key/.test(document.querySelector("#manager .problem")?.textContent));
  assert.equal(await page.locator("#manager tbody tr").count(), 0);
});
