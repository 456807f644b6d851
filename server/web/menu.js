// A button that opens a short list of actions. Escape, a choice or leaving it closes it.
import { button, element } from "./dom.js";

// items: buttons' labels with what each does, [[label, run]], or a function that gives them whenever the menu opens.
export function menu(text, label, items, attributes = {}) {
  const summary = element("summary", { "aria-label": label }, text);
  const list = element("div", { class: "menu", onclick: () => { box.open = false; } });
  const box = element("details", { ...attributes, class: `more ${attributes.class ?? ""}`.trim() }, summary, list);
  const fill = () => list.replaceChildren(...(typeof items === "function" ? items() : items).map(([name, run]) => button(name, run)));
  if (typeof items !== "function") fill();
  summary.addEventListener("click", () => { if (!box.open) fill(); });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.preventDefault(); // a running answer is not stopped
    box.open = false;
    summary.focus();
  });
  box.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !box.contains(event.relatedTarget)) box.open = false;
  });
  return box;
}
