// What the chart's objects must be, however they were rendered. Usage: chart.mjs RENDERER CHART OUTPUT-FOLDER QUIRE
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const [renderer, chart, folder, quire] = process.argv.slice(2);

function render(values) {
  const file = join(folder, "values.json");
  writeFileSync(file, JSON.stringify(values));
  const objects = JSON.parse(execFileSync(renderer, [chart, file], { encoding: "utf8" }));
  for (const object of objects) {
    assert.ok(object.apiVersion && object.kind && object.metadata?.name, JSON.stringify(object));
    assert.match(object.metadata.name, /^[a-z]([-a-z0-9]*[a-z0-9])?$/);
  }
  return {
    kinds: objects.map(({ kind }) => kind).sort(),
    get: (kind) => objects.find((object) => object.kind === kind),
    all: (kind) => objects.filter((object) => object.kind === kind),
  };
}

// The daemon itself reads the configuration that the pod gets.
function check_config(objects) {
  const text = objects.get("ConfigMap").data["quire.yaml"];
  writeFileSync(join(folder, "quire.yaml"), text);
  execFileSync(quire, ["serve", "--config", join(folder, "quire.yaml"), "--check-config"]);
  return execFileSync(quire, ["serve", "--config", join(folder, "quire.yaml"), "--print-config"], { encoding: "utf8" });
}

const plain = render({});
assert.deepEqual(plain.kinds, ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "Service"]);
const { spec } = plain.get("Deployment");
assert.equal(spec.replicas, 2);
assert.deepEqual(spec.strategy.rollingUpdate, { maxSurge: 1, maxUnavailable: 0 });
const pod = spec.template.spec;
assert.equal(pod.terminationGracePeriodSeconds, 5 + 60 + 10);
assert.equal(pod.securityContext.runAsNonRoot, true);
assert.equal(pod.automountServiceAccountToken, false);
const [container] = pod.containers;
assert.equal(container.image, "quire:0.1.0");
assert.deepEqual(container.securityContext,
  { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } });
assert.equal(container.startupProbe.httpGet.path, "/startupz");
assert.equal(container.livenessProbe.httpGet.path, "/livez");
assert.equal(container.readinessProbe.httpGet.path, "/readyz");
assert.equal(container.startupProbe.failureThreshold * container.startupProbe.periodSeconds, 900);
// Endpoints notice before the pod refuses: the delay outlasts a readiness probe that fails.
assert.ok(5 > container.readinessProbe.periodSeconds * container.readinessProbe.failureThreshold);
assert.deepEqual(container.volumeMounts.map(({ name }) => name), pod.volumes.map(({ name }) => name));
for (const service of plain.all("Service")) assert.deepEqual(service.spec.selector, spec.selector.matchLabels);
assert.deepEqual(plain.get("PodDisruptionBudget").spec.selector.matchLabels, spec.selector.matchLabels);
for (const [name, value] of Object.entries(spec.selector.matchLabels)) assert.equal(spec.template.metadata.labels[name], value);
assert.match(check_config(plain), /deadline: 60s/);

const full = render({
  model: { path: "/models/large.gguf", volume: { persistentVolumeClaim: { claimName: "models", readOnly: true } } },
  config: { scheduler: { max_num_seqs: 64 }, server: { port: 1, threads: 2 }, log: { level: "warn" } },
  drain: { delaySeconds: 20, deadlineSeconds: 300 }, keysSecret: "quire-keys",
  autoscaling: { enabled: true }, podAnnotations: { note: "yes" }, imagePullSecrets: [{ name: "registry" }],
  serviceMonitor: { enabled: true, labels: { release: "prometheus" }, bearerTokenSecret: { name: "metrics", key: "token" } },
  nodeSelector: { disk: "fast" }, tolerations: [{ key: "cpu", operator: "Exists" }], affinity: { podAntiAffinity: {} },
});
assert.deepEqual(full.kinds, ["ConfigMap", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service", "Service", "ServiceMonitor"]);
const printed = check_config(full);
for (const pattern of [/max_num_seqs: 64/, /port: 8080/, /threads: 2/, /delay: 20s/, /deadline: 300s|deadline: 5m/, /level: warn/, /format: json/]) assert.match(printed, pattern);
const large = full.get("Deployment").spec;
assert.equal("replicas" in large, false, "the autoscaler owns the number");
assert.equal(large.template.spec.terminationGracePeriodSeconds, 330);
assert.deepEqual(large.template.spec.volumes[1], { name: "models", persistentVolumeClaim: { claimName: "models", readOnly: true } });
assert.equal(large.template.spec.volumes[2].secret.secretName, "quire-keys");
assert.ok(large.template.spec.containers[0].volumeMounts.every(({ readOnly }) => readOnly));
assert.notEqual(large.template.metadata.annotations["checksum/config"], spec.template.metadata.annotations["checksum/config"]);
const scaler = full.get("HorizontalPodAutoscaler").spec;
assert.equal(scaler.scaleTargetRef.name, full.get("Deployment").metadata.name);
assert.equal(scaler.metrics[0].pods.metric.name, "vllm:num_requests_waiting");
const monitor = full.get("ServiceMonitor");
assert.equal(monitor.metadata.labels.release, "prometheus");
assert.deepEqual(monitor.spec.endpoints[0].authorization.credentials, { name: "metrics", key: "token" });
// Scraped once: the monitor selects the plain service alone.
assert.deepEqual(full.all("Service").map((service) => "quire/headless" in service.metadata.labels), [false, true]);
assert.equal(monitor.spec.endpoints[0].port, full.get("Service").spec.ports[0].name);

assert.ok(!render({ replicaCount: 1 }).kinds.includes("PodDisruptionBudget"));
assert.equal(render({ service: { headless: false } }).all("Service").length, 1);
console.log("the chart's objects are as they should be");
