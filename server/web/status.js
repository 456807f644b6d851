// The status page: gauges and rates drawn from /metrics (Prometheus text format), once a second while it is shown.
const byId = (id) => document.getElementById(id);
const kHistory = 120; // seconds drawn

const series = [
  { key: "running", title: "Running sequences", unit: "" },
  { key: "waiting", title: "Waiting sequences", unit: "" },
  { key: "kv", title: "KV blocks in use", unit: "%" },
  { key: "hits", title: "Prefix hit rate", unit: "%" },
  { key: "output", title: "Output tokens/s", unit: "" },
  { key: "prompt", title: "Prompt tokens/s", unit: "" },
  { key: "ttft", title: "Mean time to first token", unit: " ms" },
  { key: "itl", title: "Mean inter-token time", unit: " ms" },
];
const history = Object.fromEntries(series.map(({ key }) => [key, []]));
let before = null;

// {name: sum over label sets}; buckets are left out.
function parseMetrics(text) {
  const sums = {};
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)$/.exec(line);
    if (!match || match[1].endsWith("_bucket")) continue;
    sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[3]);
  }
  return sums;
}

function sample(now, then, seconds) {
  const value = (name) => now[`vllm:${name}`] ?? 0;
  const growth = (name) => value(name) - (then?.[`vllm:${name}`] ?? value(name));
  const ratio = (above, below) => (below > 0 ? above / below : 0);
  return {
    running: value("num_requests_running"),
    waiting: value("num_requests_waiting"),
    kv: 100 * ratio(now["quire:kv_blocks_used"] ?? 0, now["quire:kv_blocks"] ?? 0), // of all models' pools
    hits: 100 * ratio(value("prefix_cache_hits_total") || value("prefix_cache_hits"),
      value("prefix_cache_queries_total") || value("prefix_cache_queries")),
    output: growth("generation_tokens_total") / seconds,
    prompt: growth("prompt_tokens_total") / seconds,
    ttft: 1000 * ratio(growth("time_to_first_token_seconds_sum"), growth("time_to_first_token_seconds_count")),
    itl: 1000 * ratio(growth("inter_token_latency_seconds_sum"), growth("inter_token_latency_seconds_count")),
  };
}

function build() {
  byId("figures").replaceChildren(...series.slice(0, 4).map(({ key, title }) => {
    const box = document.createElement("div");
    box.className = "figure";
    box.innerHTML = `<b id="figure-${key}">0</b><span>${title}</span>`;
    return box;
  }));
  byId("plots").replaceChildren(...series.map(({ key, title }) => {
    const box = document.createElement("figure");
    box.innerHTML = `<svg viewBox="0 0 ${kHistory} 100" preserveAspectRatio="none" role="img" aria-label="${title}"><polyline id="line-${key}"/></svg>` +
      `<figcaption><span>${title}</span><span id="value-${key}"></span></figcaption>`;
    return box;
  }));
}

function draw(point) {
  for (const { key, unit } of series) {
    const values = history[key];
    values.push(point[key]);
    if (values.length > kHistory) values.shift();
    const top = Math.max(...values, 1e-9);
    const offset = kHistory - values.length;
    byId(`line-${key}`).setAttribute("points", values.map((v, i) => `${offset + i},${97 - 94 * (v / top)}`).join(" "));
    const shown = point[key].toFixed(point[key] < 10 && unit !== "" ? 1 : 0) + unit;
    byId(`value-${key}`).textContent = shown;
    const figure = byId(`figure-${key}`);
    if (figure) figure.textContent = shown;
  }
}

async function tick() {
  if (byId("view-status").hidden) return;
  try {
    const response = await fetch("/metrics");
    const now = parseMetrics(await response.text());
    const time = performance.now();
    draw(sample(now, before?.sums, before ? (time - before.time) / 1000 : 1));
    before = { sums: now, time };
    byId("status-note").textContent = "Drawn from /metrics, once a second.";
  } catch {
    byId("status-note").textContent = "No answer from /metrics.";
  }
}

export function startStatus() {
  build();
  setInterval(tick, 1000);
  byId("tab-status").addEventListener("click", tick);
}
