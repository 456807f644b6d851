// Prefill apart from decode: one daemon computes a prompt and writes its blocks to a real Redis, another reads them, in
// the protocol of vLLM's proxies and llm-d's sidecar. The texts equal those of a single daemon, even if the store
// fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { start } from "../fleet/fleet_support.mjs";
import { kNeedsRedis as options, start_redis } from "../fleet/redis_server.mjs";

const kWords = ["block", "river", "token", "story", "cache"];
const kText = (index) => Array.from({ length: 300 }, (_, word) => kWords[(index * 3 + word * word) % 5]).join(" ");
const kAsks = [
  (index) => ["/v1/completions", { prompt: `${index} ${kText(index)}` }],
  (index) => ["/v1/chat/completions", { messages: [{ role: "user", content: `${index} ${kText(index)} What is a KV block?` }] }],
];
const kDraws = { model: "quire-demo", max_tokens: 32, temperature: 0.8, seed: 11, ignore_eos: true };
const text_of = ({ choices: [choice] }) => choice.text ?? choice.message.content;
const computed = ({ usage }) => usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens;

async function ask(server, [path, fields], more = {}) {
  const response = await server.post(path, { ...kDraws, ...fields, ...more });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

async function num_records(redis) {
  return Number(/db1:keys=(\d+)/.exec(await redis.command("INFO", "keyspace"))?.[1] ?? 0);
}

// What the routers send first, and what they pass on.
const kPrefill = { do_remote_decode: true, do_remote_prefill: false, remote_engine_id: null, remote_block_ids: null, remote_host: null, remote_port: null };
async function prefill(server, request) {
  const answer = await ask(server, request, { max_tokens: 1, max_completion_tokens: 1, stream: false, kv_transfer_params: kPrefill });
  return { ...answer, params: answer.kv_transfer_params };
}

test("a prompt is computed by one daemon and decoded by another, with the text of one alone", options, async () => {
  const redis = await start_redis();
  const alone = await start(null);
  const [first, second] = [await start(redis), await start(redis)];
  for (const make of kAsks) {
    const request = make(0);
    const num_before = await num_records(redis);
    const { params, usage } = await prefill(first, request);
    const num_full = params.remote_num_tokens;
    assert.ok(num_full > 250 && usage.prompt_tokens - num_full < 16, `${num_full} of ${usage.prompt_tokens} tokens`);
    assert.equal(params.remote_block_ids.length, num_full / 16);
    assert.equal(params.do_remote_prefill, true);
    // Written, not only queued: no other process needs the first daemon any more.
    const num_stored = await num_records(redis);
    assert.ok(num_stored - num_before >= num_full / 16, `${num_stored - num_before} records`);
    const answer = await ask(second, request, { kv_transfer_params: params });
    assert.equal(text_of(answer), text_of(await ask(alone, request)));
    assert.ok(computed(answer) <= 64, `${computed(answer)} of ${usage.prompt_tokens} computed`);
    assert.equal(answer.kv_transfer_params, undefined);
  }
  assert.ok((await second.metrics())["quire:shared_store_blocks_read_total"] > 30);
  // Once more, streamed: the last chunk has what the whole answer has, and nothing is computed or written again.
  const request = kAsks[0](0);
  const [path, fields] = request;
  const response = await first.post(path, { ...kDraws, ...fields, max_tokens: 1, stream: true, kv_transfer_params: kPrefill });
  const chunks = (await response.text()).split("\n\n").filter((part) => part.startsWith("data: {")).map((part) => JSON.parse(part.slice(6)));
  assert.deepEqual(chunks.at(-1).kv_transfer_params, (await prefill(first, request)).params);
  for (const server of [alone, first, second]) await server.stop();
});

test("blocks of another model, level or prompt, and forged names, are not waited for", options, async () => {
  const redis = await start_redis();
  const [first, other] = [await start(redis), await start(redis, ["--block-size", "32"])];
  const request = kAsks[0](1);
  const { params } = await prefill(first, request);
  const expected = text_of(await ask(first, request));
  const forged = [params, { ...params, remote_last_block: "0".repeat(32) }, { ...params, remote_num_tokens: 2 ** 31 - 1 },
    { ...params, remote_num_tokens: 17 }, { ...params, remote_engine_id: "other" }, { do_remote_prefill: true, remote_block_ids: [1, 2], remote_host: "h", remote_port: 5600 }];
  for (const kv_transfer_params of forged) {
    const answer = await ask(other, request, { kv_transfer_params });
    assert.equal(text_of(answer), expected);
  }
  assert.equal((await other.metrics())["quire:shared_store_blocks_read_total"], 0);
  for (const kv_transfer_params of [{ do_remote_decode: true, do_remote_prefill: true }, { remote_port: "x" }, { remote_block_ids: 1 }, []]) {
    const response = await first.post("/v1/completions", { ...kDraws, prompt: "x", kv_transfer_params });
    assert.equal(response.status, 400);
    assert.equal((await response.json()).error.param, "kv_transfer_params");
  }
  const list = await first.post("/v1/completions", { ...kDraws, prompt: ["a", "b"], kv_transfer_params: kPrefill });
  assert.equal(list.status, 400);
  await first.stop();
  await other.stop();
});

test("a store that dies between prefill and decode, before both, or that there is not: every text is right", options, async () => {
  const redis = await start_redis();
  const alone = await start(null);
  const [first, second] = [await start(redis), await start(redis)];
  const decode = async (index, request, params) => {
    const answer = await ask(second, request, { kv_transfer_params: params });
    assert.equal(text_of(answer), text_of(await ask(alone, request)), `prompt ${index}`);
    return answer;
  };
  const request = kAsks[1](2);
  const { params } = await prefill(first, request);
  assert.ok(params.remote_num_tokens > 250);
  await redis.kill();
  assert.ok(computed(await decode(2, request, params)) > 250, "it was computed");
  const down = await prefill(first, kAsks[0](3));
  assert.equal(down.params.remote_num_tokens, 0);
  await decode(3, kAsks[0](3), down.params);
  // It is back, and empty: what the first daemon computed without it is written now that it is asked for.
  await redis.start();
  for (const server of [first, second]) await server.metric_becomes("quire:shared_store_up", (up) => up === 1);
  const again = await prefill(first, kAsks[0](3));
  assert.ok(again.params.remote_num_tokens > 250, `${again.params.remote_num_tokens} tokens`);
  assert.ok(computed(again) < 64, "from its own cache");
  await decode(3, kAsks[0](3), again.params);
  // Paused while blocks are written and read.
  const fresh = kAsks[0](4);
  const paused = prefill(first, fresh);
  await redis.command("CLIENT", "PAUSE", "3000", "ALL");
  await decode(4, fresh, (await paused).params);
  assert.equal((await prefill(alone, request)).params.remote_block_ids.length, 0);
  for (const server of [alone, first, second]) {
    assert.equal(server.log.filter((line) => /CHECK|invariant/.test(line)).length, 0);
    await server.stop();
  }
});
