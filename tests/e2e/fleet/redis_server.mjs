// A real redis-server for one test file: it keeps its port over restarts and writes no files.
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
    this.is_dead = false;
    let log = "";
    for await (const bytes of this.#process.stdout) {
      log += bytes;
      if (/Ready to accept connections/.test(log)) break;
    }
    assert.match(log, /Ready to accept connections/);
  }
  async kill() {
    this.is_dead = true;
    this.#process.kill("SIGKILL");
    await once(this.#process, "exit");
  }
  async num_keys(pattern) {
    return Number(/^:(\d+)/.exec(await this.command("EVAL", `return #redis.call('KEYS', '${pattern}')`, 0))[1]);
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

// Nodes with the slots, and one replica of each, on ports of their own.
class RedisCluster {
  constructor(nodes) {
    this.nodes = nodes;  // the replicas last
    this.size = nodes.length / 2;
  }
  get url() {
    return `redis://127.0.0.1:${this.nodes[0].port}`;
  }
  masters() {
    return this.nodes.slice(0, this.size);
  }
  async num_keys(pattern) {
    const counts = await Promise.all(this.nodes.filter((node) => !node.is_dead).map((node) => node.num_keys(pattern)));
    return Math.max(...counts);
  }
  async master_of(key) {
    for (const node of this.masters()) {
      if (!(await node.command("GET", key)).startsWith("-MOVED")) return node;
    }
    throw new Error(`no node has ${key}`);
  }
  // The replica of a node, once it has taken its slots over and the others know.
  async promoted(node) {
    const replica = this.nodes[this.nodes.indexOf(node) + this.size];
    const living = this.nodes.filter((each) => !each.is_dead);
    const knows = async (each) => new RegExp(`:${replica.port}@\\S* \\S*master.* \\d+-\\d+`).test(await each.command("CLUSTER", "NODES"));
    while ((await Promise.all(living.map(knows))).includes(false));
    return replica;
  }
}

async function until(is_true) {
  while (!(await is_true())) await new Promise((resolve) => setImmediate(resolve));
}

// With the files of a key and a certificate for `localhost` clients and nodes speak TLS on ports of their own, and nodes announce
// that name; the plain ports are the tests'.
export async function start_redis_cluster(num_masters, { key, certificate } = {}) {
  const nodes = [];
  for (let i = 0; i < 2 * num_masters; ++i) {
    const node = new Redis(await free_port());
    node.tls_port = key ? await free_port() : null;
    const tls = !key ? [] : ["--tls-port", node.tls_port, "--tls-cluster", "yes", "--tls-replication", "yes", "--tls-auth-clients", "no", "--tls-cert-file", certificate,
      "--tls-key-file", key, "--tls-ca-cert-file", certificate, "--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"];
    // Replicas are to be there when their masters die, however late the disk-less copy began.
    await node.start(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no",
      "--cluster-port", await free_port(), "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0", ...tls]);
    nodes.push(node);
  }
  const bus_of_first = /cluster-port\r\n\$\d+\r\n(\d+)/.exec(await nodes[0].command("CONFIG", "GET", "cluster-port"))[1];
  const first = (place) => Math.floor((16384 * place) / num_masters);
  for (const [place, node] of nodes.entries()) {
    if (place < num_masters) await node.command("CLUSTER", "ADDSLOTSRANGE", first(place), first(place + 1) - 1);
    await node.command("CLUSTER", "SET-CONFIG-EPOCH", place + 1);
    if (place > 0) await node.command("CLUSTER", "MEET", "127.0.0.1", nodes[0].tls_port ?? nodes[0].port, bus_of_first);
  }
  const is_met = async (node) => {
    const text = await node.command("CLUSTER", "NODES");
    return text.match(/ connected/g)?.length === nodes.length && (!key || text.match(/,localhost/g)?.length === nodes.length);
  };
  await until(async () => !(await Promise.all(nodes.map(is_met))).includes(false));
  for (let place = 0; place < num_masters; ++place) {
    const id = /[0-9a-f]{40}/.exec(await nodes[place].command("CLUSTER", "MYID"))[0];
    const replica = nodes[place + num_masters];
    await until(async () => (await replica.command("CLUSTER", "REPLICATE", id)).startsWith("+OK"));
    await until(async () => /master_link_status:up/.test(await replica.command("INFO", "replication")));
  }
  await until(async () => {
    const infos = await Promise.all(nodes.map((node) => node.command("CLUSTER", "INFO")));
    return infos.every((info) => /cluster_state:ok/.test(info) && /cluster_slots_ok:16384/.test(info));
  });
  return new RedisCluster(nodes);
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
