// Starts the built `quire serve` on a free port for one test file, and reports when it is ready and how it ended.
// QUIRE_BINARY: the binary under test. QUIRE_MODEL: the model (the bundled one where ctest sets it).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { createInterface } from "node:readline";

// QUIRE_DEVICE=emulated: the binary computes on an emulated GPU, which takes tens of milliseconds for a token.
export const is_emulated = process.env.QUIRE_DEVICE === "emulated";
// How much a test asks for: an emulated GPU gets the same work, smaller.
export const sized = (size, emulated) => (is_emulated ? emulated : size);

// A wait without an end is a failure that says what was waited for. Sanitizers take many times as long.
const kPatience = 300_000;  // milliseconds

function patience(what) {
  const late = Date.now() + kPatience;
  return () => {
    if (Date.now() > late) throw new Error(`waited ${kPatience / 1000} s for ${what}`);
  };
}

export class QuireServer {
  #process;
  #exit;
  log = [];
  url = "";

  // `model` null: the flags name the models.
  static async start(flags = [], { model = process.env.QUIRE_MODEL, env = {}, binary = process.env.QUIRE_BINARY } = {}) {
    const server = new QuireServer();
    await server.#launch(binary, ["serve", ...(model ? ["--model", model] : []), "--port", "0", ...flags], env);
    return server;
  }

  async #launch(binary, args, env) {
    this.#process = spawn(binary, args, {
      stdio: ["ignore", "inherit", "pipe"], env: { ...process.env, ...env },
    });
    this.#exit = once(this.#process, "exit").then(([code, signal]) => ({ code, signal }));
    const lines = createInterface({ input: this.#process.stderr });
    const ready = new Promise((resolve, reject) => {
      lines.on("line", (line) => {
        this.log.push(line);
        const port = /listening on .*:(\d+)/.exec(line)?.[1];
        if (port) this.url = `http://127.0.0.1:${port}`;
        if (/ is ready after /.test(line)) resolve();
      });
      this.#exit.then(({ code, signal }) =>
        reject(new Error(`quire ended early (${code ?? signal}):\n${this.log.join("\n")}`)));
    });
    const timer = setTimeout(() => this.kill(), kPatience);  // the exit then rejects, with the log
    await ready.finally(() => clearTimeout(timer));
  }

  get pid() {
    return this.#process.pid;
  }

  signal(name) {
    this.#process.kill(name);
  }

  // For the end of a test that failed; harmless where it has ended.
  kill() {
    this.signal("SIGKILL");
  }

  // {code, signal} once it has ended.
  ended() {
    return this.#exit;
  }

  async stop() {
    this.signal("SIGTERM");
    const { code, signal } = await this.ended();
    if (code !== 0) throw new Error(`quire ended with ${code ?? signal}:\n${this.log.join("\n")}`);
  }

  // {name: sum over its label sets}
  async metrics() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const sums = {};
    for (const line of text.split("\n")) {
      const match = /^([\w:]+)(?:\{.*\})? (\S+)$/.exec(line);
      if (match) sums[match[1]] = (sums[match[1]] ?? 0) + Number(match[2]);
    }
    return sums;
  }

  // Waits until the metric has the value that `wanted` accepts.
  async metric_becomes(name, wanted) {
    const check = patience(`the metric ${name}`);
    for (;;) {
      check();
      const value = (await this.metrics())[name];
      if (wanted(value)) return value;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  // The `count`th line of the log that is wanted, once it is there: lines come by another way than answers.
  async logged(wanted, count = 1) {
    const check = patience(`the log to have ${wanted}`);
    for (;;) {
      check();
      const found = this.log.filter(wanted);
      if (found.length >= count) return found[count - 1];
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  post(path, body, options = {}) {
    return fetch(this.url + path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      ...options,
    });
  }
}

// Of a greedy answer the part before the first place where the two likeliest tokens are so near each other that other
// roundings may choose otherwise.
export async function certain_part(server, body) {
  const response = await server.post("/v1/completions", { ...body, return_token_ids: true, logprobs: 2 });
  assert.equal(response.status, 200, await response.clone().text());
  const { token_ids, logprobs } = (await response.json()).choices[0];
  const gaps = logprobs.top_logprobs.map((top) => Object.values(top)).map(([first, second]) => Math.abs(first - second));
  const found = gaps.findIndex((gap) => gap < 0.2);
  const end = found < 0 ? gaps.length : found;
  return { token_ids: token_ids.slice(0, end), text: logprobs.tokens.slice(0, end).join("") };
}

// The `data:` payloads of an SSE response, parsed, up to [DONE].
export async function* sse_events(response) {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice(6);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
  throw new Error("the stream ended without [DONE]");
}

// The events of an answer as text, comments left out; its connection is destroyed after `most` of them, once `before_end` is done.
export function cut_stream(url, body, headers, most = Infinity, before_end = async () => {}) {
  return new Promise((resolve, reject) => {
    const events = [];
    const request = http.request(url, { method: "POST", agent: false, headers: { "Content-Type": "application/json", ...headers } }, (response) => {
      let rest = "";
      response.on("data", (bytes) => {
        const parts = (rest + bytes).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          if (events.length >= most) break;
          if (!part.startsWith(":")) events.push(part);
        }
        if (events.length < most) return;
        response.pause();
        before_end().then(() => request.destroy());
      });
      response.on("close", () => resolve({ status: response.statusCode, events, rest, retry: response.headers["retry-after"] }));
      response.on("error", () => {});
    });
    request.on("error", (error) => (events.length ? undefined : reject(error)));
    request.end(JSON.stringify(body));
  });
}
