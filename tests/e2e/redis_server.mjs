// A real redis-server for one test file: on a port that stays its own over restarts, without files.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

const kHasRedis = spawnSync("redis-server", ["--version"]).status === 0;
export const kNeedsRedis = { skip: kHasRedis ? false : "redis-server is not installed" };

export async function free_port() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// A redis-server on a port that stays its own over restarts.
export class Redis {
  #process;
  constructor(port) {
    this.port = port;
    this.folder = mkdtempSync(join(tmpdir(), "quire-redis-"));
    after(() => {
      this.#process?.kill("SIGKILL");
      rmSync(this.folder, { recursive: true, force: true });
    });
  }
  get url() {
    return `redis://127.0.0.1:${this.port}/1`;
  }
  async start(flags = []) {
    this.#process = spawn("redis-server", ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--dir", this.folder, ...flags],
      { stdio: ["ignore", "pipe", "inherit"] });
    let log = "";
    for await (const bytes of this.#process.stdout) {
      log += bytes;
      if (/Ready to accept connections/.test(log)) break;
    }
    assert.match(log, /Ready to accept connections/);
  }
  async kill() {
    this.#process.kill("SIGKILL");
    await once(this.#process, "exit");
  }
  // The bytes of its answer to one command.
  async command(...words) {
    const socket = net.connect(this.port, "127.0.0.1");
    socket.write(`*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(`${word}`)}\r\n${word}\r\n`).join("")}`);
    const [bytes] = await once(socket, "data");
    socket.destroy();
    return bytes.toString();
  }
}

export async function start_redis(flags) {
  const redis = new Redis(await free_port());
  await redis.start(flags);
  return redis;
}

// Answers whatever is asked with what is no reply.
export async function serve_garbage(port, garbage) {
  const sockets = new Set();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("data", () => socket.write(garbage));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    return once(server, "close");
  };
}
