// The page for people who use a keyboard or a screen reader, checked in Chromium's own accessibility tree.
import assert from "node:assert/strict";
import { test } from "node:test";
import { audit } from "./page_audit.mjs";
import { answered, answers, next_chat, open, say, settings, show_settings, skip } from "./page_support.mjs";

// The nodes that assistive technology gets: {role, name, properties}.
async function exposed(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send("Accessibility.getFullAXTree");
  await session.detach();
  return nodes.filter(({ ignored }) => !ignored).map(({ role, name, properties = [] }) => ({
    role: role?.value, name: name?.value?.trim() ?? "", properties: Object.fromEntries(properties.map((each) => [each.name, each.value.value])),
  }));
}

// Presses `key` until the focused element matches, as a reader without a mouse would.
async function press_until(page, key, selector) {
  for (let i = 0; i < 200; ++i) {
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
    await page.keyboard.press(key);
  }
  assert.fail(`${key} never reaches ${selector}`);
}

test("everything that takes the focus has a name, and each view has one main region", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const check = async (view) => {
    const nodes = await exposed(page);
    const nameless = nodes.filter(({ role, name, properties }) => properties.focusable && !name && role !== "RootWebArea");
    assert.deepEqual(nameless, [], view);
    assert.equal(nodes.filter(({ role }) => role === "main").length, 1, view);
    assert.equal(nodes.filter(({ role, properties }) => role === "heading" && properties.level === 1).length, 1, view);
    assert.equal(nodes.filter(({ role }) => role === "tab").length, 2, view);
  };
  await check("an empty chat");
  await settings(page, { temperature: 0, max_tokens: 8 });
  await say(page, "What is a KV block?");
  await answered(page, 1);
  await show_settings(page, true);
  await check("a chat with an answer and its settings");
  const nodes = await exposed(page);
  for (const name of ["You", "Assistant"]) assert.ok(nodes.some((node) => node.role === "article" && node.name === name), name);
  await page.waitForFunction(() => document.querySelector("#announcer").textContent === "The answer is complete");
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7);
  await check("the status view");
  assert.deepEqual(complaints, []);
});

test("an audit finds nothing in any view, panel or dialog, in any theme", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  const themes = { light: 4.5, dark: 4.5, "light-contrast": 7, "dark-contrast": 7 };
  const check = async (view) => {
    for (const [theme, least] of Object.entries(themes)) {
      await page.evaluate((name) => window.showTheme(name), theme);
      assert.deepEqual(await audit(page, least), [], `${view}, ${theme}`);
    }
  };
  await check("an empty chat");
  await settings(page, { temperature: 0, max_tokens: 24 });
  await say(page, "What is a KV block?");
  await answered(page, 1);
  await page.click(".usage summary");
  await page.fill("#search", "block");
  await page.waitForSelector("#conversations mark");
  await show_settings(page, true);
  await page.fill("#preset-name", "Brief");
  await page.click("text=Save as preset");
  await check("an answer, a search, the settings and a note");
  await page.click("#add-tool");
  await page.click("text=Add a parameter");
  await check("the form of a tool");
  await page.keyboard.press("Escape");
  await page.click("#show-shortcuts");
  await check("the list of shortcuts");
  await page.keyboard.press("Escape");
  await page.click("#show-prompts");
  await page.fill("[aria-label='Name of the prompt']", "One");
  await page.fill("[aria-label='Text of the prompt']", "Text");
  await page.click("#prompts button[type=submit]:has-text('Save')");
  await check("the prompts");
  await page.keyboard.press("Escape");
  await page.click("#tab-status");
  await page.waitForFunction(() => document.querySelectorAll("#plots canvas").length === 7);
  await page.click("#manager summary");
  await page.waitForFunction(() => document.querySelector("#manager .problem")?.textContent);
  await check("the status");
  assert.deepEqual(complaints.filter((text) => !text.includes("403") && !text.includes("401")), []);
});

test("a conversation is held, edited and renamed by keyboard alone", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 8 });
  await page.focus("#prompt");
  await page.keyboard.type("What is a block?");
  await page.keyboard.press("Enter");
  await answered(page, 1);
  await press_until(page, "Shift+Tab", ".message.user [aria-label='Edit this message']");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.matches(".editor"));
  await page.keyboard.press("End");
  await page.keyboard.type(" And why?");
  const sent = next_chat(page);
  await page.keyboard.press("Control+Enter");
  assert.deepEqual((await sent).postDataJSON().messages, [{ role: "user", content: "What is a block? And why?" }]);
  await answered(page, 1);
  assert.ok((await answers(page))[0].length > 0);
  await page.focus("#search");
  await press_until(page, "Tab", "#conversations .more summary");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#conversations .more").open);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("#conversations .more").open && document.activeElement.matches(".more summary"));
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.matches("#conversations input"));
  await page.keyboard.type("Blocks");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#conversations .name")?.textContent === "Blocks");
  assert.deepEqual(complaints, []);
});

test("an answer that ends takes no focus from the list of conversations, and closes no menu there", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  await settings(page, { temperature: 0, max_tokens: 4 });
  const first = () => page.textContent("#conversations li:first-child .name");
  for (const text of ["One", "Two"]) {
    await page.click("#new");
    await say(page, text);
    await answered(page, 1);
    await page.waitForFunction((name) => document.querySelector("#conversations .name")?.textContent === name, text);
  }
  await page.click("#conversations li:nth-child(2) .name");
  await page.waitForFunction(() => document.querySelector("#conversations li:nth-child(2)").className === "shown");
  await page.click("#conversations li:nth-child(2) .more summary");
  // Sent without touching the focus: the conversation comes first once its answer is complete.
  await page.evaluate(() => {
    document.querySelector("#prompt").value = "And why?";
    document.querySelector("#composer").requestSubmit();
  });
  await page.waitForFunction(() => document.querySelector("#conversations .name").textContent === "One");
  assert.equal(await first(), "One");
  assert.equal(await page.evaluate(() => document.activeElement.closest("li")?.querySelector(".name").textContent), "One");
  assert.ok(await page.evaluate(() => document.querySelector("#conversations li:first-child .more").open), "the menu is open");
  assert.deepEqual(complaints, []);
});

test("a suggestion of the empty page becomes the message's text", { skip }, async (context) => {
  const { page, complaints } = await open(context);
  assert.ok(await page.isVisible("#welcome"));
  assert.match(await page.textContent("#toy"), /^quire-demo is a toy of 4\.7 million parameters\. quire recommend names/);
  await page.click(".idea");
  assert.equal(await page.inputValue("#prompt"), await page.textContent(".idea"));
  await settings(page, { max_tokens: 4 });
  await page.press("#prompt", "Enter");
  await answered(page, 1);
  assert.ok(await page.isHidden("#welcome"), "a conversation takes its place");
  assert.ok(await page.isHidden("#stop"), "Stop is shown while an answer is written");
  assert.deepEqual(complaints, []);
});
