// A subscriber to the events of a prefix cache, over Debian's ZeroMQ and MessagePack. For several test files.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { QuireServer } from "../server_process.mjs";

const kPython = "/usr/bin/python3";  // Debian's own, which has Debian's packages
const kHasZmq = spawnSync(kPython, ["-c", "import msgpack, zmq"]).status === 0;
export const kNeedsZmq = { skip: kHasZmq ? false : "python3-zmq or python3-msgpack is not installed" };

export async function free_ports(count) {
  const servers = Array.from({ length: count }, () => net.createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => once(server.close(), "close")));
  return ports;
}

// Its latest line is `state`.
export async function follow(endpoint, replay) {
  const script = join(process.env.QUIRE_SOURCE, "tests/e2e/fleet/kv_events_subscriber.py");
  const child = spawn(kPython, [script, endpoint, replay], { stdio: ["ignore", "pipe", "inherit"] });
  after(() => child.kill("SIGKILL"));
  const subscriber = { state: null, child };
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => { subscriber.state = JSON.parse(line); });
  await once(lines, "line");
  return subscriber;
}


// A daemon that publishes, and how to ask what its cache holds.
export async function start_publisher(flags = []) {
  const [port, replay_port, admin_port] = await free_ports(3);
  const server = await QuireServer.start([...flags, "--server.admin-listen", `127.0.0.1:${admin_port}`, "--kv-cache.events.endpoint", `tcp://*:${port}`,
    "--kv-cache.events.replay-endpoint", `tcp://*:${replay_port}`, "--kv-cache.events.topic", "kv@here@{model}"]);
  after(() => server.kill());
  const cache = async () => {
    const { data: [of_model] } = await (await fetch(`http://127.0.0.1:${admin_port}/admin/cache`)).json();
    assert.equal(of_model.model, "quire-demo");
    return of_model;
  };
  return { server, cache, subscribe: () => follow(`tcp://127.0.0.1:${port}`, `tcp://127.0.0.1:${replay_port}`) };
}

// Until the subscriber's index is what the cache holds; `prompt` makes something happen where it has seen no event yet.
export async function agree(publisher, subscriber, prompt) {
  for (;;) {
    const cache = await publisher.cache();
    const { blocks, digest, gaps, topic } = subscriber.state;
    if (cache.blocks === blocks && cache.digest === digest) {
      assert.ok(blocks > 20);
      assert.equal(gaps, 0);
      assert.equal(topic, "kv@here@quire-demo");
      return;
    }
    assert.equal(subscriber.child.exitCode, null, "the subscriber ended");
    if (subscriber.state.number < 0) await prompt();
    await new Promise((resolve) => setImmediate(resolve));
  }
}
