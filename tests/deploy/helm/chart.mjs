// What the chart's objects must be, however they were rendered. Usage: chart.mjs RENDERER CHART OUTPUT-FOLDER QUIRE
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
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
  return execFileSync(quire, ["serve", "--config", join(folder, "quire.yaml"), "--print-config"], { encoding: "utf8" });
}

// The daemon itself serves with that configuration, whatever is the pod's own replaced by what this machine has.
async function check_start(objects, replaced) {
  let text = objects.get("ConfigMap").data["quire.yaml"];
  for (const [from, to] of replaced) {
    assert.ok(text.includes(from), `${from} in ${text}`);
    text = text.replaceAll(from, to);
  }
  writeFileSync(join(folder, "quire.yaml"), text);
  // The container's own arguments behind the image's entry point, with its environment as Kubernetes expands it.
  const { args } = objects.get("Deployment").spec.template.spec.containers[0];
  const given = args.map((arg) => arg.replace("/etc/quire/", `${folder}/`).replaceAll("$(POD_IP)", "127.0.0.1").replace(/tcp:\/\/\*:\d+/, "tcp://127.0.0.1:*"));
  assert.ok(given.includes(join(folder, "quire.yaml")), given.join(" "));
  const daemon = spawn(quire, ["serve", ...given], { stdio: ["ignore", "ignore", "pipe"] });
  const exited = new Promise((resolve) => daemon.once("exit", resolve));
  const timer = setTimeout(() => daemon.kill("SIGKILL"), 60_000);
  let log = "";
  for await (const chunk of daemon.stderr) {
    log += chunk;
    if (/is ready after/.test(log)) break;
  }
  daemon.kill("SIGTERM");
  assert.match(log, /is ready after/, `the daemon did not start:\n${log}`);
  assert.equal(await exited, 0, log);
  clearTimeout(timer);
}

const demo = ["/usr/share/quire/quire-demo.gguf", process.env.QUIRE_MODEL];
const any_port = ["port: 8080", "port: 0"];
const at_once = ["delay: 5s", "delay: 0s"];
const on_loopback = ["host: 0.0.0.0", "host: 127.0.0.1"];

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
assert.equal(container.image, "quire:0.2.0");
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
await check_start(plain, [demo, any_port, at_once, on_loopback]);
assert.deepEqual(pod.topologySpreadConstraints.map(({ topologyKey }) => topologyKey), ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
for (const { labelSelector } of pod.topologySpreadConstraints) assert.deepEqual(labelSelector.matchLabels, spec.selector.matchLabels);
assert.equal(container.livenessProbe.httpGet.scheme, undefined);
assert.equal("env" in container, false);

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

// The password of a shared store is in a secret that the daemon reads, and nowhere in the ConfigMap.
const stored = render({ storeSecret: "quire-store", config: { kv_cache: { dtype: "f16" } } });
const file_of_url = /url_file: "?\/run\/secrets\/store\/url"?$/gm;
assert.equal(check_config(stored).match(file_of_url).length, 2);
const stored_pod = stored.get("Deployment").spec.template.spec;
const store_volume = stored_pod.volumes.find(({ secret }) => secret?.secretName === "quire-store");
assert.deepEqual(stored_pod.containers[0].volumeMounts.find(({ name }) => name === store_volume.name),
  { name: "store", mountPath: "/run/secrets/store", readOnly: true });
// What config says of one of the two stays.
const named = check_config(render({ storeSecret: "quire-store", config: { shared_quotas: { url: "redis://quotas" } } }));
assert.equal(named.match(file_of_url).length, 1);
assert.match(named, /url: "?redis:\/\/quotas"?$/m);
assert.equal(check_config(plain).match(file_of_url), null);

// KEDA instead of a HorizontalPodAutoscaler of the chart's own: never both, and never without the address to ask.
const keda = render({ autoscaling: { enabled: true, target: "6", keda: { enabled: true, prometheusAddress: "http://prometheus:9090" } } });
assert.deepEqual(keda.kinds, ["ConfigMap", "Deployment", "PodDisruptionBudget", "ScaledObject", "Service", "Service"]);
const scaled = keda.get("ScaledObject").spec;
assert.equal(scaled.scaleTargetRef.name, keda.get("Deployment").metadata.name);
assert.deepEqual([scaled.minReplicaCount, scaled.maxReplicaCount], [2, 8]);
assert.deepEqual(scaled.advanced.horizontalPodAutoscalerConfig.behavior, scaler.behavior);
assert.deepEqual(scaled.triggers[0].metadata, { serverAddress: "http://prometheus:9090", threshold: "6",
  query: `sum(vllm:num_requests_waiting{namespace="models", pod=~"${keda.get("Deployment").metadata.name}-.*"})` });
assert.equal("replicas" in keda.get("Deployment").spec, false, "the autoscaler owns the number");
assert.throws(() => render({ autoscaling: { enabled: true, keda: { enabled: true } } }), /prometheusAddress is needed/);

// A roll-out has time to load the model, and may replace pods one after another where nothing is free for one more.
assert.ok(spec.progressDeadlineSeconds > spec.minReadySeconds + 900);
const tight = render({ rollout: { maxSurge: 0, maxUnavailable: "25%", minReadySeconds: 30 } }).get("Deployment").spec;
assert.deepEqual(tight.strategy.rollingUpdate, { maxSurge: 0, maxUnavailable: "25%" });
assert.equal(tight.minReadySeconds, 30);

// Several models, a folder to write, environment, GPUs.
const several = render({
  models: [{ name: "chat", path: "/usr/share/quire/quire-demo.gguf" }, { name: "other", path: "/usr/share/quire/quire-demo.gguf", preload: false }],
  cacheVolume: { emptyDir: { sizeLimit: "20Gi" } }, extraEnv: [{ name: "A", value: "b" }], extraEnvFrom: [{ secretRef: { name: "c" } }],
  gpu: { count: 2, runtimeClassName: "nvidia" }, topologySpread: [],
});
const busy = several.get("Deployment").spec.template.spec;
assert.deepEqual(busy.containers[0].env, [{ name: "A", value: "b" }]);
assert.deepEqual(busy.containers[0].envFrom, [{ secretRef: { name: "c" } }]);
assert.equal(busy.containers[0].resources.limits["nvidia.com/gpu"], 2);
assert.equal(busy.containers[0].resources.limits.memory, "4Gi");
assert.equal("nvidia.com/gpu" in busy.containers[0].resources.requests, false);
assert.equal(busy.runtimeClassName, "nvidia");
assert.equal("topologySpreadConstraints" in busy, false);
assert.deepEqual(busy.volumes.find(({ name }) => name === "cache"), { name: "cache", emptyDir: { sizeLimit: "20Gi" } });
assert.ok(!busy.containers[0].volumeMounts.find(({ name }) => name === "cache").readOnly);
assert.match(check_config(several), /name: "?chat/);
await check_start(several, [demo, any_port, at_once, on_loopback]);

// Events for routers: each pod names itself in their topic.
const events = render({ kvEvents: { enabled: true }, podLabels: { "llm-d.ai/engine-type": "vllm" }, extraEnv: [{ name: "A", value: "b" }],
  networkPolicy: { enabled: true } });
const publisher = events.get("Deployment").spec.template;
assert.equal(publisher.metadata.labels["llm-d.ai/engine-type"], "vllm");
assert.deepEqual(events.get("Deployment").spec.selector, spec.selector);
assert.deepEqual(publisher.spec.containers[0].env, [{ name: "POD_IP", valueFrom: { fieldRef: { fieldPath: "status.podIP" } } }, { name: "A", value: "b" }]);
assert.deepEqual(publisher.spec.containers[0].ports.map(({ containerPort }) => containerPort), [8080, 5557, 5558]);
assert.ok(publisher.spec.containers[0].args.includes("--kv-cache.events.topic=kv@$(POD_IP)@{model}"));
assert.deepEqual(events.get("NetworkPolicy").spec.ingress[0].ports.map(({ port }) => port), ["http", "kv-events", "kv-replay"]);
await check_start(events, [demo, any_port, at_once, on_loopback]);

// TLS: probes speak it; with client certificates they ask inside of the pod.
const secure = render({ tls: { secret: "cert" }, serviceMonitor: { enabled: true } });
for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"]) {
  assert.equal(secure.get("Deployment").spec.template.spec.containers[0][probe].httpGet.scheme, "HTTPS");
}
assert.equal(secure.get("ServiceMonitor").spec.endpoints[0].scheme, "https");
execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
  "-keyout", join(folder, "tls.key"), "-out", join(folder, "tls.crt")], { stdio: "ignore" });
await check_start(secure, [demo, any_port, at_once, on_loopback, ["/run/secrets/tls", folder]]);
const mutual = render({ tls: { secret: "cert", clientCaSecret: "ca" } });
const inside = mutual.get("Deployment").spec.template.spec;
assert.deepEqual(inside.containers[0].livenessProbe.exec.command, ["/usr/bin/quire", "probe", "http://127.0.0.1:9090/livez"]);
assert.deepEqual(inside.volumes.slice(-2).map(({ name }) => name), ["tls", "client-ca"]);
await check_start(mutual, [demo, any_port, at_once, on_loopback, ["/run/secrets/tls", folder],
  ["/run/secrets/client-ca/ca.crt", join(folder, "tls.crt")], ["127.0.0.1:9090", "127.0.0.1:0"]]);

const closed = render({ networkPolicy: { enabled: true, from: [{ podSelector: { matchLabels: { app: "proxy" } } }],
  metricsFrom: [{ namespaceSelector: {} }], to: [{ podSelector: { matchLabels: { app: "collector" } } }] } }).get("NetworkPolicy").spec;
assert.deepEqual(closed.podSelector.matchLabels, spec.selector.matchLabels);
assert.deepEqual(closed.ingress[0].from, [{ podSelector: { matchLabels: { app: "proxy" } } }, { namespaceSelector: {} }]);
assert.equal(closed.egress.length, 2);

assert.ok(!render({ replicaCount: 1 }).kinds.includes("PodDisruptionBudget"));
assert.equal(render({ service: { headless: false } }).all("Service").length, 1);
console.log("the chart's objects are as they should be");
