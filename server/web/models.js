// The models that can be chosen, with the state of each.
import { call } from "./api.js";
import { byId } from "./dom.js";
import { showDefaults } from "./settings.js";

const kWatchAfter = 400; // ms without an answer's begin before the model's state is looked at
const kWatchEvery = 1000;
const kChosen = "quire.model";

export class Models {
  #models = [];

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

  async refresh() {
    const { data } = await (await call("/v1/models")).json();
    let wanted = this.chosen;
    try {
      wanted ||= localStorage.getItem(kChosen) ?? "";
    } catch { /* as above */ }
    this.#models = data;
    byId("model").replaceChildren(...data.map(({ id, state }) => new Option(state === "ready" ? id : `${id} (${state})`, id)));
    if (data.some(({ id }) => id === wanted)) byId("model").value = wanted;
    this.#showChosen();
  }

  #showChosen() {
    showDefaults(this.#models.find(({ id }) => id === this.chosen));
  }

  // While a request waits for its model, says so.
  watch() {
    const began = performance.now();
    let timer = 0;
    const look = async () => {
      await this.refresh().catch(() => {});
      const model = this.#models.find(({ id }) => id === this.chosen);
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
