// The management of models, for an admin: load, sleep, wake, unload, download with progress, delete.
import { call, events } from "./api.js";
import { shortNumber } from "./charts.js";
import { button, byId, element, sureButton } from "./dom.js";

const kEvery = 2000; // ms between two looks while it is open
const kActions = {
  ready: ["sleep", "unload"], sleeping: ["wake", "unload"], failed: ["load", "unload"], unloaded: ["load"], loading: ["unload"], waking: ["unload"], draining: [],
};
const kLabels = { load: "Load", unload: "Unload", sleep: "Sleep", wake: "Wake" };

const mebibytes = (bytes) => (bytes ? `${shortNumber(bytes / 2 ** 20)} MiB` : "–");

export class Manager {
  #box;
  #timer = 0;
  #pulls = new Set(); // models whose download runs
  #problem = element("p", { class: "problem", role: "alert" });
  #models = element("tbody");
  #cached = element("ul", { class: "downloads" });
  #hub = element("section", { "aria-label": "Downloads" });

  // box: the <details> that it fills; it works while that is open.
  constructor(box) {
    this.#box = box;
    const head = ["Model", "State", "Memory", "File", "Actions"].map((title) => element("th", { scope: "col" }, title));
    box.append(this.#problem,
      element("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "Models to manage" },
        element("table", { class: "status-table" }, element("thead", {}, element("tr", {}, ...head)), this.#models)),
      this.#loadForm(), this.#hub);
    this.#hub.append(this.#pullForm(), element("ul", { id: "pulls" }), element("h3", {}, "Downloaded"), this.#cached);
    byId("api_key").addEventListener("change", () => this.look());
  }

  async look() {
    clearTimeout(this.#timer);
    if (!this.#box.open || !this.#box.checkVisibility()) return;
    try {
      this.#drawModels((await (await call("/admin/models")).json()).data);
      await this.#lookAtCache();
      this.#say("");
    } catch (error) {
      this.#say(error);
      if (error.status === 401 || error.status === 403) return; // until the key changes
    }
    this.#timer = setTimeout(() => this.look(), kEvery);
  }

  // The page asks once whether the operator allows downloads: if not, there is no cache to manage.
  async #lookAtCache() {
    if (this.#hub.dataset.closed) return;
    try {
      this.#drawCached(await (await call("/admin/models/cache")).json());
    } catch (error) {
      if (error.status !== 403) throw error;
      this.#hub.dataset.closed = "1";
      this.#hub.replaceChildren(element("p", { class: "note" }, `${error.message}.`));
    }
  }

  #say(error) {
    const text = !error ? "" : `${error.message}. ${error.status === 401 || error.status === 403 ? "Enter an admin's API key in the chat's settings." : error.remedy ?? ""}`;
    if (this.#problem.textContent !== text) this.#problem.textContent = text;
  }

  // Asks for an operation, which is answered when it begins.
  async #order(operation, body) {
    try {
      await call(`/admin/models/${operation}`, { body });
      this.#say("");
    } catch (error) {
      this.#say(error);
      return;
    }
    this.look();
  }

  // Rows keep their place and their buttons, so that a look takes no focus from them.
  #drawModels(models) {
    const rows = models.map((model) => {
      const known = [...this.#models.rows].find(({ dataset }) => dataset.name === model.name && dataset.state === model.state);
      const row = known ?? element("tr", { "data-name": model.name, "data-state": model.state });
      const file = model.path.split("/").at(-1);
      const cells = [model.name, model.failure ? `${model.state}: ${model.failure}` : model.state, mebibytes(model.memory_bytes), file];
      if (known) cells.forEach((text, i) => { if (known.cells[i].textContent !== text) known.cells[i].textContent = text; });
      else row.append(...cells.map((text) => element("td", {}, text)), element("td", {}, ...this.#actions(model)));
      return row;
    });
    for (const row of [...this.#models.rows]) if (!rows.includes(row)) row.remove();
    rows.forEach((row, i) => { if (this.#models.rows[i] !== row) this.#models.insertBefore(row, this.#models.rows[i] ?? null); });
  }

  #actions({ name, state }) {
    return kActions[state].map((operation) => {
      const run = () => this.#order(operation, { name, wait: false });
      const attributes = { class: "small", "aria-label": `${kLabels[operation]} ${name}` };
      return operation === "unload" ? sureButton(kLabels[operation], run, attributes) : button(kLabels[operation], run, attributes);
    });
  }

  #loadForm() {
    const name = element("input", { type: "text", required: true, "aria-label": "Name of the model to load", placeholder: "Name" });
    const path = element("input", { type: "text", required: true, class: "grow", "aria-label": "File of the model to load", placeholder: "/models/file.gguf, or OWNER/NAME:QUANT of a download" });
    const load = (event) => {
      event.preventDefault();
      const source = path.value.startsWith("/") ? { path: path.value } : { hf: path.value };
      this.#order("load", { name: name.value, ...source, wait: false });
    };
    return element("form", { class: "row", onsubmit: load }, name, path, element("button", { type: "submit" }, "Load a model"));
  }

  #pullForm() {
    const model = element("input", { type: "text", required: true, class: "grow", "aria-label": "Model to download", placeholder: "OWNER/NAME:QUANT" });
    const load = element("input", { type: "checkbox", checked: true });
    const pull = (event) => {
      event.preventDefault();
      this.#pull(model.value.trim(), load.checked);
    };
    return element("form", { class: "row", onsubmit: pull }, model, element("label", { class: "check" }, load, "serve it"), element("button", { type: "submit" }, "Download"));
  }

  // Downloads with progress; a stop keeps what has come for the next time.
  async #pull(model, load) {
    if (!model || this.#pulls.has(model)) return;
    const controller = new AbortController();
    const bar = element("progress", { "aria-label": `Download of ${model}` });
    const note = element("span", { class: "note" }, "begins");
    const row = element("li", { class: "row" }, element("b", {}, model), bar, note, button("Stop", () => controller.abort(), { "aria-label": `Stop the download of ${model}` }));
    this.#pulls.add(model);
    byId("pulls").append(row);
    try {
      const response = await call("/admin/models/pull", { body: { model, stream: true, load }, signal: controller.signal });
      for await (const { name, data } of events(response, (event) => event.name === "done")) {
        if (name !== "progress") continue;
        if (data.total) Object.assign(bar, { max: data.total, value: data.completed });
        note.textContent = `${data.status}: ${mebibytes(data.completed)} of ${mebibytes(data.total)}`;
      }
      note.textContent = "complete";
      Object.assign(bar, { max: 1, value: 1 });
      this.#say("");
    } catch (error) {
      note.textContent = error.name === "AbortError" ? "stopped" : `failed: ${error.message}`;
    }
    this.#pulls.delete(model);
    row.querySelector("button").replaceWith(button("✕", () => row.remove(), { class: "quiet", "aria-label": `Forget the download of ${model}` }));
    this.look();
  }

  #drawCached({ folder, models }) {
    const key = JSON.stringify(models);
    if (this.#cached.dataset.shown === key) return;
    this.#cached.dataset.shown = key;
    this.#cached.replaceChildren(...models.map(({ model, bytes }) => element("li", { class: "row" }, element("b", {}, model), element("span", { class: "note" }, mebibytes(bytes)),
      button("Load", () => this.#order("load", { name: model.split("/").at(-1).replace(/[:@]/g, "-"), hf: model, wait: false }), { class: "small", "aria-label": `Load ${model}` }),
      sureButton("Delete", () => this.#order("remove", { model }), { class: "small", "aria-label": `Delete ${model}` }))));
    if (!models.length) this.#cached.append(element("li", { class: "note" }, `None in ${folder}.`));
  }
}
