// The library of prompts, {name, text}, kept in the browser: inserted from a dialog, or written as /name and a space.
import { button, byId, element, openDialog, sureButton } from "./dom.js";
import { NamedList } from "./store.js";

const kPreview = 120;

const command = ({ name }) => name.trim().toLowerCase().replace(/\s+/g, "-");

export class Prompts {
  #prompts = new NamedList("prompts", ({ text }) => typeof text === "string", ({ name, text }) => ({ name, text }));
  #insert; // (text): into the message that is being written

  constructor(insert) {
    this.#insert = insert;
    byId("show-prompts").addEventListener("click", () => this.show());
    byId("prompt").addEventListener("input", () => this.#expand());
  }

  #expand() {
    const [, name, rest] = /^\/(\S+)\s([\s\S]*)$/.exec(byId("prompt").value) ?? [];
    const found = name && this.#prompts.all.find((prompt) => command(prompt) === name.toLowerCase());
    if (found) this.#insert(found.text + rest);
  }

  show() {
    const filter = element("input", { type: "search", "aria-label": "Search prompts", placeholder: "Search" });
    const list = element("ul", { class: "prompts" });
    const name = element("input", { type: "text", maxlength: NamedList.longestName, "aria-label": "Name of the prompt", placeholder: "Name", required: true });
    const text = element("textarea", { rows: 4, "aria-label": "Text of the prompt", placeholder: "Text", required: true });
    text.value = byId("prompt").value;
    const file = element("input", { type: "file", accept: "application/json,.json", "aria-label": "Import prompts" });
    const edit = (prompt) => {
      name.value = prompt.name;
      text.value = prompt.text;
      text.focus();
    };
    const draw = () => this.#draw(list, filter.value, edit, () => dialog.close(), draw);
    const save = (event) => {
      event.preventDefault();
      this.#prompts.put([{ name: name.value.trim(), text: text.value }]);
      name.value = text.value = "";
      draw();
    };
    filter.addEventListener("input", draw);
    file.addEventListener("change", async () => {
      await this.#prompts.import(file);
      draw();
    });
    const dialog = openDialog("prompts", "Prompts", filter, list,
      element("form", { class: "stack", onsubmit: save }, name, text, element("div", { class: "row" }, element("button", { type: "submit" }, "Save"),
        button("Export", () => this.#prompts.export()), element("label", { class: "file button" }, "Import", file))),
      element("p", { class: "note" }, "In a message, /name and a space becomes the prompt's text."));
    draw();
  }

  #draw(list, wanted, edit, close, draw) {
    const found = this.#prompts.all.filter(({ name, text }) => `${name}\n${text}`.toLowerCase().includes(wanted.toLowerCase()));
    const use = (prompt) => {
      close();
      this.#insert(prompt.text);
    };
    list.replaceChildren(...found.map((prompt) => element("li", {},
      button(element("span", {}, element("b", {}, `/${command(prompt)}`), ` ${prompt.text.slice(0, kPreview)}`), () => use(prompt), { class: "name" }),
      button("Edit", () => edit(prompt), { class: "quiet", "aria-label": `Edit ${prompt.name}` }),
      sureButton("Delete", () => { this.#prompts.remove(prompt.name); draw(); }, { class: "quiet", "aria-label": `Delete ${prompt.name}` }))));
    if (!found.length) list.append(element("li", { class: "note" }, this.#prompts.all.length ? "None found." : "No prompts yet. They are kept in this browser only."));
  }
}
