// The page's frame: its two views, the server's readiness, and the start of everything.
import { Chat } from "./chat.js";
import { announce, byId } from "./dom.js";
import { loadMarkdown } from "./markdown.js";
import { Models } from "./models.js";
import { Presets } from "./presets.js";
import { showDefaults, startSettings, toggleSettings } from "./settings.js";
import { Shortcuts } from "./shortcuts.js";
import { Status } from "./status.js";
import { openStore } from "./store.js";
import { Toolbox } from "./toolbox.js";
import { startToolSettings } from "./tool_settings.js";
import { nextTheme, startTheme } from "./theme.js";

const kReadyEvery = 5000; // ms between two looks at readiness

const status = new Status();

function select(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isChosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
  byId("toggle-sidebar").hidden = name !== "chat";
  byId("toggle-settings").hidden = name !== "chat";
  byId("model").closest("label").hidden = name !== "chat"; // the status view has its own choice
  status.show(name === "status");
}

function startTabs() {
  const names = ["chat", "status"];
  names.forEach((name, index) => {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => select(name));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const other = names[(index + 1) % names.length];
      select(other);
      byId(`tab-${other}`).focus();
    });
  });
}

async function showReadiness(models) {
  try {
    const answer = await fetch("/readyz");
    byId("ready").textContent = answer.ok ? "ready" : (await answer.json()).status;
    byId("ready").className = answer.ok ? "good" : "bad";
    if (answer.ok && !models.chosen) await models.refresh();
  } catch {
    byId("ready").textContent = "no answer";
    byId("ready").className = "bad";
  }
}

startTheme();
startTabs();
startSettings();
const models = new Models();
models.onchoice(showDefaults);
new Presets(models);
const toolbox = new Toolbox();
const chat = new Chat(await openStore(), models, toolbox);
startToolSettings(toolbox, () => toggleSettings(true));
new Shortcuts([
  ["Alt+N", "New conversation", () => { select("chat"); chat.newConversation(); }],
  ["Alt+R", "Answer again", () => chat.answerAgain()],
  ["Alt+C", "Copy the last answer", () => chat.copyLast()],
  ["Ctrl+K", "Search conversations", () => { select("chat"); chat.search(); }],
  ["Alt+P", "Prompts", () => { select("chat"); chat.showPrompts(); }],
  ["Alt+S", "Settings", () => { select("chat"); toggleSettings(); }],
  ["Alt+T", "Next theme", () => announce(`Theme: ${nextTheme()}`)],
  ["Alt+V", "Chat or status", () => select(byId("view-chat").hidden ? "chat" : "status")],
  ["/", "Write a message", () => { select("chat"); byId("prompt").focus(); }],
]);
showReadiness(models);
setInterval(() => showReadiness(models), kReadyEvery);
await chat.start();
byId("prompt").focus();
loadMarkdown();
toolbox.start();
