// The events of the prefix cache, as routers read them: a subscriber over Debian's ZeroMQ and MessagePack rebuilds what the pool
// holds from them, through evictions, and agrees with GET /admin/cache.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { QuireServer } from "./server_process.mjs";

const kPython = "/usr/bin/python3";  // Debian's own, which has Debian's packages
const kHasZmq = spawnSync(kPython, ["-c", "import msgpack, zmq"]).status === 0;
const options = { skip: kHasZmq ? false : "python3-zmq or python3-msgpack is not installed" };

async function free_ports(count) {
  const servers = Array.from({ length: count }, () => net.createServer().listen(0, "127.0.0.1"));
  await Promise.all(servers.map((server) => once(server, "listening")));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => once(server.close(), "close")));
  return ports;
}

// Its latest line is `state`.
async function follow(endpoint, replay) {
  const script = join(process.env.QUIRE_SOURCE, "tests/e2e/kv_events_subscriber.py");
  const child = spawn(kPython, [script, endpoint, replay], { stdio: ["ignore", "pipe", "inherit"] });
  after(() => child.kill("SIGKILL"));
  const subscriber = { state: null, child };
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => { subscriber.state = JSON.parse(line); });
  await once(lines, "line");
  return subscriber;
}

const words = ["block", "river", "token", "story", "cache"];
const prompt_of = (index) => `${index % 7} ` + Array.from({ length: 60 + index % 40 }, (_, word) => words[(index * 3 + word * word) % 5]).join(" ");

test("a subscriber rebuilds the prefix cache from its events and agrees with the daemon, after evictions too", options, async () => {
  const [port, replay_port, admin_port] = await free_ports(3);
  const server = await QuireServer.start(["--num-blocks", "60", "--server.admin-listen", `127.0.0.1:${admin_port}`, "--kv-cache.events.endpoint", `tcp://*:${port}`,
    "--kv-cache.events.replay-endpoint", `tcp://*:${replay_port}`, "--kv-cache.events.topic", "kv@here@{model}"]);
  after(() => server.kill());
  const traffic = async (first, count) => {
    const queue = Array.from({ length: count }, (_, index) => first + index);
    const work = async () => {
      for (let index = queue.shift(); index !== undefined; index = queue.shift()) {
        const response = await server.post("/v1/completions", { model: "quire-demo", prompt: prompt_of(index), max_tokens: 20, ignore_eos: true });
        assert.equal(response.status, 200);
        await response.json();
      }
    };
    await Promise.all([work(), work(), work(), work()]);
  };
  // A new event comes with every request: until one has been seen, and then until both say the same.
  const agree = async (subscriber, first) => {
    for (let index = first; ; ++index) {
      const { data: [cache] } = await (await fetch(`http://127.0.0.1:${admin_port}/admin/cache`)).json();
      assert.equal(cache.model, "quire-demo");
      const { blocks, digest, gaps, topic } = subscriber.state;
      if (cache.blocks === blocks && cache.digest === digest) {
        assert.ok(blocks > 20);
        assert.equal(gaps, 0);
        assert.equal(topic, "kv@here@quire-demo");
        return;
      }
      assert.equal(subscriber.child.exitCode, null, "the subscriber ended");
      if (subscriber.state.number < 0) await traffic(index, 1);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await traffic(0, 60);
  const subscriber = await follow(`tcp://127.0.0.1:${port}`, `tcp://127.0.0.1:${replay_port}`);
  await agree(subscriber, 1000);
  await traffic(100, 200);
  await agree(subscriber, 2000);
  const late = await follow(`tcp://127.0.0.1:${port}`, `tcp://127.0.0.1:${replay_port}`);
  await agree(late, 3000);
  await agree(subscriber, 4000);
  assert.equal((await server.metrics())["quire:kv_event_losses_total"], 0);
  await server.stop();
});
