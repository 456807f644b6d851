// A day of simulated traffic at a daemon, its arrivals one after another without the time between them: at its end an index
// rebuilt from the events holds what the prefix cache holds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { agree, kNeedsZmq as options, start_publisher } from "./kv_events_support.mjs";

const kDay = 86_400;  // seconds
const kRequests = 400;
const kWords = ["block", "river", "token", "story", "cache", "time", "world", "house"];

let state = 1;
const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const text = (count) => Array.from({ length: count }, () => kWords[Math.floor(random() * kWords.length)]).join(" ");

// Conversations behind a few beginnings, most of them at noon; a turn follows some hours after the one before it.
function day() {
  const beginnings = [text(80), text(80), text(80)];
  const arrivals = [];
  while (arrivals.length < kRequests) {
    const time = random() * kDay;
    if (random() > (1 - Math.cos((2 * Math.PI * time) / kDay)) / 2) continue;
    let prompt = beginnings[Math.floor(random() * beginnings.length)];
    for (let turn = 0, at = time; turn < 3 && at < kDay; ++turn, at += random() * 14_400) {
      prompt = `${prompt}\n${text(10 + Math.floor(random() * 40))}`;
      arrivals.push({ time: at, prompt, max_tokens: 1 + Math.floor(random() * 16) });
    }
  }
  return arrivals.sort((a, b) => a.time - b.time);
}

test("after a day of simulated traffic an index rebuilt from the events agrees with the cache", options, async () => {
  const publisher = await start_publisher(["--num-blocks", "250"]);
  const { server } = publisher;
  const ask = async ({ prompt, max_tokens }) => {
    const response = await server.post("/v1/completions", { model: "quire-demo", prompt, max_tokens, ignore_eos: true });
    assert.equal(response.status, 200);
    await response.json();
  };
  const serve = async (arrivals) => {
    const queue = [...arrivals];
    const work = async () => {
      for (let next = queue.shift(); next; next = queue.shift()) await ask(next);
    };
    await Promise.all([work(), work(), work(), work()]);
  };
  const arrivals = day();
  const noon = arrivals.findIndex(({ time }) => time > kDay / 2);
  const early = await publisher.subscribe();
  await serve(arrivals.slice(0, noon));
  const late = await publisher.subscribe();
  await serve(arrivals.slice(noon));
  const again = () => ask({ prompt: text(40), max_tokens: 16 });
  await agree(publisher, early, again);
  await agree(publisher, late, again);
  await agree(publisher, early, again);
  const metrics = await server.metrics();
  assert.equal(metrics["quire:kv_event_losses_total"], 0);
  assert.ok(metrics["vllm:prefix_cache_hits_total"] > 0);
  const { blocks, stored, number } = early.state;
  assert.ok(stored > 3 * blocks, `${stored} blocks were stored, ${blocks} are there`);
  console.log(`# ${arrivals.length} requests, ${stored} blocks stored in ${number + 1} batches, ${blocks} at the end`);
  await server.stop();
});
