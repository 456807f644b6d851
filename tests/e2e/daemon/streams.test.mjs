// TLS with a certificate that is renewed while serving, and streams that survive their connection.
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import tls from "node:tls";
import { cut_stream, QuireServer } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-"));
const certificate = join(folder, "certificate.pem");
const key = join(folder, "key.pem");
const has_openssl = spawnSync("openssl", ["version"]).status === 0;

function renew(name) {
  const made = spawnSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
    "-subj", `/CN=${name}`, "-keyout", key, "-out", certificate], { encoding: "utf8" });
  assert.equal(made.status, 0, made.stderr);
}

// {name of the certificate's holder, protocol, what was answered}
function look(port, options = {}) {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options }, () => {
      const name = socket.getPeerCertificate().subject.CN;
      const protocol = socket.getProtocol();
      let text = "";
      socket.on("data", (bytes) => { text += bytes; });
      socket.on("end", () => resolve({ name, protocol, text }));
      socket.write("GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    });
    socket.on("error", reject);
  });
}

// What `quire probe` ends with.
function probe(...args) {
  return new Promise((resolve) => {
    execFile(process.env.QUIRE_BINARY, ["probe", ...args], (error, _, complaint) => resolve({ code: error?.code ?? 0, complaint }));
  });
}

test("a renewed certificate is served after a reload", { skip: !has_openssl && "openssl is absent" }, async () => {
  renew("first");
  const server = await QuireServer.start(["--server.tls.certificate", certificate, "--server.tls.key", key]);
  after(() => server.kill());
  const port = Number(new URL(server.url).port);
  const first = await look(port);
  assert.equal(first.name, "first");
  assert.equal(first.protocol, "TLSv1.3");
  assert.match(first.text, /^HTTP\/1\.1 200 OK/);
  assert.equal((await look(port, { maxVersion: "TLSv1.2" })).protocol, "TLSv1.2");
  await assert.rejects(look(port, { minVersion: "TLSv1.1", maxVersion: "TLSv1.1" }));
  assert.deepEqual(await probe(`https://127.0.0.1:${port}/livez`, "--insecure"), { code: 0, complaint: "" });
  assert.equal((await probe(`https://127.0.0.1:${port}/none`, "--insecure")).complaint, `https://127.0.0.1:${port}/none: HTTP 404\n`);
  const unknown = await probe(`https://127.0.0.1:${port}/livez`);
  assert.equal(unknown.code, 1);
  assert.match(unknown.complaint, /no answer: TLS: certificate verify failed/);
  assert.equal((await probe(`127.0.0.1:${port}/livez`)).code, 1);
  renew("second");
  server.signal("SIGHUP");
  while ((await look(port)).name !== "second");
  await server.stop();
});

// The request's events with their numbers; the connection is destroyed after `most` of them.
async function stream(port, body, headers, most) {
  const { status, events } = await cut_stream(`http://127.0.0.1:${port}/v1/completions`, body, headers, most);
  return { status, events: events.map((event) => ({ id: Number(/^id: (\d+)$/m.exec(event)?.[1]), data: /^data: (.*)$/m.exec(event)[1] })) };
}

test("a stream that lost its connection is taken up, and is whole", async () => {
  const server = await QuireServer.start(["--server.resume.window", "60s"]);
  after(() => server.kill());
  const port = Number(new URL(server.url).port);
  const body = { model: "quire-demo", prompt: "Once upon a time", max_tokens: 200, temperature: 0, ignore_eos: true, stream: true };
  const text = (events) => events.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data).choices[0]?.text ?? "").join("");
  const whole = await stream(port, body, { "X-Request-Id": "whole" });
  assert.deepEqual(whole.events.map(({ id }) => id), whole.events.map((_, i) => i + 1));
  const events = [];
  let fields = { "X-Request-Id": "broken" };
  while (events.at(-1)?.data !== "[DONE]") {
    const part = await stream(port, body, fields, 30);
    assert.equal(part.status, 200);
    events.push(...part.events);
    fields = { "X-Request-Id": "broken", "Last-Event-ID": String(events.at(-1).id) };
  }
  assert.deepEqual(events.map(({ id }) => id), events.map((_, i) => i + 1));
  assert.equal(text(events), text(whole.events));
  assert.equal((await stream(port, body, { "X-Request-Id": "unknown", "Last-Event-ID": "3" })).status, 404);
  // Taken up twice, it was still one generation.
  assert.equal((await server.metrics())["vllm:generation_tokens_total"], 400);
  await server.stop();
});

test("a kept stream is ended by its own client, and by no other key's", async (context) => {
  const file = join(folder, "keys.yaml");
  const named = (name) => `    - {name: ${name}, sha256: ${createHash("sha256").update(`${name}-secret`).digest("hex")}}\n`;
  writeFileSync(file, `security:\n  keys:\n${named("alice")}${named("bob")}`);
  const server = await QuireServer.start(["--config", file, "--server.resume.window", "600s", "--backend.cpu.isa", "scalar", "--backend.cpu.threads", "1"]);
  context.after(() => server.kill());
  const port = Number(new URL(server.url).port);
  const bearer = (name) => ({ Authorization: `Bearer ${name}-secret` });
  const body = { model: "quire-demo", prompt: "Once upon a time", max_tokens: 1900, n: 16, temperature: 0, ignore_eos: true, stream: true };
  await stream(port, body, { "X-Request-Id": "long", ...bearer("alice") }, 5);
  const end = async (name, id) => (await fetch(`${server.url}/v1/streams/${id}`, { method: "DELETE", headers: bearer(name) })).status;
  assert.equal(await end("bob", "long"), 404);
  assert.equal(await end("alice", "other"), 404);
  assert.equal((await server.metrics())["vllm:num_requests_running"], 16, "it still runs without its client");
  assert.equal(await end("alice", "long"), 200);
  await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
  assert.ok((await server.metrics())["vllm:generation_tokens_total"] < 16 * 1900, "it was not computed to its end");
  assert.equal(await end("alice", "long"), 404);
  assert.equal((await stream(port, body, { "X-Request-Id": "long", "Last-Event-ID": "3", ...bearer("alice") })).status, 404);
  await server.stop();
});
