// Named sets of settings, kept in the browser: applied by hand, or with each choice of the model that they belong to.
//   {name, values: as settings.js has them, model: id, or empty}
import { byId, toast } from "./dom.js";
import { keep, recall } from "./local.js";
import { applyValues, currentValues } from "./settings.js";
import { exportList, importList } from "./transfer.js";

const kStored = "quire.presets";
const kLongest = 60; // characters of a name

const isPreset = (value) => typeof value?.name === "string" && value.name !== "" && value.name.length <= kLongest &&
  typeof value.values === "object" && value.values !== null && Object.values(value.values).every((each) => typeof each === "string");

export class Presets {
  #presets = recall(kStored, []).filter(isPreset);
  #model = ""; // chosen

  constructor(models) {
    models.onchoice((model) => this.#follow(model?.id ?? ""));
    byId("preset").addEventListener("change", () => this.#apply(byId("preset").value));
    byId("preset-form").addEventListener("submit", (event) => this.#save(event));
    byId("preset-delete").addEventListener("click", () => this.#remove());
    byId("preset-model").addEventListener("change", () => this.#bind());
    byId("preset-export").addEventListener("click", () => exportList("quire-presets", "presets", this.#presets));
    byId("preset-import").addEventListener("change", (event) => this.#import(event.target));
    this.#draw("");
  }

  // Another model was chosen: its preset comes with it. The first choice is the page's start, which keeps the settings.
  #follow(model) {
    const before = this.#model;
    if (model === before) return;
    this.#model = model;
    byId("preset-model-name").textContent = model || "the model";
    const own = this.#presets.find((preset) => preset.model === model);
    if (before && own) this.#apply(own.name);
    else this.#draw(byId("preset").value);
  }

  #apply(name) {
    const preset = this.#presets.find((each) => each.name === name);
    if (preset) applyValues(preset.values);
    this.#draw(name);
  }

  #save(event) {
    event.preventDefault();
    const name = byId("preset-name").value.trim();
    if (!name) return;
    const old = this.#presets.find((preset) => preset.name === name);
    this.#presets = [...this.#presets.filter((preset) => preset !== old), { name, values: currentValues(), model: old?.model ?? "" }];
    this.#keep(name);
    byId("preset-name").value = "";
    toast(`The settings are saved as "${name}"`);
  }

  #remove() {
    const before = this.#presets;
    const { value: name } = byId("preset");
    this.#presets = before.filter((preset) => preset.name !== name);
    this.#keep("");
    toast(`"${name}" was deleted`, { label: "Undo", run: () => { this.#presets = before; this.#keep(name); } });
  }

  // At most one preset belongs to a model.
  #bind() {
    const own = byId("preset-model").checked;
    const { value: name } = byId("preset");
    for (const preset of this.#presets) {
      if (preset.name === name) preset.model = own ? this.#model : "";
      else if (own && preset.model === this.#model) preset.model = "";
    }
    this.#keep(name);
  }

  async #import(field) {
    const presets = await importList(field, "presets", isPreset) ?? [];
    const names = presets.map(({ name }) => name);
    this.#presets = [...this.#presets.filter(({ name }) => !names.includes(name)), ...presets.map(({ name, values, model }) => ({ name, values, model: model ?? "" }))];
    this.#keep("");
  }

  #keep(shown) {
    keep(kStored, this.#presets);
    this.#draw(shown);
  }

  #draw(shown) {
    this.#presets.sort((a, b) => a.name.localeCompare(b.name));
    byId("preset").replaceChildren(new Option("none", ""), ...this.#presets.map(({ name, model }) => new Option(model ? `${name} (${model})` : name, name)));
    const chosen = this.#presets.find(({ name }) => name === shown);
    byId("preset").value = chosen?.name ?? "";
    byId("preset-delete").disabled = !chosen;
    byId("preset-model").disabled = !chosen || !this.#model;
    byId("preset-model").checked = Boolean(chosen && this.#model && chosen.model === this.#model);
    byId("preset-export").disabled = this.#presets.length === 0;
  }
}
