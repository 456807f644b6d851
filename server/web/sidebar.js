// The list of conversations: chosen, renamed, searched, deleted with undo, exported and imported.
import { button, byId, download, element, toast } from "./dom.js";
import { menu } from "./menu.js";
import { asMarkdown, isConversation, newId } from "./conversation.js";

// Makes `rows` the list's children. One that has the focus stays where it is, lest it loses it: the others move.
function place(list, rows) {
  const focused = rows.find((row) => row.contains(document.activeElement));
  if (!focused) return list.replaceChildren(...rows);
  for (const child of [...list.children]) if (!rows.includes(child)) child.remove();
  const index = rows.indexOf(focused);
  for (const row of rows.slice(0, index)) list.insertBefore(row, focused);
  list.append(...rows.slice(index + 1));
}

export class Sidebar {
  #store;
  #open; // (id or null) => shows that conversation
  #shown = null;
  #found = null; // ids that the search leaves; null: all
  #rows = new Map(); // by id: { row, show(head, isShown) }

  constructor(store, open) {
    this.#store = store;
    this.#open = open;
    byId("new").addEventListener("click", () => open(null));
    byId("search").addEventListener("input", () => this.#search());
    byId("import").addEventListener("change", (event) => this.#import(event.target));
    byId("toggle-sidebar").addEventListener("click", () => this.toggle());
    if (!store.persistent) byId("storage-note").hidden = false;
  }

  toggle(open = byId("sidebar").classList.contains("closed")) {
    byId("sidebar").classList.toggle("closed", !open);
    byId("toggle-sidebar").setAttribute("aria-expanded", String(open));
  }

  async draw(shown = this.#shown) {
    this.#shown = shown;
    const heads = (await this.#store.heads()).sort((a, b) => b.updated - a.updated);
    const visible = this.#found ? heads.filter(({ id }) => this.#found.includes(id)) : heads;
    const known = new Set(heads.map(({ id }) => id));
    for (const id of this.#rows.keys()) if (!known.has(id)) this.#rows.delete(id);
    place(byId("conversations"), visible.map((head) => this.#row(head)));
    byId("no-conversations").hidden = visible.length > 0;
  }

  // The same row for as long as there is the conversation: an answer that ends elsewhere takes no focus from it.
  #row(head) {
    if (!this.#rows.has(head.id)) this.#rows.set(head.id, this.#newRow(head));
    const { row, show } = this.#rows.get(head.id);
    show(head, head.id === this.#shown);
    return row;
  }

  #newRow(head) {
    const name = button("", () => this.#open(head.id), { class: "name" });
    const more = menu("⋯", "", [
      ["Rename", () => this.#rename(row, head)], ["Export as JSON", () => this.#export(head.id, "json")],
      ["Export as Markdown", () => this.#export(head.id, "md")], ["Delete", () => this.#remove(head)]]);
    const row = element("li", {}, name, more);
    const show = (now, isShown) => {
      head = now;
      name.textContent = name.title = head.title;
      more.querySelector("summary").setAttribute("aria-label", `More for ${head.title}`);
      if (isShown) name.setAttribute("aria-current", "true");
      else name.removeAttribute("aria-current");
      row.className = isShown ? "shown" : "";
    };
    return { row, show };
  }

  #rename(row, head) {
    const parts = [...row.childNodes];
    const field = element("input", { type: "text", "aria-label": "New name" });
    field.value = head.title;
    let over = false;
    const end = async (save) => {
      if (over) return;
      over = true;
      row.replaceChildren(...parts);
      if (save && field.value.trim()) {
        const conversation = await this.#store.load(head.id);
        await this.#store.save({ ...conversation, title: field.value.trim(), titled: true });
        if (head.id === this.#shown) this.#open(head.id);
      }
      this.draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key === "Escape") end(false);
    });
    field.addEventListener("blur", () => end(true));
    row.replaceChildren(field);
    field.select();
  }

  async #export(id, form) {
    const conversation = await this.#store.load(id);
    const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) || "conversation";
    if (form === "json") download(`${name}.json`, JSON.stringify({ quire: 1, conversations: [conversation] }, null, 1), "application/json");
    else download(`${name}.md`, asMarkdown(conversation), "text/markdown");
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      const { conversations } = JSON.parse(await file.text());
      if (!Array.isArray(conversations) || !conversations.every(isConversation)) throw new Error("it holds no conversations of Quire");
      for (const conversation of conversations) await this.#store.save({ ...conversation, id: newId() });
      toast(`${conversations.length} imported`);
    } catch (error) {
      toast(`${file.name} cannot be imported: ${error.message}`);
    }
    this.draw();
  }

  async #remove(head) {
    const conversation = await this.#store.load(head.id);
    await this.#store.remove(head.id);
    if (head.id === this.#shown) this.#open(null);
    else this.draw();
    toast(`"${head.title}" was deleted`, {
      label: "Undo",
      run: async () => {
        await this.#store.save(conversation);
        this.#open(head.id);
      },
    });
  }

  async #search() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    this.#found = words.length ? await this.#store.search(words) : null;
    this.draw();
  }
}
