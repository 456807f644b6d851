// Helpers for sessions of agents: a folder to work in, a model with room for an agent's prompt, the scripted server,
// and the requests in its log.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { long_model } from "../models/long_model.mjs";
import { QuireServer } from "../server_process.mjs";

const kPatience = 240_000;  // milliseconds, for a whole session

export const tool_call = (name, args) =>
  `<tool_call>\n${JSON.stringify({ name, arguments: args }).replace(/^\{"name":("[^"]*"),"arguments":/, '{"name": $1, "arguments": ')}\n</tool_call>`;

export class AgentSession {
  // `script`: [{after, say}]; what is said behind a prompt in which `after` stands last.
  static async start(script) {
    const session = new AgentSession();
    session.folder = mkdtempSync(join(tmpdir(), "quire-agent-"));
    session.home = join(session.folder, "home");
    session.work = join(session.folder, "work");
    mkdirSync(session.home);
    mkdirSync(session.work);
    writeFileSync(join(session.work, "hello.txt"), "helo wurld\n");
    writeFileSync(join(session.folder, "script.json"), JSON.stringify(script));
    const model = long_model(session.folder);
    session.server = await QuireServer.start([], {
      model, binary: process.env.QUIRE_SCRIPTED, env: { QUIRE_SCRIPT: join(session.folder, "script.json"), QUIRE_MODEL: model },
    });
    session.url = `${session.server.url}/v1`;
    return session;
  }

  // Runs a program of an installed package, by its path below node_modules; its output where it exits with 0.
  async run(command, args, env = {}) {
    return this.#run(join(import.meta.dirname, "node_modules", command), args, env);
  }

  // The same by `quire launch`, which finds the agent's program in PATH.
  async launch(agent, args, env = {}) {
    const path = `${join(import.meta.dirname, "node_modules/.bin")}:${process.env.PATH}`;
    return this.#run(process.env.QUIRE_SCRIPTED, ["launch", agent, "--url", this.server.url, "--", ...args], { PATH: path, ...env });
  }

  async #run(program, args, env) {
    const child = spawn(program, args, {
      cwd: this.work, stdio: ["ignore", "pipe", "pipe"], detached: true,
      env: { PATH: process.env.PATH, HOME: this.home, NO_COLOR: "1", ...env },
    });
    let out = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (out += data));
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), kPatience);  // and what it started
    const [code, signal] = await once(child, "close");
    clearTimeout(timer);
    if (code !== 0) throw new Error(`${program} ended with ${code ?? signal}:\n${out}\n${this.server.log.join("\n")}`);
    return out;
  }

  file() {
    return readFileSync(join(this.work, "hello.txt"), "utf8");
  }

  // Of this session's requests, three at least, in their order: {status, prompt_tokens, cached_tokens}. Lines of the log
  // come by another way than answers.
  async requests(path) {
    await this.server.logged((line) => line.includes(`path=${path}`), 3);
    const number = (line, name) => Number(new RegExp(`\\b${name}=(\\d+)`).exec(line)?.[1] ?? NaN);
    return this.server.log.filter((line) => line.includes(`path=${path}`)).map((line) => ({
      status: number(line, "status"), prompt_tokens: number(line, "prompt_tokens"), cached_tokens: number(line, "cached_tokens"),
    }));
  }

  async stop() {
    await this.server.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
