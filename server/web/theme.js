// The choice of a theme: the system's, or one of four. The page's first script shows it before anything is painted.
import { byId } from "./dom.js";

const kStored = "quire.theme";
const kThemes = [
  ["", "As the system"], ["light", "Light"], ["dark", "Dark"], ["light-contrast", "Light, high contrast"], ["dark-contrast", "Dark, high contrast"],
];

let chosen = "";
const listeners = [];

// Calls `listener` whenever the page's colours have changed.
export function onTheme(listener) {
  listeners.push(listener);
}

function show(theme) {
  chosen = theme;
  window.showTheme(theme);
  byId("theme").value = theme;
  for (const listener of listeners) listener();
}

function choose(theme) {
  try {
    localStorage.setItem(kStored, theme);
  } catch { /* storage is refused: it lasts as long as the page */ }
  show(theme);
}

export function nextTheme() {
  const at = kThemes.findIndex(([theme]) => theme === chosen);
  choose(kThemes[(at + 1) % kThemes.length][0]);
  return kThemes.find(([theme]) => theme === chosen)[1];
}

export function startTheme() {
  byId("theme").replaceChildren(...kThemes.map(([theme, name]) => new Option(name, theme)));
  byId("theme").addEventListener("change", () => choose(byId("theme").value));
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
    window.matchMedia(query).addEventListener("change", () => show(chosen));
  }
  let stored = "";
  try {
    stored = localStorage.getItem(kStored) ?? "";
  } catch { /* as above */ }
  show(kThemes.some(([theme]) => theme === stored) ? stored : "");
}
