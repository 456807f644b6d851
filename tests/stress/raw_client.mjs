// Bytes over a socket, as no well-behaved client sends them, and what came back. Every wait has an end: the server's own
// timeouts close whatever a client leaves open, and a socket that is silent for longer than kPatience fails the run.
import net from "node:net";

// What every request needs: a host, and the key that may do everything.
export const kHost = "Host: stress\r\nAuthorization: Bearer valid\r\n";

// A small generator, so that every run does the same (numerical recipes' LCG).
export function random_source(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

export function post(path, body, { key = "valid", fields = "" } = {}) {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body);
  const head = `POST ${path} HTTP/1.1\r\nHost: stress\r\nAuthorization: Bearer ${key}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${bytes.length}\r\n${fields}\r\n`;
  return Buffer.concat([Buffer.from(head, "latin1"), bytes]);
}

const kPatience = 120_000;  // milliseconds

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Ends once the daemon has answered `count` requests of another client, one after another: what other connections brought before
// the first of them has reached the daemon.
export async function other_answers(port, count = 1) {
  const client = new RawClient(port);
  for (let i = 1; i <= count; ++i) {
    client.send(`GET /livez HTTP/1.1\r\n${kHost}\r\n`);
    await client.until((text) => text.split("HTTP/1.1 ").length > i);
  }
  client.close();
}

// One connection. `ended` resolves with everything that arrived once the other side has closed.
export class RawClient {
  bytes = [];
  #waiting = [];

  // `from`: one of this machine's own addresses, as which the server sees the client.
  constructor(port, from = "127.0.0.1") {
    this.socket = net.connect({ port, host: "127.0.0.1", localAddress: from, allowHalfOpen: true });
    this.socket.on("error", () => {});
    this.socket.setTimeout(kPatience, () => {
      console.error(`no byte for ${kPatience / 1000} s after: ${JSON.stringify(this.text().slice(-200))}`);
      process.exit(1);
    });
    this.socket.on("data", (bytes) => {
      this.bytes.push(bytes);
      for (const wake of this.#waiting.splice(0)) wake();
    });
    this.ended = new Promise((resolve) => {
      const end = () => {
        for (const wake of this.#waiting.splice(0)) wake();
        resolve(this.text());
      };
      this.socket.on("end", () => {
        this.socket.destroy();
        end();
      });
      this.socket.on("close", end);
    });
  }

  text() {
    return Buffer.concat(this.bytes).toString("latin1");
  }
  send(bytes) {
    this.socket.write(bytes);
    return this;
  }
  finish_sending() {
    this.socket.end();
    return this;
  }
  // Until `enough(text)`, or the other side closed.
  async until(enough) {
    while (!enough(this.text()) && !this.socket.destroyed) {
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
    return this.text();
  }
  // The status of the first response; 0 where there was none.
  async status() {
    return Number(/^HTTP\/1\.1 (\d{3})/.exec(await this.until((text) => text.includes("\r\n\r\n")))?.[1] ?? 0);
  }
  reset() {
    this.socket.resetAndDestroy();
  }
  close() {
    this.socket.destroy();
  }
}
