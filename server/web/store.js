// The user's data in the browser, kept nowhere else: small values, named lists, and conversations in IndexedDB. If the browser
// refuses storage (private windows), they last as long as the page. Lists travel between browsers as JSON files: {quire: 1, [key]: items}.
import { download, toast } from "./dom.js";
import { findIn } from "./found.js";

const held = new Map();

function storage(isOfTab) {
  return isOfTab ? sessionStorage : localStorage;
}

// The value kept under that key, or `fallback`. isOfTab: only as long as the tab is open, for secrets.
export function recall(key, fallback = null, isOfTab = false) {
  try {
    return JSON.parse(storage(isOfTab).getItem(key)) ?? fallback;
  } catch {
    return held.get(key) ?? fallback;
  }
}

export function keep(key, value, isOfTab = false) {
  held.set(key, value);
  try {
    storage(isOfTab).setItem(key, JSON.stringify(value));
  } catch { /* held above */ }
}

export function exportList(name, key, items) {
  download(`${name}.json`, JSON.stringify({ quire: 1, [key]: items }, null, 1), "application/json");
}

// The items of the file that the field holds, or nothing, after a note that says why.
export async function importList(field, key, isItem) {
  const [file] = field.files;
  if (!file) return undefined;
  try {
    const items = JSON.parse(await file.text())[key];
    if (!Array.isArray(items) || !items.every(isItem)) throw new Error(`it holds no ${key} of Quire`);
    toast(`${items.length} imported`);
    return items;
  } catch (error) {
    toast(`${file.name} cannot be imported: ${error.message}`);
    return undefined;
  } finally {
    field.value = "";
  }
}

// Items {name, ...} in the order of their names, kept under "quire.KIND" and exported as "quire-KIND.json".
export class NamedList {
  static longestName = 60; // characters
  #kind;
  #isItem; // (value): a usable item, its name aside
  #pick; // (item): its own members only
  #items;

  constructor(kind, isItem, pick) {
    this.#kind = kind;
    this.#isItem = (value) => typeof value?.name === "string" && value.name !== "" && value.name.length <= NamedList.longestName && isItem(value);
    this.#pick = pick;
    this.#items = recall(`quire.${kind}`, []).filter(this.#isItem);
    this.#sort();
  }

  get all() { return this.#items; }
  find(name) { return this.#items.find((item) => item.name === name); }

  // Adds items, in place of those of the same name.
  put(made) {
    const names = made.map(({ name }) => name);
    this.#set([...this.#items.filter(({ name }) => !names.includes(name)), ...made.map(this.#pick)]);
  }

  // The result puts the list back as it was.
  remove(name) {
    const before = this.#items;
    this.#set(before.filter((item) => item.name !== name));
    return () => this.#set(before);
  }

  export() { exportList(`quire-${this.#kind}`, this.#kind, this.#items); }
  async import(field) { this.put(await importList(field, this.#kind, this.#isItem) ?? []); }

  #set(items) {
    this.#items = items;
    this.#sort();
    keep(`quire.${this.#kind}`, this.#items);
  }

  #sort() {
    this.#items.sort((a, b) => a.name.localeCompare(b.name));
  }
}

const kDatabase = "quire";
const kHeads = "heads"; // {id, title, updated}: what the list shows
const kBodies = "conversations";

const promised = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function open() {
  const request = indexedDB.open(kDatabase, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(kHeads, { keyPath: "id" });
    request.result.createObjectStore(kBodies, { keyPath: "id" });
  };
  return promised(request);
}

class MemoryStore {
  #bodies = new Map();
  persistent = false;
  async heads() { return [...this.#bodies.values()].map(headOf); }
  async load(id) { return structuredClone(this.#bodies.get(id)); }
  async save(conversation) { this.#bodies.set(conversation.id, structuredClone(conversation)); }
  async remove(id) { this.#bodies.delete(id); }
  async search(words) { return [...this.#bodies.values()].flatMap((body) => findIn(body, words) ?? []); }
}

class DatabaseStore {
  #database;
  persistent = true;
  constructor(database) { this.#database = database; }
  #stores(mode) {
    const transaction = this.#database.transaction([kHeads, kBodies], mode);
    return [transaction.objectStore(kHeads), transaction.objectStore(kBodies)];
  }
  async heads() { return promised(this.#stores("readonly")[0].getAll()); }
  async load(id) { return promised(this.#stores("readonly")[1].get(id)); }
  async save(conversation) {
    const [heads, bodies] = this.#stores("readwrite");
    heads.put(headOf(conversation));
    await promised(bodies.put(conversation));
  }
  async remove(id) {
    const [heads, bodies] = this.#stores("readwrite");
    heads.delete(id);
    await promised(bodies.delete(id));
  }
  // One conversation at a time in memory.
  search(words) {
    const found = [];
    const request = this.#stores("readonly")[1].openCursor();
    return new Promise((resolve, reject) => {
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) return resolve(found);
        const place = findIn(cursor.value, words);
        if (place) found.push(place);
        cursor.continue();
        return undefined;
      };
    });
  }
}

const headOf = ({ id, title, updated }) => ({ id, title, updated });

export async function openStore() {
  try {
    return new DatabaseStore(await open());
  } catch {
    return new MemoryStore();
  }
}
