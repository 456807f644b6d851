// `quire bench` as its users run it: its report agrees with the server's own counts, and errors are errors.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { QuireServer } from "../server_process.mjs";

const folder = mkdtempSync(join(tmpdir(), "quire-bench-"));
let server;

before(async () => {
  server = await QuireServer.start();
});
after(() => {
  server.kill();
  rmSync(folder, { recursive: true, force: true });
});

// {code, table, progress, figures} of `quire bench ARGS --json`.
function bench(...args) {
  const json = join(folder, "figures.json");
  rmSync(json, { force: true });
  return new Promise((resolve) => {
    execFile(process.env.QUIRE_BINARY, ["bench", ...args, "--json", json], (error, table, progress) => {
      const figures = existsSync(json) ? JSON.parse(readFileSync(json, "utf8")) : null;
      resolve({ code: error?.code ?? 0, table, progress, figures });
    });
  });
}

// The same, and by how much the server's counters grew.
async function serve(...args) {
  const old = await server.metrics();
  const result = await bench("serve", "--url", server.url, ...args);
  const now = await server.metrics();
  const grown = (name) => now[name] - (old[name] ?? 0);
  return { ...result, output: grown("vllm:generation_tokens_total"), prompt: grown("vllm:prompt_tokens_total"),
    requests: grown("vllm:request_success_total") };
}

const ascending = ({ p50, p90, p99 }) => p50 <= p90 && p90 <= p99;

test("a closed loop counts what the server counts", async () => {
  const { code, table, figures, output, prompt, requests } =
    await serve("--concurrency", "3", "--requests", "10", "--prompt", "20-40", "--output", "8-16");
  assert.equal(code, 0);
  assert.deepEqual([figures.requests, figures.errors, requests], [10, 0, 10]);
  assert.deepEqual([figures.output_tokens, figures.prompt_tokens], [output, prompt]);
  assert.ok(output >= 80 && output <= 160);
  const rate = figures.output_tokens / figures.seconds;
  assert.ok(Math.abs(figures.output_tokens_per_second - rate) < 1e-6 * rate);
  for (const kind of ["ttft_ms", "itl_ms", "e2e_ms"]) assert.ok(ascending(figures[kind]), kind);
  assert.ok(figures.ttft_ms.p50 > 0 && figures.ttft_ms.p99 <= figures.e2e_ms.p99);
  assert.match(table, /^requests 10 +errors 0 /);
  assert.match(table, /^time to first token( +[\d.]+){4}$/m);
});

test("with their ids every token counts when it is sent, whatever its text", async () => {
  const { code, figures, output } = await serve("--concurrency", "1", "--requests", "4", "--output", "16", "--token-ids");
  assert.equal(code, 0);
  assert.deepEqual([figures.output_tokens, output], [64, 64]);
  assert.equal(figures.events, 64);
});

test("a shared prefix is shared, and its cached tokens are reported", async () => {
  const { figures } = await serve("--concurrency", "1", "--requests", "4", "--prompt", "8", "--output", "4", "--shared-prefix", "100");
  assert.equal(figures.errors, 0);
  assert.ok(figures.cached_tokens > 200, `${figures.cached_tokens} cached`);
});

test("recorded arrivals are played with their lengths", async () => {
  const trace = join(folder, "trace.csv");
  writeFileSync(trace, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0000000,30,5\n2023-11-16 18:00:01.0000000,40,7\n");
  const { figures, output } = await serve("--trace", trace, "--requests", "2", "--trace-speed", "5");
  assert.equal(figures.errors, 0);
  assert.equal(output, 12);
  assert.ok(figures.seconds >= 0.2, "the second did not come early");
});

test("Poisson arrivals do not wait for answers", async () => {
  const { figures, requests } = await serve("--rate", "200", "--requests", "20", "--prompt", "8", "--output", "4");
  assert.deepEqual([figures.errors, requests], [0, 20]);
});

test("requests that fail are counted as errors and told, a server that is not there ends it", async () => {
  const { code, figures } = await serve("--requests", "3", "--prompt", "5000", "--output", "4");
  assert.deepEqual([code, figures.requests, figures.errors], [1, 3, 3]);
  assert.match(figures.sample_errors[0], /HTTP 400.*maximum context length/);
  assert.equal((await bench("serve", "--url", "http://127.0.0.1:1")).code, 2);
});

test("the engine alone, batch by batch", async () => {
  const { code, table, figures } = await bench("throughput", "--model", process.env.QUIRE_MODEL, "--prompt", "32",
    "--output", "8", "--sequences", "1,3", "--repeats", "1");
  assert.equal(code, 0);
  assert.deepEqual(figures.rows.map(({ sequences }) => sequences), [1, 3]);
  for (const row of figures.rows) assert.ok(row.prompt_tokens_per_second > 0 && row.decode_tokens_per_second > 0);
  assert.match(table, /weights read GB\/s/);
});

test("single operations beside the machine's limits", async () => {
  const { code, table, figures } = await bench("kernel", "--operation", "elementwise,recurrent", "--rows", "1", "--passes", "1");
  assert.equal(code, 0);
  assert.deepEqual([...new Set(figures.operations.map(({ operation }) => operation))],
    ["rms_norm", "delta rule", "state space", "short conv"]);
  assert.ok(figures.limits[0].reads.every(({ gigabytes_per_second }) => gigabytes_per_second > 0));
  for (const operation of figures.operations) assert.ok(operation.percent_of_limit > 0);
  assert.match(table, /% of limit/);
  assert.equal((await bench("kernel", "--isa", "abacus")).code, 2);
});
