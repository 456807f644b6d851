// Charts over Chart.js in the page's colours. Each keeps its canvas and is given new data.
import { element } from "./dom.js";

// The theme's colour of that name, as a canvas takes it.
function colour(name) {
  const probe = element("i", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const sheer = (shade) => shade.replace(/^rgb\((.*)\)$/, "rgba($1, 0.6)");

// A figure with a caption and an empty chart. datasets: [{label, colour: 1 to 6, stack?}].
export class TimeChart {
  box;
  #chart;
  #datasets;

  // x: what the axis counts, as text of a number; unit: of the values; bars: stacked bars instead of lines.
  constructor(title, datasets, { unit = "", bars = false, stacked = false, x = secondsAgo, note } = {}) {
    const canvas = element("canvas", { role: "img", "aria-label": title });
    this.box = element("figure", { class: "plot" }, element("figcaption", {}, title), element("div", { class: "canvas" }, canvas));
    this.#datasets = datasets;
    this.#chart = new window.Chart(canvas, {
      type: bars ? "bar" : "line",
      data: { datasets: datasets.map(({ label }) => ({ label, data: [] })) },
      options: this.#options({ unit, stacked: stacked || bars, x, note, bars }),
    });
    this.recolour();
  }

  #options({ unit, stacked, x, note, bars }) {
    return {
      animation: false, maintainAspectRatio: false, parsing: false, normalized: true, spanGaps: false,
      interaction: { mode: "index", intersect: false },
      elements: { point: { radius: 0, hitRadius: 8 }, line: { borderWidth: 1.5, tension: 0 } },
      scales: {
        x: { type: "linear", stacked, offset: bars, ticks: { maxTicksLimit: 6, callback: x, maxRotation: 0 }, title: { display: false } },
        y: { stacked, beginAtZero: true, ticks: { maxTicksLimit: 5, callback: (value) => `${shortNumber(value)}${unit}` } },
      },
      plugins: {
        legend: { position: "bottom", labels: { boxWidth: 10, boxHeight: 10 } },
        tooltip: {
          callbacks: {
            title: ([item]) => (note ? note(item.raw) : x(item.raw.x)),
            label: (item) => `${item.dataset.label}: ${shortNumber(item.raw.y)}${unit}`,
          },
        },
      },
    };
  }

  // series: a list of points {x, y, ...} per dataset.
  draw(series, range) {
    series.forEach((points, index) => { this.#chart.data.datasets[index].data = points; });
    Object.assign(this.#chart.options.scales.x, range);
    this.#chart.update("none");
  }

  recolour() {
    this.#datasets.forEach(({ colour: number, fill }, index) => {
      const line = colour(`--series-${number}`);
      Object.assign(this.#chart.data.datasets[index], { borderColor: line, backgroundColor: fill === false ? line : sheer(line), fill: fill ?? false });
    });
    const { scales, plugins } = this.#chart.options;
    for (const axis of [scales.x, scales.y]) {
      axis.ticks.color = colour("--soft");
      axis.grid = { color: colour("--line") };
    }
    plugins.legend.labels.color = colour("--soft");
    this.#chart.update("none");
  }
}

export function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  return String(Math.round(value * (size < 10 ? 100 : 1)) / (size < 10 ? 100 : 1));
}

// -75 becomes "1 min 15 s ago".
export function secondsAgo(value) {
  const seconds = Math.round(-value);
  if (seconds <= 0) return "now";
  const minutes = Math.floor(seconds / 60);
  return [minutes ? `${minutes} min` : "", seconds % 60 ? `${seconds % 60} s` : ""].filter(Boolean).join(" ") + " ago";
}
