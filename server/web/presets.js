// Named sets of settings, kept in the browser: applied by hand, or with each choice of the model that they belong to.
//   {name, values: as settings.js has them, model: id, or empty}
import { byId, toast } from "./dom.js";
import { applyValues, currentValues } from "./settings.js";
import { NamedList } from "./store.js";

const hasValues = ({ values }) => typeof values === "object" && values !== null && Object.values(values).every((each) => typeof each === "string");

export class Presets {
  #presets = new NamedList("presets", hasValues, ({ name, values, model }) => ({ name, values, model: model ?? "" }));
  #model = ""; // chosen

  constructor(models) {
    models.onchoice((model) => this.#follow(model?.id ?? ""));
    byId("preset").addEventListener("change", () => this.#apply(byId("preset").value));
    byId("preset-form").addEventListener("submit", (event) => this.#save(event));
    byId("preset-delete").addEventListener("click", () => this.#remove());
    byId("preset-model").addEventListener("change", () => this.#bind());
    byId("preset-export").addEventListener("click", () => this.#presets.export());
    byId("preset-import").addEventListener("change", (event) => this.#import(event.target));
    this.#draw("");
  }

  // Another model was chosen: its preset comes with it. The first choice is the page's start, which keeps the settings.
  #follow(model) {
    const before = this.#model;
    if (model === before) return;
    this.#model = model;
    byId("preset-model-name").textContent = model || "the model";
    const own = this.#presets.all.find((preset) => preset.model === model);
    if (before && own) this.#apply(own.name);
    else this.#draw(byId("preset").value);
  }

  #apply(name) {
    const preset = this.#presets.find(name);
    if (preset) applyValues(preset.values);
    this.#draw(name);
  }

  #save(event) {
    event.preventDefault();
    const name = byId("preset-name").value.trim();
    if (!name) return;
    this.#presets.put([{ name, values: currentValues(), model: this.#presets.find(name)?.model }]);
    this.#draw(name);
    byId("preset-name").value = "";
    toast(`The settings are saved as "${name}"`);
  }

  #remove() {
    const { value: name } = byId("preset");
    const undo = this.#presets.remove(name);
    this.#draw("");
    toast(`"${name}" was deleted`, { label: "Undo", run: () => { undo(); this.#draw(name); } });
  }

  // At most one preset belongs to a model.
  #bind() {
    const own = byId("preset-model").checked;
    const { value: name } = byId("preset");
    const changed = this.#presets.all.filter((preset) => preset.name === name || (own && preset.model === this.#model));
    this.#presets.put(changed.map((preset) => ({ ...preset, model: own && preset.name === name ? this.#model : "" })));
    this.#draw(name);
  }

  async #import(field) {
    await this.#presets.import(field);
    this.#draw("");
  }

  #draw(shown) {
    byId("preset").replaceChildren(new Option("none", ""), ...this.#presets.all.map(({ name, model }) => new Option(model ? `${name} (${model})` : name, name)));
    const chosen = this.#presets.find(shown);
    byId("preset").value = chosen?.name ?? "";
    byId("preset-delete").disabled = !chosen;
    byId("preset-model").disabled = !chosen || !this.#model;
    byId("preset-model").checked = Boolean(chosen && this.#model && chosen.model === this.#model);
    byId("preset-export").disabled = this.#presets.all.length === 0;
  }
}
