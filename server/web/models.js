// The models that can be chosen, with the state of each.
import { call } from "./api.js";
import { byId, element } from "./dom.js";

const kWatchAfter = 400; // ms without an answer's begin before the model's state is looked at
const kWatchEvery = 1000;
const kChosen = "quire.model";
const kToy = 50e6; // parameters below which a model shows that the server works, and no more

const seesImages = (model) => model.modalities?.input.includes("image");

function label(model) {
  const notes = [seesImages(model) && "sees images", model.state !== "ready" && model.state].filter(Boolean);
  return notes.length ? `${model.id} (${notes.join(", ")})` : model.id;
}

export class Models {
  #models = [];
  #listeners = [];

  constructor() {
    byId("model").addEventListener("change", () => {
      try {
        localStorage.setItem(kChosen, this.chosen);
      } catch { /* storage is refused */ }
      this.#showChosen();
    });
    byId("api_key").addEventListener("change", () => this.refresh());
  }

  get chosen() {
    return byId("model").value;
  }

  get names() {
    return this.#models.map(({ id }) => id);
  }

  // Calls `listener` with the chosen model, as /v1/models lists it, whenever that may have changed.
  onchoice(listener) {
    this.#listeners.push(listener);
  }

  find(id) {
    return this.#models.find((model) => model.id === id);
  }

  // Whether the chosen model reads images; undefined until the server has opened its files.
  sees() {
    const model = this.find(this.chosen);
    return model?.modalities && seesImages(model);
  }

  // Names of the models that read images.
  seeing() {
    return this.#models.filter(seesImages).map(({ id }) => id);
  }

  async refresh() {
    const { data } = await (await call("/v1/models")).json();
    let wanted = this.chosen;
    try {
      wanted ||= localStorage.getItem(kChosen) ?? "";
    } catch { /* as above */ }
    this.#models = data;
    byId("model").replaceChildren(...data.map((model) => new Option(label(model), model.id)));
    if (this.find(wanted)) byId("model").value = wanted;
    this.#showChosen();
  }

  #showChosen() {
    const { id, meta } = this.find(this.chosen) ?? {};
    byId("toy").hidden = !(meta?.n_params < kToy);
    byId("toy").replaceChildren(`${id} is a toy of ${(meta?.n_params / 1e6).toFixed(1)} million parameters. `,
      element("code", {}, "quire recommend"), " names real models for this machine.");
    for (const listener of this.#listeners) listener(this.find(this.chosen));
  }

  // While a request waits for its model, says so.
  watch(id = this.chosen) {
    const began = performance.now();
    let timer = 0;
    const look = async () => {
      await this.refresh().catch(() => {});
      const model = this.find(id);
      if (!timer) return;
      if (model && model.state !== "ready") {
        byId("model-wait").textContent = `${model.id} is ${model.state}: ${Math.round((performance.now() - began) / 1000)} s`;
      } else {
        byId("model-wait").textContent = "";
      }
      timer = setTimeout(look, kWatchEvery);
    };
    timer = setTimeout(look, kWatchAfter);
    return {
      end: () => {
        const looked = performance.now() - began > kWatchAfter;
        clearTimeout(timer);
        timer = 0;
        byId("model-wait").textContent = "";
        if (looked) this.refresh().catch(() => {});
      },
    };
  }
}
