// Conversations in the browser's IndexedDB, nowhere else. Where a browser refuses it (private windows), they last as long
// as the page.
import { findIn } from "./found.js";

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
