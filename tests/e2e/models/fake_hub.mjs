// A local server that behaves as Hugging Face's hub does: the list of a revision's files, `resolve` with a redirect to a storage of
// another origin, ranges, X-Error-Code. Faults are set per test; every request and every byte sent is recorded.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";

export const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
// What git calls a file's content.
export const git_oid = (bytes) => createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

const is_large = (path) => /\.(gguf|safetensors)$/.test(path);
export const blob_name = (path, bytes) => (is_large(path) ? sha256(bytes) : git_oid(bytes));

export class FakeHub {
  repositories = new Map();  // name -> {commit, revisions, files: {path: bytes}, ...}
  requests = [];             // {to: "hub" or "storage", method, path, range, authorization, agent, sent}
  faults = {};
  #servers = [];
  #sockets = new Set();
  #held = [];

  // `tls`: {key, cert} for the hub; the storage is plain where `plain_storage` says so.
  static async start({ tls = null, plain_storage = false } = {}) {
    const hub = new FakeHub();
    hub.url = await hub.#listen("hub", tls, (request, response, record) => hub.#hub(request, response, record));
    hub.storage = await hub.#listen("storage", plain_storage ? null : tls, (request, response, record) => hub.#storage(request, response, record));
    return hub;
  }

  async #listen(to, tls, handle) {
    const answer = (request, response) => {
      const record = { to, method: request.method, path: request.url, range: request.headers.range, sent: 0,
        authorization: request.headers.authorization, agent: request.headers["user-agent"] };
      this.requests.push(record);
      handle(request, response, record);
    };
    const server = tls ? createTlsServer(tls, answer) : createServer(answer);
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {});
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#servers.push(server);
    return `${tls ? "https" : "http"}://127.0.0.1:${server.address().port}`;
  }

  add(name, files, more = {}) {
    const texts = Object.fromEntries(Object.entries(files).map(([path, content]) => [path, Buffer.from(content)]));
    const commit = createHash("sha1").update(JSON.stringify([name, Object.entries(texts).map(([path, bytes]) => [path, sha256(bytes)])])).digest("hex");
    this.repositories.set(name, { commit, files: texts, revisions: ["main"], ...more });
    return commit;
  }

  // Transfers of the storage.
  transfers() {
    return this.requests.filter(({ to }) => to === "storage");
  }

  bytes_sent() {
    return this.transfers().reduce((sum, { sent }) => sum + sent, 0);
  }

  // Waits until a transfer is held back by faults.hold_after.
  async held() {
    while (this.#held.length === 0) await new Promise((resolve) => setImmediate(resolve));
  }

  release() {
    delete this.faults.hold_after;
    for (const go_on of this.#held.splice(0)) go_on();
  }

  async stop() {
    this.release();
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #refuse(response, status, code, fields = {}) {
    response.writeHead(status, { ...(code ? { "X-Error-Code": code } : {}), ...fields, "Content-Type": "application/json" });
    response.end('{"error":"refused"}');
  }

  #hub(request, response, record) {
    const status = this.faults.hub_statuses?.shift();
    if (status) return this.#refuse(response, status, "", this.faults.retry_after === undefined ? {} : { "Retry-After": String(this.faults.retry_after) });
    const [path, query] = request.url.split("?");
    const listed = /^\/api\/models\/([^/]+\/[^/]+)\/revision\/([^/]+)$/.exec(path);
    const resolved = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(path);
    const [, name, revision] = listed ?? resolved ?? [];
    const repository = this.repositories.get(name);
    const token = request.headers.authorization?.replace("Bearer ", "");
    if (token && token === this.faults.bad_token) return this.#refuse(response, 401, "");
    if (!repository || (repository.token && repository.token !== token)) return this.#refuse(response, 401, "RepoNotFound");
    if (repository.gated_for && repository.gated_for !== token) return this.#refuse(response, token ? 403 : 401, "GatedRepo");
    const wanted = decodeURIComponent(revision);
    if (wanted !== repository.commit && !repository.revisions.includes(wanted)) return this.#refuse(response, 404, "RevisionNotFound");
    if (listed) return this.#list(response, repository, query === "blobs=true" && !repository.without_blobs);
    this.#resolve(request, response, repository, decodeURIComponent(resolved[3]), record);
  }

  #list(response, repository, blobs) {
    const siblings = Object.entries(repository.files).map(([rfilename, bytes]) => ({
      rfilename,
      ...(blobs ? { size: repository.sizes?.[rfilename] ?? bytes.length, blobId: git_oid(bytes) } : {}),
      ...(blobs && is_large(rfilename) ? { lfs: { sha256: repository.sums?.[rfilename] ?? sha256(bytes), size: repository.sizes?.[rfilename] ?? bytes.length, pointerSize: 134 } } : {}),
    }));
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ id: "x", sha: repository.sha ?? repository.commit, siblings: [...siblings, ...(repository.extra ?? [])] }));
  }

  #resolve(request, response, repository, path, record) {
    const bytes = repository.files[path];
    if (!bytes) return this.#refuse(response, 404, "EntryNotFound");
    const tag = `"${blob_name(path, bytes)}"`;
    if (!is_large(path)) {
      response.writeHead(200, { ETag: tag, "X-Repo-Commit": repository.commit, "Content-Length": bytes.length });
      if (request.method === "HEAD") return response.end();
      record.sent = bytes.length;
      return response.end(bytes);
    }
    const name = encodeURIComponent([...this.repositories].find(([, each]) => each === repository)[0]);
    response.writeHead(302, { Location: this.faults.location ?? `${this.storage}/${name}/${encodeURIComponent(path)}?signature=a%2Fb`,
      "X-Linked-Etag": tag, "X-Linked-Size": bytes.length, "X-Repo-Commit": repository.commit });
    response.end();
  }

  #storage(request, response, record) {
    const status = this.faults.storage_statuses?.shift();
    if (status) return this.#refuse(response, status, "");
    const [, name, path] = request.url.split("?")[0].split("/").map(decodeURIComponent);
    let bytes = this.repositories.get(name).files[path];
    if (this.faults.corrupt > 0) {
      --this.faults.corrupt;
      bytes = Buffer.from(bytes);
      bytes[Math.floor(bytes.length / 2)] ^= 1;
    }
    const range = /^bytes=(\d+)-$/.exec(this.faults.ignore_ranges ? "" : request.headers.range ?? "");
    const start = range ? Number(range[1]) : 0;
    if (start >= bytes.length) return this.#refuse(response, 416, "");
    const part = bytes.subarray(start);
    const fields = this.faults.chunked ? {} : { "Content-Length": part.length };
    response.writeHead(range ? 206 : 200, range ? { ...fields, "Content-Range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` } : fields);
    this.#send(response, part, record);
  }

  #send(response, part, record) {
    const cut = this.faults.cut_after?.shift();
    const hold = this.faults.hold_after;
    const send = (bytes, then) => {
      record.sent += bytes.length;
      response.write(bytes, then);
    };
    if (cut !== undefined) return send(part.subarray(0, cut), () => response.socket.end());  // a broken transfer
    if (hold === undefined) {
      record.sent += part.length;
      return response.end(part);
    }
    send(part.subarray(0, hold), () => {
      this.#held.push(() => {
        if (response.destroyed) return;
        send(part.subarray(hold), () => response.end());
      });
    });
  }
}
