// The page's frame: tabs, the model list, readiness.
import { startChat } from "/ui/chat.js";
import { startStatus } from "/ui/status.js";

const byId = (id) => document.getElementById(id);

function select(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
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

async function listModels() {
  const key = byId("api_key").value;
  const answer = await fetch("/v1/models", key ? { headers: { Authorization: `Bearer ${key}` } } : {});
  if (!answer.ok) return;
  const { data } = await answer.json();
  byId("model").replaceChildren(...data.map((model) => new Option(model.id, model.id)));
}

async function showReadiness() {
  try {
    const answer = await fetch("/readyz");
    byId("ready").textContent = answer.ok ? "ready" : "not ready";
    if (answer.ok && byId("model").options.length === 0) await listModels();
  } catch {
    byId("ready").textContent = "no answer";
  }
}

startTabs();
startChat();
startStatus();
byId("api_key").addEventListener("change", listModels);
showReadiness();
setInterval(showReadiness, 5000);
