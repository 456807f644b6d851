// The page's frame: its two views, the server's readiness, and the start of everything.
import { Chat } from "./chat.js";
import { byId } from "./dom.js";
import { loadMarkdown } from "./markdown.js";
import { Models } from "./models.js";
import { showDefaults, startSettings } from "./settings.js";
import { Status } from "./status.js";
import { openStore } from "./store.js";

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

startTabs();
startSettings();
const models = new Models();
models.onchoice(showDefaults);
const chat = new Chat(await openStore(), models);
showReadiness(models);
setInterval(() => showReadiness(models), kReadyEvery);
await chat.start();
byId("prompt").focus();
loadMarkdown();
