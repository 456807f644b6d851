// The list of conversations: chosen, renamed, searched, deleted with undo, exported and imported.
import { button, byId, download, element, menu, toast } from "./dom.js";
import { Highlights, marked, wordsOf } from "./found.js";
import { asMarkdown, isConversation, newId } from "./conversation.js";
import { exportList, importList } from "./store.js";

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
  #open; // (id or null, message?) => shows that conversation, at that message
  #shown = null;
  #found = null; // found places by id; null: no search
  #words = []; // the search's words
  #highlights = new Highlights(byId("messages"));
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
    const visible = this.#found ? heads.filter(({ id }) => this.#found.has(id)) : heads;
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
    const title = element("span", { class: "title" });
    const snippet = element("span", { class: "snippet" });
    const name = button(title, () => this.#open(head.id, this.#found?.get(head.id)?.message), { class: "name" });
    name.append(snippet);
    const more = menu("⋯", "", [
      ["Rename", () => this.#rename(row, head)], ["Export as JSON", () => this.#export(head.id, "json")],
      ["Export as Markdown", () => this.#export(head.id, "md")], ["Delete", () => this.#remove(head)]]);
    const row = element("li", {}, name, more);
    const show = (now, isShown) => {
      head = now;
      name.title = head.title;
      title.replaceChildren(...marked(head.title, this.#words));
      snippet.replaceChildren(...marked(this.#found?.get(head.id)?.snippet ?? "", this.#words));
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
    if (form === "json") exportList(name, "conversations", [conversation]);
    else download(`${name}.md`, asMarkdown(conversation), "text/markdown");
  }

  async #import(field) {
    for (const conversation of await importList(field, "conversations", isConversation) ?? []) await this.#store.save({ ...conversation, id: newId() });
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
    const words = wordsOf(byId("search").value);
    const found = words.length ? await this.#store.search(words) : null;
    if (words.join(" ") !== wordsOf(byId("search").value).join(" ")) return; // another search has begun
    this.#words = words;
    this.#found = found && new Map(found.map((place) => [place.id, place]));
    this.#highlights.show(words);
    this.draw();
  }
}
