// A client of the Model Context Protocol over streamable HTTP: a session with one server, its tools, and calls of them.
import { ApiError, frames } from "./api.js";

const kVersion = "2025-06-18"; // the protocol's version
const kMostTools = 512;
const kMostText = 200_000; // characters of a result that the model is given
const kMethodNotFound = -32601;

// A call's result for the model: {text, pictures: [{type, data: in base64}]}.
function readResult({ content = [], structuredContent, isError }) {
  const parts = content.map((part) => part.text ?? part.resource?.text ?? (part.uri ? `[${part.type}: ${part.uri}]` : `[${part.type}]`));
  const text = parts.join("\n") || (structuredContent ? JSON.stringify(structuredContent) : "");
  const cut = text.length > kMostText ? `${text.slice(0, kMostText)}\n[cut after ${kMostText} characters]` : text;
  const pictures = content.filter(({ type }) => type === "image").map(({ mimeType, data }) => ({ type: mimeType, data }));
  return { text: isError ? `Error: ${cut}` : cut, pictures };
}

export class McpSession {
  #url;
  #token;
  #session = ""; // the server's name for it
  #version = "";
  #lastId = 0;

  constructor(url, token) {
    this.#url = url;
    this.#token = token;
  }

  // Opens the session; returns the server's name and tools: {name, tools: [{name, description, inputSchema}]}.
  async open(signal) {
    this.#session = this.#version = "";
    const { serverInfo, protocolVersion, capabilities } = await this.#ask("initialize",
      { protocolVersion: kVersion, capabilities: {}, clientInfo: { name: "quire", title: "Quire's page", version: "1" } }, signal);
    this.#version = protocolVersion;
    await this.#post({ method: "notifications/initialized" }, signal);
    const tools = [];
    for (let cursor; capabilities?.tools && tools.length < kMostTools;) {
      const page = await this.#ask("tools/list", cursor ? { cursor } : {}, signal);
      tools.push(...page.tools);
      cursor = page.nextCursor;
      if (!cursor) break;
    }
    return { name: serverInfo?.title ?? serverInfo?.name ?? new URL(this.#url).host, tools };
  }

  // The result for the model. A session that the server has forgotten is opened again, once.
  async call(name, args, signal) {
    const params = { name, arguments: args };
    try {
      return readResult(await this.#ask("tools/call", params, signal));
    } catch (error) {
      if (error.status !== 404 || !this.#session) throw error;
      await this.open(signal);
      return readResult(await this.#ask("tools/call", params, signal));
    }
  }

  // Lets the server forget the session.
  close() {
    if (this.#session) fetch(this.#url, { method: "DELETE", headers: this.#headers() }).catch(() => {});
  }

  #headers() {
    return {
      "Content-Type": "application/json", Accept: "application/json, text/event-stream",
      ...(this.#token && { Authorization: `Bearer ${this.#token}` }), ...(this.#session && { "Mcp-Session-Id": this.#session }),
      ...(this.#version && { "MCP-Protocol-Version": this.#version }),
    };
  }

  async #post(message, signal) {
    let response;
    try {
      response = await fetch(this.#url, { method: "POST", headers: this.#headers(), body: JSON.stringify({ jsonrpc: "2.0", ...message }), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("no answer: it must run, and allow this page's origin (CORS)");
    }
    if (!response.ok) throw new ApiError(response.status === 401 ? "it wants another token" : `it answers ${response.status} ${response.statusText}`, { status: response.status });
    this.#session = response.headers.get("mcp-session-id") ?? this.#session;
    return response;
  }

  async #ask(method, params, signal) {
    const id = ++this.#lastId;
    const response = await this.#post({ id, method, params }, signal);
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return this.#result(await response.json());
    for await (const { data } of frames(response)) {
      if (!data) continue;
      const message = JSON.parse(data);
      if (message.id === id && !message.method) return this.#result(message);
      if (message.id !== undefined && message.method) await this.#decline(message, signal);
    }
    throw new ApiError("its stream ended without a result");
  }

  #result({ result, error }) {
    if (error) throw new ApiError(error.message ?? "it refuses");
    return result ?? {};
  }

  // A server may ask as well: this client answers pings, and has nothing else to offer.
  async #decline({ id, method }, signal) {
    const reply = method === "ping" ? { result: {} } : { error: { code: kMethodNotFound, message: `This client does not answer ${method}` } };
    await this.#post({ id, ...reply }, signal);
  }
}
