// The command line as a person meets it: help, suggestions, flags of other servers, errors with their remedy, and the terminal chat.
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { QuireServer } from "../server_process.mjs";

const model = process.env.QUIRE_MODEL;
const folder = mkdtempSync(join(tmpdir(), "quire-"));
const env = { ...process.env, XDG_STATE_HOME: folder };
const kPatience = 300_000;  // milliseconds
const quire = (...args) => spawnSync(process.env.QUIRE_BINARY, args, { encoding: "utf8", env, timeout: kPatience });

function refused(args, what) {
  const done = quire(...args);
  assert.equal(done.status, 2, done.stderr);
  assert.match(done.stderr, what);
  assert.equal(done.stderr.trim().split("\n").filter((line) => !/ info /.test(line)).length, 1, "an error is one line");
}

test("without a command the commands are listed, and each explains itself", () => {
  const listed = quire();
  assert.equal(listed.status, 2);
  const names = [...listed.stderr.matchAll(/^ {2}([a-z-]+) {2,}\S/gm)].map((match) => match[1]).filter((name) => !name.startsWith("-"));
  for (const name of ["serve", "run", "inspect", "tokenize", "bench", "simulate", "help", "completion", "man"]) assert.ok(names.includes(name), name);
  for (const name of names) {
    const help = quire("help", name);
    assert.equal(help.status, 0, name);
    assert.match(help.stdout, new RegExp(`Usage: quire ${name}`));
    for (const line of help.stdout.split("\n")) assert.ok(!line.startsWith(" ".repeat(30)) || line.length <= 102, line);
  }
  assert.match(quire("help", "bench", "serve").stdout, /Usage: quire bench serve/);
  const serve = quire("serve", "--help").stdout;
  assert.match(serve, /--server\.port,--port=8080/);
  assert.match(serve, /scheduler \(.*\):/);
});

test("an unknown command or flag is answered with the nearest", () => {
  refused(["srve"], /unknown command 'srve'; did you mean 'serve'\?/);
  refused(["bench", "servee"], /quire bench: unknown command 'servee'; did you mean 'serve'\?/);
  refused(["frobnicate"], /unknown command 'frobnicate'; 'quire --help' lists all/);
  refused(["help", "inspekt"], /did you mean 'inspect'\?/);
  refused(["inspect", model, "--tensor"], /quire inspect: unknown option '--tensor'; did you mean '--tensors'\?/);
  refused(["serve", model, "--max-num-seq", "3"], /unknown option '--max-num-seq'; did you mean '--max-num-seqs'\?/);
  refused(["serve", model, "--lora", "a", "--max-loras", "2"], /'--lora' is another server's: use --adapters.*; option '--max-loras' is another server's/);
  refused(["ps"], /there is no command 'ps': the daemon says what it has loaded: curl/);
});

test("other programs' commands and flags work where they mean the same", () => {
  for (const words of [["version"], ["-v"]]) assert.equal(quire(...words).stdout, quire("--version").stdout);
  // Free memory changes between two commands.
  const described = (command) => quire(command, model).stdout.replace(/of [\d.]+ [KMGT]iB that the machine has left/, "");
  assert.equal(described("show"), described("inspect"));
  assert.equal(quire("list").stdout, quire("models").stdout);
  const checked = quire("serve", "-m", model, "-ngl", "99", "--jinja", "-fa", "on", "--check-config");
  assert.equal(checked.status, 0, checked.stderr);
  assert.match(checked.stderr, /^quire serve: left out, -ngl: the whole model is on one device.*; --jinja: always on; -fa: always on$/m);
});

test("errors name the remedy", async () => {
  refused(["serve"], /no model: give a GGUF file/);
  refused(["serve", "Qwen/Qwen2.5-0.5B-Instruct", "--port", "0"], /no such file; --hf Qwen\/Qwen2\.5-0\.5B-Instruct downloads and serves the Hugging Face repository/);
  refused(["serve", model, "--port", "0", "--kv-cache-memory", "100TiB"], /kv_cache\.memory is 100\.0 TiB .* set it to at most \d+MiB/);
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  refused(["serve", model, "--port", String(taken.address().port)], new RegExp(`in use by process ${process.pid} \\(.*--port`));
  taken.close();
});

test("models of Ollama's store are served where they lie", async () => {
  const store = mkdtempSync(join(tmpdir(), "quire-"));
  const digits = "ab".repeat(32);
  mkdirSync(join(store, "blobs"));
  symlinkSync(model, join(store, "blobs", `sha256-${digits}`));
  const manifests = join(store, "manifests/registry.ollama.ai/library/demo");
  mkdirSync(manifests, { recursive: true });
  const layers = [{ mediaType: "application/vnd.ollama.image.model", digest: `sha256:${digits}` }];
  writeFileSync(join(manifests, "latest"), JSON.stringify({ schemaVersion: 2, layers }));
  const one = quire("import", "ollama", "demo", "--store", store);
  assert.equal(one.stdout, `${join(store, "blobs", `sha256-${digits}`)}\n`, one.stderr);
  const all = quire("import", "ollama", "--store", store);
  assert.equal(all.status, 0, all.stderr);
  const config = join(store, "quire.yaml");
  writeFileSync(config, all.stdout);
  const server = await QuireServer.start(["--config", config], { model: null });
  const { message } = await (await server.post("/api/chat",
    { model: "demo", stream: false, messages: [{ role: "user", content: "Hello" }] })).json();
  assert.equal(message.role, "assistant");
  await server.stop();
  refused(["import", "ollama", "other", "--store", store], /'other' is not in .*'quire import ollama' lists/);
  refused(["import", "ollama", "--store", folder], /is no store of Ollama's/);
});

test("inspect is brief, or whole, or JSON", () => {
  const brief = quire("inspect", model).stdout;
  assert.ok(brief.split("\n").length < 16 && /memory plan/.test(brief), brief);
  assert.match(quire("inspect", model, "--tensors").stdout, /blk\.0\.attn_q\.weight/);
  assert.match(quire("inspect", model, "--metadata").stdout, /general\.architecture = "llama"/);
  assert.equal(JSON.parse(quire("inspect", model, "--json").stdout).model.architecture, "llama");
  assert.match(quire("inspect", model, "--device-memory", "24GiB").stdout, /memory plan on a GPU of 24\.0 GiB:[^]* of 21\.6 GiB that a GPU of 24\.0 GiB has left/);
});

test("tokenize shows a text's tokens", () => {
  assert.match(quire("tokenize", model, "Hello there").stdout, /^ +\d+ {2}"Hello"\n +\d+ {2}" there"\n2 tokens\n$/);
});

const line = (value) => JSON.stringify(value) + "\n";
const kDevCalls = [
  [["tokenize", "--model", model], ["Hello, wörld!", "<|im_end|>", ""].map((text) => line({ text })).join("")],
  [["tokenize", model, "--reverse"], line({ ids: [1, 2] })],
  [["render"], line({ template: "{{ 1 + 1 }}", context: {} })],
  [["parse-tools"], line({ format: "hermes", text: "Hi" })],
  [["architectures"], ""], [["api"], ""], [["configuration"], ""], [["help", "grammar"], ""], [["render", "--frob"], ""],
];
const dev = (program, [args, input]) => spawnSync(program, args, { input, encoding: "utf8", env, timeout: kPatience });

test("quire-dev answers line by line, and quire runs it for its commands", () => {
  const [tokens, back, rendered, parsed] = kDevCalls.map((call) => dev(process.env.QUIRE_DEV, call));
  const ids = tokens.stdout.trim().split("\n").map((each) => JSON.parse(each).ids);
  assert.ok(ids.length === 3 && ids[1].length > 1, "a control token in plain text stays text");
  assert.equal(typeof JSON.parse(back.stdout).text, "string");
  assert.deepEqual(JSON.parse(rendered.stdout), { text: "2" });
  assert.equal(JSON.parse(parsed.stdout).content, "Hi");
  const compiled = dev(process.env.QUIRE_DEV, [["grammar"], line({ schema: { type: "integer", minimum: 5 }, instances: ["7", "3"] })]);
  assert.deepEqual(JSON.parse(compiled.stdout).accepted, [true, false]);
  // The daemons on other devices stand in a folder without it.
  if (!existsSync(join(dirname(realpathSync(process.env.QUIRE_BINARY)), "quire-dev"))) return;
  for (const call of kDevCalls) {
    const [direct, handed] = [dev(process.env.QUIRE_DEV, call), dev(process.env.QUIRE_BINARY, call)];
    assert.deepEqual([handed.status, handed.stdout, handed.stderr], [direct.status, direct.stdout, direct.stderr], call[0]);
  }
});

test("without quire-dev beside it, quire says in a line where its commands are", () => {
  const alone = join(folder, "quire");
  copyFileSync(process.env.QUIRE_BINARY, alone);
  for (const call of kDevCalls.filter(([args]) => args[0] !== "help")) {
    const done = dev(alone, call);
    assert.equal(done.status, 2);
    assert.match(done.stderr, new RegExp(`^quire: '${call[0][0]}' .* is a command of quire-dev, .*ninja -C build/release quire-dev\\)\\n$`));
  }
  rmSync(alone);
});

test("man pages are made for every command, and completion for three shells", () => {
  const pages = join(folder, "man");
  spawnSync("mkdir", [pages]);
  assert.equal(quire("man", "--all", pages).status, 0);
  for (const page of ["quire.1", "quire-run.1", "quire-bench-kernel.1"]) assert.ok(readdirSync(pages).includes(page), page);
  assert.match(quire("man", "serve").stdout, /^\.TH QUIRE\\-SERVE 1/);
  for (const shell of ["bash", "zsh", "fish"]) assert.match(quire("completion", shell).stdout, /max-num-seqs/, shell);
  refused(["completion", "tcsh"], /tcsh/);
});

// Plays a script in a terminal: terminal.py says how.
async function terminal(steps, ...args) {
  const script = join(folder, "script.json");
  writeFileSync(script, JSON.stringify(steps));
  const command = [join(process.env.QUIRE_SOURCE, "tests/e2e/daemon/terminal.py"), script, process.env.QUIRE_BINARY, "run", ...args];
  return (await promisify(execFile)("python3", command, { env: { ...env, TERM: "xterm" }, timeout: kPatience })).stdout;
}

test("run answers one question", () => {
  const done = quire("run", model, "What", "is a KV block?", "--set", "temperature=0", "--set", "max_tokens=40");
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /KV/);
  refused(["run", `${model}.absent`, "Hi"], /no such file|No such file/);
  refused(["run", model, "--set", "temprature=1", "Hi"], /unknown setting 'temprature'; did you mean 'temperature'\?/);
});

test("run is a conversation in a terminal: settings, history, commands, an end", async () => {
  await terminal([
    ["expect", "/help lists commands"], ["expect", "> "],
    ["type", "/set temperature 0\r"], ["expect", "> "], ["type", "/set max_tokens 24\r"], ["expect", "> "],
    ["type", "/set\r"], ["expect", "max_tokens 24"], ["expect", "temperature 0.0".slice(0, 13)], ["expect", "> "],
    ["type", "/set temprature 1\r"], ["expect", "did you mean 'temperature'?"], ["expect", "> "],
    ["type", "What is a KV block?\r"], ["expect", "KV"], ["expect", "> "],
    ["type", "\u001b[A\r"], ["expect", "What is a KV block?"], ["expect", "> "],  // the line before, by the arrow
    ["type", "half a line\u0003"], ["type", "/hlep\r"], ["expect", "did you mean '/help'?"], ["expect", "> "],
    ["type", "/bye\r"], ["exit", 0],
  ], model);
});

test("Ctrl-C stops an answer, not the conversation, and the server stops computing it", async () => {
  const server = await QuireServer.start(["--api-key", "secret"]);
  try {
    await terminal([
      ["expect", "> "], ["type", "/set min_tokens 1900\r"], ["expect", "\r\n> "], ["type", "/set temperature 0\r"], ["expect", "\r\n> "],
      // Words of the answer alone: the question may be echoed twice.
      ["type", "Tell me a story.\r"], ["expect", " there was "], ["type", "\u0003"], ["expect", "(stopped)"], ["expect", "> "],
      ["type", "/set min_tokens\r"], ["expect", "\r\n> "], ["type", "/clear\r"], ["expect", "\r\n> "],
      ["type", "Hello!\r"], ["expect", "demo model"], ["expect", "\r\n> "], ["type", "\u0004"], ["exit", 0],
    ], "--url", server.url, "--api-key", "secret");
    await server.metric_becomes("vllm:num_requests_running", (value) => value === 0);
    assert.match(quire("run", "--url", server.url, "--api-key", "wrong", "Hi").stderr, /API key|api key/i);
  } finally {
    await server.stop();
  }
});

test("the server of a terminal chat ends with it, however that ends", async () => {
  const chat = spawn(process.env.QUIRE_BINARY, ["run", model], { env, stdio: ["pipe", "pipe", "inherit"] });
  chat.stdin.write("Hello!\n");
  await once(chat.stdout, "data");
  const children = spawnSync("pgrep", ["-P", String(chat.pid)], { encoding: "utf8" }).stdout.trim();
  assert.match(children, /^\d+$/);
  chat.kill("SIGKILL");
  await once(chat, "exit");
  for (let alive = true; alive;) {
    const state = spawnSync("ps", ["-o", "stat=", "-p", children], { encoding: "utf8" }).stdout.trim();
    alive = state !== "" && !state.startsWith("Z");
    if (alive) await new Promise((resolve) => setImmediate(resolve));
  }
});
