// Keyboard shortcuts and the list of them: one table is both.
import { byId, element, openDialog } from "./dom.js";

// Keys that the fields and messages handle themselves.
const kElsewhere = [
  ["Enter", "Send the message"], ["Shift+Enter", "Break the line"], ["Escape", "Stop the answer, close what is open"],
  ["Ctrl+Enter", "Save an edited message"],
];

function isTyping(target) {
  return target.matches?.("input, textarea, select, [contenteditable]");
}

// "Alt+N" and "Ctrl+K" hold everywhere; single letters and signs only outside of fields.
function matches(keys, event) {
  const parts = keys.split("+");
  const key = parts.pop();
  const isPlain = parts.length === 0;
  if (isPlain && (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey)) return false;
  if (isPlain) return event.key === key;
  return event.altKey === parts.includes("Alt") && (event.ctrlKey || event.metaKey) === parts.includes("Ctrl") &&
    event.shiftKey === parts.includes("Shift") && event.code === `Key${key}`;
}

function keyNames(keys) {
  return keys.split("+").flatMap((key, i) => [i ? "+" : "", element("kbd", {}, key)]);
}

export class Shortcuts {
  #shortcuts;

  // shortcuts: [[keys, what, run]]
  constructor(shortcuts) {
    this.#shortcuts = [...shortcuts, ["?", "Show this list", () => this.show()]];
    byId("show-shortcuts").addEventListener("click", () => this.show());
    document.addEventListener("keydown", (event) => {
      if (event.isComposing || document.querySelector("dialog[open]")) return;
      const found = this.#shortcuts.find(([keys]) => matches(keys, event));
      if (!found) return;
      event.preventDefault();
      found[2]();
    });
  }

  show() {
    const rows = [...kElsewhere, ...this.#shortcuts].map(([keys, what]) =>
      element("tr", {}, element("th", { scope: "row" }, ...keyNames(keys)), element("td", {}, what)));
    openDialog("shortcuts", "Keyboard shortcuts", element("table", {}, element("tbody", {}, ...rows)));
  }
}
