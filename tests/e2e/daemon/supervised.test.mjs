// A daemon under a supervisor: a socket that was opened before it, notifications, the watchdog, and a binary that is
// replaced while clients keep asking.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import http from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

const has_python = spawnSync("python3", ["--version"]).status === 0;
const kFlags = ["--model", process.env.QUIRE_MODEL, "--port", "1"];  // a port that is never used: the socket is given

class Supervisor {
  events = [];
  #waiting = [];

  constructor(context) {
    this.process = spawn("python3", [join(process.env.QUIRE_SOURCE, "tests/e2e/daemon/supervisor.py")], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      this.events.push(JSON.parse(line));
      this.#waiting = this.#waiting.filter((look) => !look());
    });
    context.after(() => {
      this.say("end");
      this.process.stdin.end();
    });
  }

  say(line) {
    this.process.stdin.write(`${line}\n`);
  }

  // The first event from index `from` on that `wanted` accepts.
  event(wanted, from = 0) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.events.slice(from).find(wanted);
        if (found) resolve(found);
        return found;
      };
      if (!look()) this.#waiting.push(look);
    });
  }
}

const kBody = JSON.stringify({ prompt: "Once upon a time", max_tokens: 4, temperature: 0 });

function ask(port, agent) {
  return new Promise((resolve, reject) => {
    const request = http.request({
      port, agent, host: "127.0.0.1", path: "/v1/completions", method: "POST", headers: { "Content-Type": "application/json" },
    }, (response) => {
      let text = "";
      response.on("data", (bytes) => { text += bytes; });
      response.on("end", () => resolve({ status: response.statusCode, text }));
    });
    request.on("error", reject);
    request.end(kBody);
  });
}

test("the daemon reports its state to its supervisor", { skip: !has_python && "python3 is absent" }, async (context) => {
  const supervisor = new Supervisor(context);
  const { listening } = await supervisor.event((event) => event.listening);
  supervisor.say(`start ${kFlags.join(" ")}`);
  // Asked before it serves: the connection waits rather than being refused.
  assert.equal((await ask(listening, false)).status, 200);
  await supervisor.event((event) => event.notify?.startsWith("READY=1"));
  const notes = supervisor.events.map((event) => event.notify ?? "");
  const extended = notes.findIndex((note) => /^EXTEND_TIMEOUT_USEC=\d+$/.test(note));
  assert.ok(extended >= 0 && extended < notes.findIndex((note) => note.startsWith("READY=1")), "the start is extended while weights are read");
  await supervisor.event((event) => event.notify === "WATCHDOG=1");
  const seen = supervisor.events.length;
  supervisor.say("signal 0 SIGTERM");
  await supervisor.event((event) => event.notify?.startsWith("STOPPING=1"), seen);
  assert.equal((await supervisor.event((event) => event.ended === 0)).code, 0);
});

test("replacing the binary loses no connection", { skip: !has_python && "python3 is absent" }, async (context) => {
  const supervisor = new Supervisor(context);
  const { listening } = await supervisor.event((event) => event.listening);
  const flags = [...kFlags, "--drain.delay", "200ms"].join(" ");
  supervisor.say(`start ${flags}`);
  let seen = 0;
  let over = false;
  let num_answers = 0;
  const client = async (agent) => {
    while (!over) {
      const { status, text } = await ask(listening, agent);
      assert.equal(status, 200, text);
      ++num_answers;
    }
  };
  const keeping = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const clients = [client(false), client(false), client(false), client(keeping)];
  for (let number = 0; number < 3; ++number) {
    await supervisor.event((event) => event.notify?.startsWith("READY=1"), seen);
    seen = supervisor.events.length;
    const before = num_answers;
    while (num_answers < before + 10) await Promise.race([...clients, new Promise((resolve) => setImmediate(resolve))]);
    supervisor.say(`signal ${number} SIGTERM`);
    supervisor.say(`start ${flags}`);
    assert.equal((await supervisor.event((event) => event.ended === number)).code, 0);
  }
  over = true;
  await Promise.all(clients);
});

test("an idle daemon ends, and the next connection is for the one that follows", { skip: !has_python && "python3 is absent" }, async (context) => {
  const supervisor = new Supervisor(context);
  const { listening } = await supervisor.event((event) => event.listening);
  const flags = [...kFlags, "--server.exit-when-idle", "1s"].join(" ");
  supervisor.say(`start ${flags}`);
  assert.equal((await ask(listening, false)).status, 200);
  assert.equal((await supervisor.event((event) => event.ended === 0)).code, 0);
  const answer = ask(listening, false);
  supervisor.say(`start ${flags}`);
  assert.equal((await answer).status, 200);
});
