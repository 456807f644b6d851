// The files attached to the message that is being written: chosen, pasted or dropped; shown with their sizes and tokens.
import { button, byId, element, toast } from "./dom.js";
import { countTokens, drawnPicture, isPicture, readPicture, sizeText, thumbnail } from "./pictures.js";

const kLargestText = 512 * 1024; // bytes

async function readText(file) {
  if (file.size > kLargestText) throw new Error(`it is larger than ${kLargestText / 1024} KiB`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name: file.name, text };
  } catch { /* not UTF-8 */ }
  throw new Error("it is neither an image nor text in UTF-8");
}

export class Attachments {
  #files = [];
  #models;

  constructor(models) {
    this.#models = models;
    models.onchoice(() => {
      byId("picture-idea").hidden = !models.sees();
      this.#draw();
    });
    byId("picture-idea").addEventListener("click", async () => this.#take({ files: [await drawnPicture()] }));
    byId("files").addEventListener("change", (event) => this.#take(event.target));
    byId("prompt").addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      this.#take(event.clipboardData);
    });
    this.#takeDrops(byId("view-chat"));
  }

  get isEmpty() {
    return this.#files.length === 0;
  }

  // Says why the files cannot be sent to the chosen model; empty where they can.
  get problem() {
    if (!this.#files.some(({ image }) => image) || this.#models.sees() !== false) return "";
    const others = this.#models.seeing();
    return `${this.#models.chosen} cannot see images: remove them${others.length ? `, or choose ${others.join(" or ")}` : ", or serve a model that sees"}.`;
  }

  // The files, which are attached no longer.
  takeAll() {
    const files = this.#files;
    this.#files = [];
    this.#draw();
    return files;
  }

  #takeDrops(area) {
    let depth = 0; // elements that the pointer is in
    const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
    const mark = (change) => {
      depth = change === 0 ? 0 : Math.max(0, depth + change);
      area.classList.toggle("dropping", depth > 0);
    };
    area.addEventListener("dragenter", (event) => { if (hasFiles(event)) mark(1); });
    area.addEventListener("dragleave", (event) => { if (hasFiles(event)) mark(-1); });
    area.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
    area.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(0);
      this.#take(event.dataTransfer);
    });
  }

  async #take(source) {
    for (const file of [...source.files]) { // a paste's list is emptied once its event is over
      try {
        this.#files.push(isPicture(file) ? await readPicture(file) : await readText(file));
      } catch (error) {
        toast(`${file.name} was not attached: ${error.message}`);
      }
    }
    byId("files").value = "";
    this.#draw();
  }

  #draw() {
    byId("attached").replaceChildren(...this.#files.map((file) => element("span", { class: "chip" }, file.image && thumbnail(file), file.name,
      file.image && element("span", { class: "note" }, sizeText(file)),
      button("×", () => {
        this.#files = this.#files.filter((other) => other !== file);
        this.#draw();
      }, { class: "quiet", "aria-label": `Remove ${file.name}` }))));
    if (byId("attached-problem").textContent !== this.problem) byId("attached-problem").textContent = this.problem;
    this.#count();
  }

  // Draws again once another picture's tokens are known. A count that fails leaves them out: the request will say why.
  async #count() {
    const model = this.#models.chosen;
    const next = this.#files.find(({ image, countedBy }) => image && countedBy !== model);
    if (!next || !this.#models.sees()) return;
    try {
      await countTokens(next, model);
    } catch {
      Object.assign(next, { tokens: undefined, countedBy: model });
    }
    if (this.#files.includes(next)) this.#draw();
  }
}
