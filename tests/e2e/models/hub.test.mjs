// Models by name on the command line: quire pull, models, serve --hf and run --hf against a local hub: the cache's layout, resumed and
// damaged transfers, kill -9, errors with their remedy, TLS, offline.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { FakeHub, blob_name, git_oid, sha256 } from "./fake_hub.mjs";
import { QuireServer } from "../server_process.mjs";

const demo = readFileSync(process.env.QUIRE_MODEL);
const kPatience = 300_000;  // milliseconds
const kSize = 300_000;
const content = (seed, size = kSize) => createHash("shake256", { outputLength: size }).update(seed).digest();
let hub;
let cache;

before(async () => {
  hub = await FakeHub.start();
  hub.add("owner/demo", { "demo.Q8_0.gguf": demo, "mmproj-demo.gguf": content("eye"), "README.md": "text" });
  hub.add("owner/several", { "several-q4_0.gguf": content("q4_0"), "several-Q4_K_M.gguf": content("q4_k_m"), "several-q8_0.gguf": content("q8_0"),
    "mmproj-F16.gguf": content("eye") });
  hub.add("owner/blind", { "several-q4_0.gguf": content("q4_0"), "several-Q4_K_M.gguf": content("q4_k_m"), "several-q8_0.gguf": content("q8_0") });
});
after(() => hub.stop());
beforeEach(() => {
  cache = mkdtempSync(join(tmpdir(), "quire-hub-"));
  hub.faults = {};
  hub.requests = [];
});

const environment = (more = {}) => {
  const kept = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(HF|HUGGING|SSL)_/.test(name)));
  return { ...kept, HF_ENDPOINT: hub.url, HF_HUB_CACHE: cache, HF_HOME: join(cache, "home"), ...more };
};
// Beside this process, which is the hub.
async function quire(args, more = {}) {
  const child = spawn(process.env.QUIRE_BINARY, args, { env: environment(more), stdio: ["ignore", "pipe", "pipe"] });
  const timer = setTimeout(() => child.kill("SIGKILL"), kPatience);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text) => (stdout += text));
  child.stderr.on("data", (text) => (stderr += text));
  const [status] = await once(child, "close");
  clearTimeout(timer);
  return { status, stdout, stderr };
}
const pulled = async (model, more = {}) => {
  const done = await quire(["pull", model], more);
  assert.equal(done.status, 0, done.stderr);
  return done.stdout.trim();
};
const refused = async (args, what, more = {}) => {
  const done = await quire(args, more);
  assert.equal(done.status, 2, `${done.stdout}${done.stderr}`);
  assert.match(done.stderr, what);
};
const folder_of = (name) => join(cache, `models--${name.replace("/", "--")}`);
const blobs = (name) => (existsSync(join(folder_of(name), "blobs")) ? readdirSync(join(folder_of(name), "blobs")).sort() : []);
// Waits until a file has so many bytes.
const grows_to = async (path, size) => {
  const late = Date.now() + kPatience;
  while (!existsSync(path) || statSync(path).size < size) {
    if (Date.now() > late) throw new Error(`waited for ${size} bytes in ${path}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
};

test("a pull makes the hub's own layout, once", async () => {
  const path = await pulled("owner/several");
  const { commit, files } = hub.repositories.get("owner/several");
  const name = "several-Q4_K_M.gguf";
  assert.equal(path, join(folder_of("owner/several"), "snapshots", commit, name));
  assert.ok(lstatSync(path).isSymbolicLink());
  assert.equal(readlinkSync(path), `../../blobs/${sha256(files[name])}`);
  assert.deepEqual(readFileSync(path), files[name]);
  assert.equal(readFileSync(join(folder_of("owner/several"), "refs", "main"), "utf8"), commit);
  const kept = [name, "mmproj-F16.gguf"].map((each) => sha256(files[each])).sort();
  assert.deepEqual(blobs("owner/several"), kept, "the tower comes too; other quantisations are left out");
  assert.match(hub.requests[0].agent, /^quire\//);
  hub.requests = [];
  assert.equal(await pulled("owner/several"), path);
  assert.equal(hub.transfers().length, 0, "files in the cache are not downloaded again");
});

test("a quantisation, a file, a revision are chosen by name", async () => {
  assert.match(await pulled("owner/several:q8_0"), /several-q8_0\.gguf$/);
  assert.match(await pulled("hf.co/owner/several:Q4_0"), /several-q4_0\.gguf$/);
  assert.match(await pulled("owner/several:mmproj-f16.gguf"), /mmproj-F16\.gguf$/);
  hub.repositories.get("owner/several").revisions.push("refs/pr/1");
  await pulled("owner/several@refs/pr/1:q8_0");
  const { commit } = hub.repositories.get("owner/several");
  assert.equal(readFileSync(join(folder_of("owner/several"), "refs/refs/pr/1"), "utf8"), commit);
  assert.match(await pulled(`owner/several@${commit}:q8_0`), new RegExp(commit));
  assert.ok(!existsSync(join(folder_of("owner/several"), "refs", commit)));
  await refused(["pull", "owner/several:Q5_K_M"], /nothing that 'Q5_K_M' names; it has Q4_K_M, Q4_0, Q8_0|it has .*Q4_0/);
  await refused(["pull", "owner"], /'owner' must be OWNER\/NAME/);
  await refused(["pull", "owner/several@nothing"], /no revision 'nothing'/);
});

test("shards come together, and a directory comes with its tokenizer", async () => {
  const shards = Object.fromEntries([1, 2, 3].map((each) => [`Q8_0/big-0000${each}-of-00003.gguf`, content(`shard ${each}`, 5000)]));
  hub.add("owner/shards", { ...shards, "Q4_0/big-00001-of-00002.gguf": content("half", 5000) });
  assert.match(await pulled("owner/shards:Q8_0"), /Q8_0\/big-00001-of-00003\.gguf$/);
  assert.equal(blobs("owner/shards").length, 3);
  await refused(["pull", "owner/shards:Q4_0"], /shard 2 of 2 of .* is missing/);
  const files = { "config.json": "{}", "tokenizer.json": '{"a":1}', "tokenizer_config.json": "{}", "model.safetensors": content("weights"),
    "onnx/model.onnx": "x", "pytorch_model.bin": "x", "README.md": "x", "1_Pooling/config.json": "{}" };
  hub.add("owner/directory", files);
  const path = await pulled("owner/directory");
  const { commit } = hub.repositories.get("owner/directory");
  assert.equal(path, join(folder_of("owner/directory"), "snapshots", commit));
  assert.deepEqual(readdirSync(path).sort(), ["1_Pooling", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]);
  assert.equal(readlinkSync(join(path, "tokenizer.json")), `../../blobs/${git_oid(Buffer.from(files["tokenizer.json"]))}`);
  assert.equal(readlinkSync(join(path, "1_Pooling/config.json")), `../../../blobs/${git_oid(Buffer.from("{}"))}`);
  hub.add("owner/nothing", { "README.md": "x" });
  await refused(["pull", "owner/nothing"], /no GGUF file, nor config\.json with model\.safetensors/);
});

test("a token goes to the hub and not to its storage; a file holds it as well", async () => {
  hub.add("owner/private", { "p-Q8_0.gguf": content("private") }, { token: "hf_secret" });
  await refused(["pull", "owner/private"], /has no 'owner\/private', or it is private: check the name, or set HF_TOKEN/);
  await refused(["pull", "owner/private"], /the account of the present token may not read it/, { HF_TOKEN: "hf_other" });
  hub.requests = [];
  await pulled("owner/private", { HF_TOKEN: "hf_secret\n" });
  assert.ok(hub.requests.some(({ to, authorization }) => to === "hub" && authorization === "Bearer hf_secret"));
  assert.ok(hub.transfers().length > 0 && hub.transfers().every(({ authorization }) => authorization === undefined));
  cache = mkdtempSync(join(tmpdir(), "quire-hub-"));
  mkdirSync(join(cache, "home"));
  writeFileSync(join(cache, "home", "token"), "hf_secret\n");
  await pulled("owner/private");
  await refused(["pull", "owner/private"], /one word of printable characters/, { HF_TOKEN: "a\r\nX-Evil: 1" });
});

test("errors of the hub name the remedy", async () => {
  hub.add("owner/gated", { "g-Q8_0.gguf": content("gated") }, { gated_for: "hf_secret" });
  await refused(["pull", "owner/gated"], new RegExp(`is gated: accept its conditions at ${hub.url}/owner/gated, then set HF_TOKEN`));
  await refused(["pull", "owner/gated"], /the account of the present token has no access/, { HF_TOKEN: "hf_other" });
  hub.faults = { bad_token: "hf_bad" };
  await refused(["pull", "owner/several"], /refuses the token: set HF_TOKEN to a valid one .*\/settings\/tokens/, { HF_TOKEN: "hf_bad" });
  await refused(["pull", "owner/several"], /HF_ENDPOINT must be http/, { HF_ENDPOINT: "huggingface.co" });
  await refused(["serve", "owner/several"], /--hf owner\/several downloads and serves/);
  hub.add("owner/huge", { "h-Q8_0.gguf": content("huge") }, { sizes: { "h-Q8_0.gguf": 2 ** 60 } });
  await refused(["pull", "owner/huge"], /needs .* TiB more on the disk of .* 'quire models remove' makes room, HF_HUB_CACHE/);
  assert.deepEqual(blobs("owner/huge"), []);
});

test("a hub's paths, commits and checksums cannot climb out of the cache", async () => {
  const name = "e-Q8_0.gguf";
  hub.add("owner/evil", { [name]: content("evil") }, { extra: [{ rfilename: "../../../evil-Q8_0.gguf", size: 1, lfs: { sha256: "0".repeat(64), size: 1 } }] });
  await pulled("owner/evil");
  await refused(["pull", "owner/evil:evil-Q8_0.gguf"], /nothing that/);
  hub.repositories.get("owner/evil").sha = "../../../../evil";
  await refused(["pull", "owner/evil"], /does not answer as a model hub does/);
  hub.add("owner/tag", { [name]: content("tag") }, { sums: { [name]: `../${"0".repeat(61)}` } });
  assert.match(await pulled("owner/tag"), /e-Q8_0\.gguf$/);  // without a usable checksum in the list, the file's own head has it
  assert.deepEqual(blobs("owner/tag"), [sha256(content("tag"))]);
  for (const model of ["../x", "a/..", "owner/../x", "a/b@../c", "a/b:../c.gguf", "a/b/c", ".a/b", "a/b:"]) await refused(["pull", model], /must be OWNER\/NAME/);
});

test("a broken transfer continues where it ended: nothing lost, nothing twice", async () => {
  const name = "several-q8_0.gguf";
  hub.faults = { cut_after: [100_000, 0, 50_000] };
  const path = await pulled("owner/blind:q8_0");
  assert.deepEqual(readFileSync(path), content("q8_0"));
  assert.deepEqual(hub.transfers().map(({ range }) => range), [undefined, "bytes=100000-", "bytes=100000-", "bytes=150000-"]);
  assert.equal(hub.bytes_sent(), kSize);
  assert.deepEqual(blobs("owner/blind"), [blob_name(name, content("q8_0"))]);
});

test("a killed pull continues where it ended", async () => {
  const incomplete = join(folder_of("owner/blind"), "blobs", `${sha256(content("q8_0"))}.incomplete`);
  hub.faults = { hold_after: 120_000 };
  const child = spawn(process.env.QUIRE_BINARY, ["pull", "owner/blind:q8_0"], { env: environment(), stdio: "ignore" });
  await grows_to(incomplete, 120_000);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.deepEqual(blobs("owner/blind").filter((name) => !name.endsWith(".incomplete")), []);
  assert.ok(!existsSync(join(folder_of("owner/blind"), "snapshots")), "no snapshot has a file that is not whole");
  const listed = await quire(["models"]);
  assert.match(listed.stdout, /owner\/blind: 117\.2 KiB of an unfinished download/);
  hub.release();
  hub.requests = [];
  assert.deepEqual(readFileSync(await pulled("owner/blind:q8_0")), content("q8_0"));
  assert.deepEqual(hub.transfers().map(({ range, sent }) => [range, sent]), [["bytes=120000-", kSize - 120_000]]);
});

test("a server without ranges, or without lengths, costs bytes, not the file", async () => {
  hub.faults = { cut_after: [100_000], ignore_ranges: true, chunked: true };
  assert.deepEqual(readFileSync(await pulled("owner/blind:q8_0")), content("q8_0"));
  assert.deepEqual(hub.transfers().map(({ sent }) => sent), [100_000, kSize]);
});

test("a damaged file is downloaded again, and never gets its name", async () => {
  hub.faults = { corrupt: 1 };
  assert.deepEqual(readFileSync(await pulled("owner/blind:q8_0")), content("q8_0"));
  hub.faults = { corrupt: 100 };
  await refused(["pull", "owner/blind:q4_0"], /'several-q4_0\.gguf' arrives damaged: its checksum is .* another mirror/);
  assert.ok(!blobs("owner/blind").includes(sha256(content("q4_0"))));
  hub.faults = {};
  // What an earlier process left is checked as well.
  const left = join(folder_of("owner/blind"), "blobs", `${sha256(content("q4_0"))}.incomplete`);
  writeFileSync(left, randomBytes(kSize + 5));
  await pulled("owner/blind:q4_0");
  writeFileSync(join(folder_of("owner/blind"), "blobs", `${sha256(content("q4_k_m"))}.incomplete`), randomBytes(1000));
  assert.deepEqual(readFileSync(await pulled("owner/blind:q4_k_m")), content("q4_k_m"));
});

test("a busy hub is asked again", async () => {
  hub.faults = { hub_statuses: [429, 503], retry_after: 0, storage_statuses: [500, 502] };
  await pulled("owner/blind:q8_0");
  assert.equal(hub.transfers().length, 3);
  assert.equal(hub.bytes_sent(), kSize);
});

test("two processes share one download", async () => {
  hub.faults = { hold_after: 1000 };
  const first = quire(["pull", "owner/blind:q8_0"]);
  await hub.held();
  const second = quire(["pull", "owner/blind:q8_0"]);
  while (hub.requests.filter(({ path }) => path.startsWith("/api/")).length < 2) await new Promise((resolve) => setImmediate(resolve));
  hub.release();
  const done = await Promise.all([first, second]);
  assert.deepEqual(done.map(({ status }) => status), [0, 0], done.map(({ stderr }) => stderr).join("\n"));
  assert.equal(done[0].stdout, done[1].stdout);
  assert.equal(hub.transfers().length, 1);
});

test("a cache that another program made is used, online and offline", async () => {
  const { commit, files } = hub.repositories.get("owner/blind");
  const [name, bytes] = ["several-q8_0.gguf", files["several-q8_0.gguf"]];
  const link = join(folder_of("owner/blind"), "snapshots", commit, name);
  const blob = join(folder_of("owner/blind"), "blobs", sha256(bytes));
  for (const path of [link, blob]) mkdirSync(dirname(path), { recursive: true });
  writeFileSync(blob, bytes);
  symlinkSync(relative(dirname(link), blob), link);
  mkdirSync(join(folder_of("owner/blind"), "refs"));
  writeFileSync(join(folder_of("owner/blind"), "refs", "main"), commit);
  const inode = statSync(blob).ino;
  assert.equal(await pulled("owner/blind:q8_0"), link);
  assert.equal(statSync(blob).ino, inode);
  assert.equal(hub.transfers().length, 0);
  hub.requests = [];
  const offline = { HF_HUB_OFFLINE: "1" };
  assert.equal(await pulled("owner/blind", offline), link);
  await refused(["pull", "owner/blind:q4_0"], /not in the cache .* HF_HUB_OFFLINE is set/, offline);
  await refused(["serve", "--hf", "owner/demo"], /not in the cache .* HF_HUB_OFFLINE is set/, offline);
  assert.equal(hub.requests.length, 0);
  // A hub that cannot be reached does not keep a model from being served that is there.
  const away = await quire(["pull", "owner/blind:q8_0"], { HF_ENDPOINT: "http://127.0.0.1:1" });
  assert.equal(away.stdout.trim(), link);
  assert.match(away.stderr, /connect: .*is used as it was downloaded before/);
});

test("downloaded models are listed and deleted", async () => {
  assert.match((await quire(["models"])).stdout, /no models in .*; 'quire pull OWNER\/NAME' downloads one/);
  await pulled("owner/blind:q8_0");
  await pulled("owner/blind:q4_0");
  const listed = JSON.parse((await quire(["models", "--json"])).stdout);
  assert.deepEqual(listed.models.map(({ model, bytes, complete }) => [model, bytes, complete]),
    [["owner/blind:Q4_0", kSize, true], ["owner/blind:Q8_0", kSize, true]]);
  assert.match((await quire(["models"])).stdout, /^MODEL +SIZE +COMMIT\nowner\/blind:Q4_0 +293\.0 KiB {2}[0-9a-f]{12}\n/);
  assert.match((await quire(["models", "remove", "owner/blind:q8_0"])).stdout, /is deleted: 293\.0 KiB free/);
  assert.deepEqual(blobs("owner/blind"), [sha256(content("q4_0"))]);
  await refused(["models", "remove", "owner/blind:q8_0"], /not in the cache .*'quire models' lists/);
  hub.faults = { hold_after: 1000 };
  const running = quire(["pull", "owner/blind:Q4_K_M"]);
  await hub.held();
  await refused(["models", "remove", "owner/blind"], /is being downloaded: end that first/);
  hub.release();
  assert.equal((await running).status, 0);
  assert.match((await quire(["models", "remove", "owner/blind"])).stdout, /585\.9 KiB free/);
  assert.ok(!existsSync(folder_of("owner/blind")));
});

test("serve --hf downloads, serves under the repository's name, and survives a reload", async () => {
  const server = await QuireServer.start(["-hf", "owner/demo"], { model: null, env: environment() });
  try {
    const listed = await (await fetch(`${server.url}/v1/models`)).json();
    assert.equal(listed.data[0].id, "owner/demo");
    const answer = await (await server.post("/v1/completions", { model: "owner/demo", prompt: "Once", max_tokens: 4 })).json();
    assert.equal(answer.choices[0].finish_reason, "length", JSON.stringify(answer));
    const before_reload = hub.requests.length;
    server.signal("SIGHUP");
    await server.logged((line) => /reloaded: 0 settings/.test(line));
    assert.equal(hub.requests.length, before_reload, "a reload asks no hub");
    assert.equal((await (await fetch(`${server.url}/v1/models`)).json()).data[0].id, "owner/demo");
  } finally {
    await server.stop();
  }
  await server.logged((line) => /owner\/demo is .*demo\.Q8_0\.gguf/.test(line));
  const said = await quire(["run", "--hf", "owner/demo", "What is a KV block?", "--set", "temperature=0", "--set", "max_tokens=40"]);
  assert.match(said.stdout, /KV/, said.stderr);
  const file = join(cache, "quire.yaml");
  writeFileSync(file, "models:\n  - {name: by-hub, hf: owner/demo}\n");
  const several = await QuireServer.start(["--config", file], { model: null, env: environment() });
  assert.equal((await (await fetch(`${several.url}/v1/models`)).json()).data[0].id, "by-hub");
  await several.stop();
  await refused(["serve", process.env.QUIRE_MODEL, "--hf", "owner/demo"], /exclude each other/);
  await refused(["serve", "--hf", "owner"], /must be OWNER\/NAME/);
});

const has_openssl = spawnSync("openssl", ["version"]).status === 0;
test("TLS: a hub is believed by its certificate, and leads to no plain storage", { skip: !has_openssl && "openssl is absent" }, async () => {
  const [key, certificate] = ["key.pem", "certificate.pem"].map((name) => join(cache, name));
  spawnSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=hub",
    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]);
  const tls = { key: readFileSync(key), cert: readFileSync(certificate) };
  const secure = await FakeHub.start({ tls });
  const mixed = await FakeHub.start({ tls, plain_storage: true });
  for (const each of [secure, mixed]) each.add("owner/t", { "t-Q8_0.gguf": content("t") });
  try {
    const path = await pulled("owner/t", { HF_ENDPOINT: secure.url, SSL_CERT_FILE: certificate });
    assert.deepEqual(readFileSync(path), content("t"));
    await refused(["pull", "owner/t:Q8_0"], /certificate verify failed.*SSL_CERT_FILE/, { HF_ENDPOINT: secure.url, HF_HUB_CACHE: join(cache, "b") });
    await refused(["pull", "owner/t"], /redirect from https to http/, { HF_ENDPOINT: mixed.url, SSL_CERT_FILE: certificate, HF_HUB_CACHE: join(cache, "c") });
    assert.equal(mixed.transfers().length, 0);
    secure.faults = { location: "/owner/t/resolve/main/t-Q8_0.gguf" };
    await refused(["pull", "owner/t"], /too many redirects/, { HF_ENDPOINT: secure.url, SSL_CERT_FILE: certificate, HF_HUB_CACHE: join(cache, "d") });
  } finally {
    await secure.stop();
    await mixed.stop();
  }
});
