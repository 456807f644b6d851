// Whether two readers take one byte stream for different requests: differential.mjs [--binary PATH] [--runs N] [--seed N]. Each stream is
// sent to a daemon directly and through HAProxy. Where both serve it, the answers, which tell method, path and body, must be the same; and
// nothing may reach the daemon by the proxy's connections that the proxy did not take for a request, which it marks by its id. Exit 1 and
// the streams where two readings differ. Without HAProxy nothing is done.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { mutated_stream } from "./h1_streams.mjs";
import { QuireServer } from "../e2e/server_process.mjs";
import { random_source, RawClient } from "./raw_client.mjs";

const { values } = parseArgs({ options: { binary: { type: "string", default: process.env.QUIRE_BINARY },
  runs: { type: "string", default: "2000" }, seed: { type: "string", default: "1" } } });
process.env.QUIRE_BINARY = values.binary;
process.env.QUIRE_MODEL ??= new URL("../../deploy/demo-model/quire-demo.gguf", import.meta.url).pathname;
if (spawnSync("haproxy", ["-v"]).status !== 0) {
  console.log("skipped: haproxy is absent (Debian package haproxy)");
  process.exit(0);
}

const kProxyAddress = "127.0.0.2";  // what the daemon sees of the proxy
const kInParallel = 64;
const kPathBytes = 24;  // of what the proxy took for a path, in its mark
// Where the stream before it is whole, both ends close after its answer; otherwise they wait for more until kTimeout.
const kSentinel = "GET /v1/models/sentinel HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const kTimeout = "1s";

// Connections to the daemon are kept and shared, so that what one request leaves behind would meet the next. One thread: a second one
// that cannot write to the log at once drops its line.
const kProxyConfig = `
global
  nbthread 1
defaults
  mode http
  log stdout format raw local0
  log-format "%s %ST %[var(txn.id)]"
  timeout connect 5s
  timeout client ${kTimeout}
  timeout server 60s
  timeout http-request ${kTimeout}
  timeout http-keep-alive ${kTimeout}
  http-reuse always
  retries 0
frontend proxy
  bind fd@3
  http-request set-var-fmt(txn.id) via.%[method].%[path,bytes(0,${kPathBytes}),hex].%[uuid]
  http-request set-header X-Request-Id %[var(txn.id)]
  default_backend daemon
backend daemon
  server quire "\${QUIRE}" source ${kProxyAddress}
`;

async function start_proxy(daemon) {
  const folder = mkdtempSync(join(tmpdir(), "quire-"));
  const config = join(folder, "haproxy.cfg");
  const log = join(folder, "log");  // a file: HAProxy drops lines for which a pipe has no room
  writeFileSync(config, kProxyConfig);
  const socket = await new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => resolve(server));
  });
  const proxy = spawn("haproxy", ["-db", "-f", config], { env: { ...process.env, QUIRE: new URL(daemon.url).host },
    stdio: ["ignore", openSync(log, "w"), "inherit", socket._handle.fd] });
  const port = socket.address().port;
  socket.close();
  const ended = once(proxy, "exit");
  proxy.on("exit", (code) => assert.equal(code, 0));
  const stop = async () => {
    proxy.kill("SIGUSR1");  // once its requests are over
    await ended;
    return readFileSync(log, "utf8").trim().split("\n");
  };
  return { port, stop };
}

// The daemon's refusals of what it does not take for a request.
const kRefusal = new RegExp('"code": ?"(invalid_(method|target|request|header|host|content_length|transfer_encoding|framing|line_ending|chunk|trailer)|' +
  "http_version_not_supported|method_not_implemented|transfer_coding_unsupported|expectation_failed|upgrade_unsupported|data_after_close|" +
  'missing_host|headers_too_large|uri_too_long|request_too_large|request_timeout)"');

// The answers up to the first refusal: {accepted: ["STATUS body"], refused, closed: the last one says that it is}.
function readings_of(text) {
  const accepted = [];
  let closed = false;
  while (text !== "") {
    const end = text.indexOf("\r\n\r\n");
    const head = text.slice(0, end);
    const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1]);
    assert.ok(end >= 0 && status, `no answer: ${JSON.stringify(text.slice(0, 200))}`);
    const length = status === 100 || status === 204 ? 0 : Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? Infinity);
    const body = text.slice(end + 4, end + 4 + length);
    text = text.slice(end + 4 + body.length);
    if (status === 100) continue;
    if (!/^server: quire/im.test(head) || kRefusal.test(body)) return { accepted, refused: true, closed };
    accepted.push(`${status} ${body}`);
    closed = /^connection: close/im.test(head);
  }
  return { accepted, refused: false, closed };
}

async function ask(port, stream) {
  return readings_of(await new RawClient(port).send(Buffer.from(stream, "latin1")).ended);
}

function differ(direct, proxied) {
  const common = Math.min(direct.accepted.length, proxied.accepted.length);
  for (let i = 0; i < common; ++i) {
    if (direct.accepted[i] !== proxied.accepted[i]) return true;
  }
  num_alike += common;
  // A server that closes, or refuses what follows, leaves the rest unread.
  const [shorter, longer] = direct.accepted.length < proxied.accepted.length ? [direct, proxied] : [proxied, direct];
  return shorter.accepted.length !== longer.accepted.length && !shorter.refused && !shorter.closed;
}

const daemon = await QuireServer.start(["--backend.cpu.threads", "1", "--log.format", "json", "--log.access", "all",
  "--server.timeout.header", kTimeout, "--server.timeout.body", kTimeout, "--server.timeout.idle", "60s"]);
const proxy = await start_proxy(daemon);
const findings = [];
let num_alike = 0;
const counts = { streams: 0, "served by both": 0, "refused by both": 0, "refused by the daemon alone": 0, "refused by the proxy alone": 0 };
const numbers = Array.from({ length: Number(values.runs) }, (_, index) => index).reverse();

async function client() {
  for (let number = numbers.pop(); number !== undefined; number = numbers.pop()) {
    const stream = mutated_stream(random_source(Number(values.seed) * 1_000_003 + number)) + kSentinel;
    const [direct, proxied] = await Promise.all([ask(new URL(daemon.url).port, stream), ask(proxy.port, stream)]);
    counts.streams += 1;
    const kind = direct.refused ? (proxied.refused ? "refused by both" : "refused by the daemon alone")
      : proxied.refused ? "refused by the proxy alone" : "served by both";
    counts[kind] += 1;
    if (differ(direct, proxied)) findings.push({ number, stream, direct: direct.accepted, proxied: proxied.accepted });
  }
}

await Promise.all(Array.from({ length: kInParallel }, client));
const proxy_log = await proxy.stop();
await daemon.stop();

// Each request that the daemon read, and what it refused without reading it, must be one that the proxy sent.
const sent = new Map(proxy_log.map((line) => line.split(" ")).filter(([server]) => server === "quire").map(([, status, id]) => [id, status]));
const num_proxied = sent.size;
const unread = [];
for (const line of daemon.log) {
  if (!line.includes(`"peer":"${kProxyAddress}"`)) continue;
  const { request_id, method, path, status } = JSON.parse(line);
  if (method === "") {
    unread.push({ status, line });
    continue;
  }
  const [, proxy_method, proxy_path] = request_id.split(".");
  const same_path = proxy_path === "" || proxy_path === Buffer.from(path).subarray(0, kPathBytes).toString("hex").toUpperCase();
  const known = sent.delete(request_id) && proxy_method === method && same_path;
  if (!known) findings.push({ smuggled: line });
}
for (const { status, line } of unread) {
  const refused = [...sent].find(([, proxy_status]) => Number(proxy_status) === status);
  if (!refused || !sent.delete(refused[0])) findings.push({ smuggled: line });
}
for (const finding of findings.slice(0, 20)) console.log(JSON.stringify(finding));
console.log(`${JSON.stringify(counts)}; ${num_proxied} requests through the proxy, ${num_alike} read alike; ${findings.length} read in two ways`);
assert.ok(counts["served by both"] > 0 && num_proxied > 0, "some streams are served");
process.exitCode = findings.length === 0 ? 0 : 1;
