// The events of the prefix cache, as routers read them: a subscriber over Debian's ZeroMQ and MessagePack rebuilds what the pool
// holds from them, through evictions, and agrees with GET /admin/cache. And the metrics that routers read.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { agree, kNeedsZmq as options, start_publisher } from "./kv_events_support.mjs";
import { QuireServer } from "../server_process.mjs";

const words = ["block", "river", "token", "story", "cache"];
const prompt_of = (index) => `${index % 7} ` + Array.from({ length: 60 + index % 40 }, (_, word) => words[(index * 3 + word * word) % 5]).join(" ");

test("a subscriber rebuilds the prefix cache from its events and agrees with the daemon, after evictions too", options, async () => {
  const publisher = await start_publisher(["--num-blocks", "60"]);
  const { server } = publisher;
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
  let next = 1000;
  const agrees = (subscriber) => agree(publisher, subscriber, () => traffic(next++, 1));
  await traffic(0, 60);
  const subscriber = await publisher.subscribe();
  await agrees(subscriber);
  await traffic(100, 200);
  await agrees(subscriber);
  const late = await publisher.subscribe();
  await agrees(late);
  await agrees(subscriber);
  assert.equal((await server.metrics())["quire:kv_event_losses_total"], 0);
  await server.stop();
});

test("blocks of an adapter have its name, also for a subscriber that comes later", options, async () => {
  const adapter = join(process.env.QUIRE_MODEL, "../adapter/quire-sailor.gguf");
  const publisher = await start_publisher(["--num-blocks", "60", "--adapters", `sailor=${adapter}`]);
  const { server } = publisher;
  const ask = async (model, index) => {
    const response = await server.post("/v1/completions", { model, prompt: prompt_of(index), max_tokens: 20, ignore_eos: true });
    assert.equal(response.status, 200);
    await response.json();
  };
  for (const index of [1, 2, 3, 4]) await ask(index % 2 ? "sailor" : "quire-demo", 10 * index);
  for (const subscriber of [await publisher.subscribe(), await publisher.subscribe()]) {
    await agree(publisher, subscriber, () => ask("sailor", 50));
    const { sailor, "": plain } = subscriber.state.adapters;
    assert.ok(sailor > 10 && plain > 10, JSON.stringify(subscriber.state));
    assert.equal(sailor + plain, subscriber.state.blocks);
  }
  await server.stop();
});

// By router, as their public sources name them: deploy/docs/fleet.md.
const kRead = {
  "the Gateway API's endpoint picker and llm-d": [/^vllm:num_requests_waiting\{/m, /^vllm:num_requests_running\{/m, /^vllm:kv_cache_usage_perc\{/m,
    /^vllm:cache_config_info\{(?=.*block_size="16")(?=.*num_gpu_blocks="60")/m],
  "vLLM's production stack": [/^vllm:gpu_cache_usage_perc\{/m, /^vllm:gpu_prefix_cache_hits_total\{/m, /^vllm:gpu_prefix_cache_queries_total\{/m],
};

test("the metrics that routers read are there under the names that they read", async () => {
  const server = await QuireServer.start(["--num-blocks", "60"]);
  const text = await (await fetch(`${server.url}/metrics`)).text();
  for (const [router, patterns] of Object.entries(kRead)) {
    for (const pattern of patterns) assert.match(text, pattern, router);
  }
  await server.stop();
});
