// A fleet under load, with a store that answers after a second, or with a daemon that is killed: only the streams of
// that daemon are affected.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { after, test } from "node:test";
import { completed, prompt_of, published, start } from "./fleet_support.mjs";
import { kNeedsRedis as options, start_redis } from "./redis_server.mjs";
import { sse_events } from "../server_process.mjs";

const kIndices = Array.from({ length: 12 }, (_, index) => index);

async function texts_alone() {
  const alone = await start(null, ["--kv-cache.prefix-caching", "false"]);
  const expected = [];
  for (const index of kIndices) expected.push(await completed(alone, index));
  await alone.stop();
  return expected;
}

// Passes bytes on to the store, its answers as late as `delay` says.
async function slow_way(port) {
  const way = { delay: 0 };
  const server = net.createServer((client) => {
    const store = net.connect(port, "127.0.0.1");
    const ends = () => (client.destroy(), store.destroy());
    for (const socket of [client, store]) socket.on("error", ends).on("close", ends);
    client.on("data", (bytes) => store.write(bytes));
    store.on("data", (bytes) => (way.delay > 0 ? setTimeout(() => client.write(bytes), way.delay) : client.write(bytes)));
  });
  server.listen(0, "127.0.0.1");
  after(() => server.close());
  await once(server, "listening");
  way.url = `redis://127.0.0.1:${server.address().port}/1`;
  return way;
}

// Every prompt by each of the servers, four at once.
async function round(servers, expected) {
  const queue = kIndices.flatMap((index) => servers.map((server) => ({ index, server })));
  const work = async () => {
    for (let next = queue.shift(); next; next = queue.shift())
      assert.equal(await completed(next.server, next.index), expected[next.index], `prompt ${next.index}`);
  };
  await Promise.all([work(), work(), work(), work()]);
}

test("a store that becomes a second away under load, and stays so: no request fails or differs", options, async () => {
  const expected = await texts_alone();
  const redis = await start_redis();
  const way = await slow_way(redis.port);
  // A pool for three of the prompts: blocks leave it and come back all the time.
  const servers = [await start(way, ["--num-blocks", "40"]), await start(way, ["--num-blocks", "40"])];
  await round(servers, expected);
  await round(servers, expected);
  for (const server of servers) assert.ok((await server.metrics())["quire:shared_store_blocks_read_total"] > 0, "blocks came from the store");
  const load = round(servers, expected);
  way.delay = 1000;
  await load;
  for (let i = 0; i < 4; ++i) await round(servers, expected);
  for (const server of servers) await server.metric_becomes("quire:shared_store_up", (up) => up === 0);
  way.delay = 0;
  for (const server of servers) await server.metric_becomes("quire:shared_store_up", (up) => up === 1);
  await round(servers, expected);
  for (const server of servers) await server.stop();
});

// The text of a stream, and whether it ended as streams do.
async function streamed(server, index, begun = () => {}) {
  let text = "";
  try {
    const body = { model: "quire-demo", prompt: prompt_of(index), max_tokens: 24, temperature: 0, ignore_eos: true, stream: true };
    const response = await server.post("/v1/completions", body);
    assert.equal(response.status, 200);
    for await (const { choices } of sse_events(response)) {
      text += choices[0]?.text ?? "";
      begun();
    }
    return { text, whole: true };
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    return { text, whole: false };
  }
}

test("a daemon that is killed under load takes its own streams with it and nothing else; a fresh one starts from shared blocks",
  options, async () => {
    const expected = await texts_alone();
    const redis = await start_redis();
    const servers = [await start(redis), await start(redis), await start(redis)];
    const [doomed, ...others] = servers;
    await round(others.slice(0, 1), expected);
    await published(others[0]);
    let killed = false;
    const kill = () => {
      if (!killed) doomed.kill();
      killed = true;
    };
    const streams = kIndices.flatMap((index) => servers.map(async (server) =>
      ({ server, index, ...await streamed(server, index, server === doomed ? kill : () => {}) })));
    let num_cut = 0;
    for (const { server, index, text, whole } of await Promise.all(streams)) {
      if (server !== doomed) assert.ok(whole, `prompt ${index} failed at a daemon that lives`);
      if (whole) assert.equal(text, expected[index]);
      if (!whole) assert.ok(expected[index].startsWith(text), `prompt ${index} differs before it was cut`);
      if (!whole) ++num_cut;
    }
    assert.ok(killed && num_cut > 0, "nothing was cut");
    assert.equal((await doomed.ended()).signal, "SIGKILL");
    await round(others, expected);
    const fresh = await start(redis);
    for (const index of kIndices) assert.equal(await completed(fresh, index), expected[index]);
    await published(fresh);
    const metrics = await fresh.metrics();
    assert.equal(metrics["quire:shared_store_blocks_missed_total"], 0);
    const { "vllm:prompt_tokens_total": prompts, "vllm:prefix_cache_hits_total": hits } = metrics;
    assert.ok(prompts - hits <= 64 * kIndices.length, `${prompts - hits} of ${prompts} prompt tokens were computed`);
    assert.ok(hits > prompts / 2, `${hits} of ${prompts} prompt tokens were shared`);
    for (const server of [...others, fresh]) await server.stop();
  });
