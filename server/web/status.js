// The status view: each model's load, pool, steps and latencies, drawn from /status, whose history the server keeps.
import { call } from "./api.js";
import { byId, element, loadScript } from "./dom.js";
import { secondsAgo, shortNumber, TimeChart } from "./charts.js";
import { onTheme } from "./theme.js";

const kEvery = 1000; // ms between two looks
const kCells = 400;  // of the pool's map
const kRanges = [[60, "1 minute"], [300, "5 minutes"], [900, "15 minutes"]];
const kMostSequences = 50; // in the table

const kFigures = [
  ["running", "Running sequences"], ["waiting", "Waiting sequences"], ["pool", "KV blocks in use"], ["output", "Output tokens/s"],
  ["prompt", "Prompt tokens/s"], ["first", "First token, median"], ["between", "Between tokens, median"], ["memory", "Resident memory"],
];

const kEncoderFigures = [
  ["encoded", "Images encoded"], ["found", "Images found in memory"], ["encoder", "Encoder's time"], ["each", "Time of an image, mean"],
];

const figureBox = (key, title) => element("div", { class: "figure" }, element("b", { id: `figure-${key}` }, "–"), element("span", {}, title));

function setFigure(key, text) {
  byId(`figure-${key}`).textContent = text;
}

export class Status {
  #timer = 0;
  #charts = null;
  #shown = false;
  #manager = null; // once an admin opened it

  async show(isShown) {
    this.#shown = isShown;
    clearTimeout(this.#timer);
    if (!isShown) return;
    if (!this.#charts) {
      await loadScript("/ui/lib/chart.js");
      this.#build();
    }
    if (!this.#shown) return;
    this.#look();
    this.#manager?.look();
  }

  #build() {
    byId("status").append(
      element("div", { class: "row" },
        element("label", {}, "Model ", element("select", { id: "status-model", onchange: () => this.#look() })),
        element("label", {}, "Range ", element("select", { id: "status-range", onchange: () => this.#look() },
          ...kRanges.map(([seconds, name]) => new Option(name, seconds, seconds === 300, seconds === 300)))),
        element("span", { id: "status-note", class: "note", role: "status" })),
      element("div", { class: "figures" }, ...kFigures.map(([key, title]) => figureBox(key, title))),
      element("section", { "aria-label": "KV pool" }, element("h2", {}, "KV pool"), element("div", { id: "pool-map", class: "map", role: "img" }),
        element("div", { id: "pool-legend", class: "legend" }), element("div", { id: "tiers", class: "legend" })),
      element("section", { id: "encoder", "aria-label": "Image encoder", hidden: true }, element("h2", {}, "Image encoder"),
        element("div", { class: "figures" }, ...kEncoderFigures.map(([key, title]) => figureBox(key, title)))),
      element("div", { id: "plots", class: "plots" }),
      element("section", {}, element("h2", {}, "Sequences"), element("div", { id: "keys" }), element("div", { id: "sequences" })),
      element("section", {}, element("h2", {}, "Models"), element("div", { id: "status-models" }),
        element("details", { id: "manager", ontoggle: (event) => this.#manage(event.target) }, element("summary", {}, "Manage models (for an admin)"))));
    const percentiles = [{ label: "p50", colour: 1 }, { label: "p90", colour: 2 }, { label: "p99", colour: 4 }];
    this.#charts = {
      tokens: new TimeChart("Tokens per second", [{ label: "output", colour: 1 }, { label: "prompt", colour: 2 }]),
      sequences: new TimeChart("Sequences", [{ label: "running", colour: 1 }, { label: "waiting", colour: 2 }]),
      blocks: new TimeChart("KV blocks", [{ label: "used", colour: 1, fill: true }, { label: "cached", colour: 6, fill: true }], { stacked: true }),
      first: new TimeChart("Time to first token", percentiles, { unit: " ms" }),
      between: new TimeChart("Time between tokens", percentiles, { unit: " ms" }),
      shares: new TimeChart("Busy, and prompt tokens found in the cache", [{ label: "busy", colour: 1 }, { label: "cached", colour: 3 }], { unit: " %" }),
      steps: null, // its phases come with the first answer
    };
    for (const chart of Object.values(this.#charts)) if (chart) byId("plots").append(chart.box);
    onTheme(() => {
      for (const chart of Object.values(this.#charts)) chart?.recolour();
    });
  }

  async #manage(box) {
    if (this.#manager || !box.open) return this.#manager?.look();
    const { Manager } = await import("./manager.js");
    this.#manager ??= new Manager(box);
    return this.#manager.look();
  }

  async #look() {
    clearTimeout(this.#timer);
    try {
      const status = await (await call("/status")).json();
      if (!this.#shown) return;
      this.#draw(status);
      byId("status-note").textContent = `Quire ${status.version}`;
    } catch (error) {
      byId("status-note").textContent = `${error.message}. ${error.remedy ?? ""}`;
    }
    if (this.#shown) this.#timer = setTimeout(() => this.#look(), kEvery);
  }

  #draw(status) {
    const chosen = byId("status-model");
    const names = status.models.map(({ name }) => name);
    if ([...chosen.options].map(({ value }) => value).join() !== names.join()) {
      const before = chosen.value;
      chosen.replaceChildren(...names.map((name) => new Option(name, name)));
      if (names.includes(before)) chosen.value = before;
    }
    drawModels(status);
    const model = status.models.find(({ name }) => name === chosen.value);
    setFigure("memory", `${shortNumber(status.resident_bytes / 2 ** 20)} MiB`);
    drawEncoder(model);
    if (!model?.pool) return;
    drawFigures(model);
    drawPool(model);
    drawTiers(model);
    drawSequences(model);
    this.#drawHistory(status, model);
    this.#drawSteps(status, model);
  }

  #drawHistory({ time: now }, { history }) {
    const range = { min: -Number(byId("status-range").value), max: 0 };
    const points = (values) => history.time.map((time, i) => ({ x: time - now, y: values[i] })).filter(({ x }) => x >= range.min);
    const draw = (chart, ...series) => this.#charts[chart].draw(series.map(points), range);
    const { first_token_ms: first, between_tokens_ms: between } = history;
    draw("tokens", history.output_tokens_s, history.prompt_tokens_s);
    draw("sequences", history.running, history.waiting);
    draw("blocks", history.blocks_used, history.blocks_cached);
    draw("first", first.p50, first.p90, first.p99);
    draw("between", between.p50, between.p90, between.p99);
    draw("shares", history.busy_percent, history.hit_percent);
  }

  #drawSteps({ phases }, { steps }) {
    if (!this.#charts.steps) {
      this.#charts.steps = new TimeChart(`The last steps, by phase`, phases.map((label, i) => ({ label, colour: i + 1, fill: true })), {
        unit: " ms", bars: true, x: (value) => (value === 0 ? "last" : String(value)),
        note: ({ step }) => `${step.prompt_tokens} prompt and ${step.decode_tokens} decode tokens of ${step.sequences} sequences, ${secondsAgo(-step.age_s)}`,
      });
      byId("plots").append(this.#charts.steps.box);
    }
    const last = steps.slice(-120);
    this.#charts.steps.draw(phases.map((_, phase) => last.map((step, i) => ({ x: i + 1 - last.length, y: step.phases_ms[phase], step }))), {});
  }
}

function lastOf(values) {
  return values.findLast((value) => value !== null);
}

function drawFigures({ running, waiting, pool, history }) {
  const milliseconds = (value) => (value === undefined ? "–" : `${shortNumber(value)} ms`);
  setFigure("running", running);
  setFigure("waiting", waiting);
  setFigure("pool", `${(100 * pool.used / Math.max(1, pool.blocks)).toFixed(0)} %`);
  setFigure("output", shortNumber(history.output_tokens_s.at(-1) ?? 0));
  setFigure("prompt", shortNumber(history.prompt_tokens_s.at(-1) ?? 0));
  setFigure("first", milliseconds(lastOf(history.first_token_ms.p50)));
  setFigure("between", milliseconds(lastOf(history.between_tokens_ms.p50)));
}

// Cells in proportion to the blocks: each sequence's own, those that several share, those kept for their content, the rest.
function drawPool({ pool, sequences: listedSequences }) {
  // The list of sequences is up to a quarter of a second older than the counts.
  const sequences = pool.used ? listedSequences : [];
  const shared = Math.min(pool.shared, pool.used);
  const parts = sequences.filter(({ blocks }) => blocks > 0)
    .map(({ id, blocks, shared_blocks: shared }, i) => ({ kind: i % 2 ? "used odd" : "used", count: blocks - shared, title: `${id}: ${blocks} blocks` }));
  parts.push({ kind: "shared", count: shared, title: "shared by several sequences" });
  const listed = parts.reduce((sum, { count }) => sum + count, 0);
  parts.push({ kind: "used", count: Math.max(0, pool.used - listed), title: "in use" });
  parts.push({ kind: "cached", count: pool.cached, title: "cached" });
  const perCell = Math.max(1, pool.blocks / kCells);
  const cells = [];
  let filled = 0;
  for (const { kind, count, title } of parts) {
    filled += count;
    const wanted = Math.max(Math.round(filled / perCell), cells.length + Math.min(1, count)); // what is there is seen
    while (cells.length < wanted) cells.push(element("i", { class: kind, title }));
  }
  while (cells.length < Math.min(kCells, pool.blocks)) cells.push(element("i", { class: "free", title: "free" }));
  byId("pool-map").replaceChildren(...cells);
  byId("pool-map").setAttribute("aria-label", `${pool.used} of ${pool.blocks} blocks in use, ${shared} shared, ${pool.cached} cached`);
  const entry = (kind, text) => element("span", {}, element("i", { class: kind }), text);
  byId("pool-legend").replaceChildren(
    entry("used", `used ${pool.used} (peak ${pool.used_peak})`), entry("used odd", "used, of every second sequence"), entry("shared", `shared ${shared}`), entry("cached", `cached ${pool.cached}`),
    entry("free", `free ${pool.blocks - pool.used - pool.cached}`),
    element("span", {}, `${pool.blocks} blocks of ${pool.block_size} tokens, ${pool.dtype}; ${pool.restored} restored from lower tiers`));
}

const kTierNames = { host: "Host memory", disk: "Disk" };

// How full the tiers below the pool are.
function drawTiers({ tiers }) {
  byId("tiers").replaceChildren(...tiers.map(({ name, bytes, used }) => {
    const text = `${kTierNames[name]}: ${shortNumber(used / 2 ** 20)} of ${shortNumber(bytes / 2 ** 20)} MiB`;
    return element("label", {}, `${text} `, element("progress", { max: bytes, value: used, "aria-label": text }));
  }));
}

function table(titles, rows) {
  const made = element("table", { class: "status-table" }, element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, title)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell)))))));
  return element("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": titles[0] }, made);
}

function drawSequences({ sequences, keys }) {
  byId("keys").replaceChildren(...(keys?.some(({ key }) => key)
    ? [table(["Key", "Running", "Waiting"], keys.map(({ key, running, waiting }) => [key, running, waiting]))] : []));
  const rows = sequences.slice(0, kMostSequences)
    .map(({ id, choice, state, computed, tokens, prompt_tokens: prompt, blocks, shared_blocks: shared }) =>
      [choice ? `${id} (${choice})` : id, state, prompt, Math.max(0, tokens - prompt), `${Math.round(100 * computed / Math.max(1, tokens))} %`, blocks, shared]);
  byId("sequences").replaceChildren(rows.length
    ? table(["Request", "State", "Prompt", "Generated", "Computed", "Blocks", "Shared"], rows) : element("p", { class: "note" }, "None."));
  if (sequences.length > kMostSequences) byId("sequences").append(element("p", { class: "note" }, `${sequences.length - kMostSequences} more`));
}

// The section is hidden for models of text only.
function drawEncoder(model) {
  const images = model?.images;
  byId("encoder").hidden = !images;
  if (!images) return;
  setFigure("encoded", images.encoded);
  setFigure("found", images.found);
  setFigure("encoder", `${shortNumber(images.encoder_seconds)} s`);
  setFigure("each", images.encoded ? `${shortNumber(1000 * images.encoder_seconds / images.encoded)} ms` : "–");
}

const imagesOf = ({ images }) => (images ? `${images.encoded} encoded, ${images.found} found` : "–");

function drawModels({ models }) {
  const see = models.some(({ images }) => images);
  byId("status-models").replaceChildren(table(["Model", "State", "Running", "Waiting", "KV in use", "Preemptions", ...(see ? ["Images"] : [])], models.map((model) =>
    [model.name, model.state, model.running ?? "–", model.waiting ?? "–", model.pool ? `${model.pool.used} of ${model.pool.blocks}` : "–", model.preemptions ?? "–",
      ...(see ? [imagesOf(model)] : [])])));
}
