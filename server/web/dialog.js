// Dialogs: each is made when it opens and gone when it closes.
import { element } from "./dom.js";

// A dialog with a heading, that content, and a button that closes it.
export function openDialog(id, title, ...content) {
  const dialog = element("dialog", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), ...content,
    element("form", { method: "dialog", class: "row" }, element("span", { class: "grow" }), element("button", {}, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
