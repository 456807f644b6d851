// The settings of a chat: empty fields leave the choice to the model's own defaults, which their placeholders show.
// Remembered in the browser; the API key only as long as the tab is open.
import { byId } from "./dom.js";
import { ApiError } from "./api.js";

const kStored = "quire.settings";
const kKey = "quire.api_key";
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const kTexts = ["system", "stop-texts", "schema", "tools", "thinking"];
const kFactory = { temperature: 1, top_p: 1, top_k: "off", min_p: 0, repetition_penalty: 1 }; // where the model's file says nothing

// {field: text}, without the empty ones.
export function currentValues() {
  return Object.fromEntries([...kNumbers, ...kTexts].map((id) => [id, byId(id).value]).filter(([, value]) => value !== ""));
}

function save() {
  const values = currentValues();
  try {
    localStorage.setItem(kStored, JSON.stringify(values));
    sessionStorage.setItem(kKey, byId("api_key").value);
  } catch { /* storage is refused: they last as long as the page */ }
  markChanged(values);
}

function markChanged(values) {
  const count = Object.keys(values).length;
  byId("settings-changed").textContent = count ? `${count} changed` : "";
  byId("toggle-settings").classList.toggle("marked", count > 0);
}

function show(values) {
  for (const id of [...kNumbers, ...kTexts]) byId(id).value = values[id] ?? "";
  byId("settings").dispatchEvent(new Event("shown"));
  markChanged(values);
}

// Takes these settings in place of all others.
export function applyValues(values) {
  show(values);
  save();
}

function load() {
  let values = {};
  try {
    values = JSON.parse(localStorage.getItem(kStored) ?? "{}");
    byId("api_key").value = sessionStorage.getItem(kKey) ?? "";
  } catch { /* as above */ }
  show(values);
}

export function toggleSettings(open = byId("settings").hidden) {
  const hadFocus = byId("settings").contains(document.activeElement);
  byId("settings").hidden = !open;
  byId("toggle-settings").setAttribute("aria-expanded", String(open));
  if (open) byId("settings").querySelector("input, select, textarea, button").focus();
  else if (hadFocus) byId("toggle-settings").focus();
}

export function startSettings() {
  load();
  byId("settings").addEventListener("input", save);
  byId("reset").addEventListener("click", () => applyValues({}));
  byId("toggle-settings").addEventListener("click", () => toggleSettings());
  byId("close-settings").addEventListener("click", () => toggleSettings(false));
  byId("settings").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault(); // a running answer is not stopped
    toggleSettings(false);
  });
}

// The model's own values, as /v1/models lists them, become the placeholders.
export function showDefaults(model) {
  const own = model?.meta?.default_sampling ?? {};
  for (const [id, factory] of Object.entries(kFactory)) byId(id).placeholder = String(own[id] ?? factory);
  byId("max_tokens").placeholder = model?.max_model_len ? `up to ${model.max_model_len}` : "";
}

// The functions that the settings offer as tools; none while their text is not JSON.
export function ownTools() {
  try {
    const tools = JSON.parse(byId("tools").value || "[]");
    return Array.isArray(tools) ? tools : [];
  } catch {
    return [];
  }
}

function parsed(id, what) {
  const text = byId(id).value.trim();
  if (!text) return undefined;
  try {
    const value = JSON.parse(text);
    byId(id).removeAttribute("aria-invalid");
    return value;
  } catch (error) {
    byId(id).setAttribute("aria-invalid", "true");
    throw new ApiError(`${what} is not JSON: ${error.message}`, { status: 400, code: "invalid_setting" });
  }
}

function numberOf(id) {
  const value = byId(id).value;
  return value === "" ? undefined : Number(value);
}

export const systemPrompt = () => byId("system").value.trim();

// The fields of a chat request that the settings decide. Throws ApiError where one is not what it should be.
export function requestFields() {
  const schema = parsed("schema", "The JSON schema");
  const tools = parsed("tools", "The list of tools");
  const stop = byId("stop-texts").value.split("\n").filter(Boolean);
  const thinking = byId("thinking").value;
  return {
    ...Object.fromEntries(kNumbers.map((id) => [id, numberOf(id)])),
    stop: stop.length ? stop : undefined,
    response_format: schema && { type: "json_schema", json_schema: { name: "answer", schema, strict: true } },
    tools,
    chat_template_kwargs: thinking ? { enable_thinking: thinking === "on" } : undefined,
  };
}
