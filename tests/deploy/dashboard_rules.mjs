// Prints the expressions of a Grafana dashboard as a Prometheus rule file, so that promtool can read them.
import { readFileSync } from "node:fs";

const dashboard = JSON.parse(readFileSync(process.argv[2], "utf8"));
const variables = { $__rate_interval: "1m", $__interval: "1m", $instance: ".*" };
const rules = dashboard.panels.flatMap((panel) => panel.targets ?? []).map(({ expr }, index) => ({
  record: `panel_${index}`, expr: expr.replace(/\$\w+/g, (name) => variables[name] ?? name),
}));
// JSON is YAML.
console.log(JSON.stringify({ groups: [{ name: "dashboard", rules }] }));
