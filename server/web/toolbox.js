// Servers of tools that the user added, kept in the browser; their tools as the API takes them, and what may be called unasked.
//   {url, name, enabled, always: names of tools}; tokens last as long as the tab.
import { pathTo } from "./conversation.js";
import { button, element } from "./dom.js";
import { McpSession } from "./mcp.js";
import { pictureOf } from "./pictures.js";
import { ownTools } from "./settings.js";
import { keep, recall } from "./store.js";

const kStored = "quire.mcp";
const kTokens = "quire.mcp_tokens";
const kCookie = "quire_connect"; // origins that the server lets this page connect to, beside its own
const kYear = 365 * 24 * 3600; // seconds
const kMostRounds = 20; // rounds without the user; then each call is asked for

const isServer = (value) => typeof value?.url === "string" && URL.canParse(value.url) && Array.isArray(value.always);

function allowedOrigins() {
  const found = document.cookie.split("; ").find((each) => each.startsWith(`${kCookie}=`));
  return found ? found.slice(kCookie.length + 1).split("|").filter(Boolean) : [];
}

// A name that the API takes, which no other tool has.
function uniqueName(tool, server, taken) {
  const fit = (text) => text.replace(/[^\w-]+/g, "_").slice(0, 64);
  let name = fit(tool);
  for (let i = 1; taken.has(name); ++i) name = fit(`${server.slice(0, 20)}_${i > 1 ? `${i}_` : ""}${tool}`);
  return name;
}

const unconnected = (server) => ({ ...server, state: "", tools: [], session: null });

export class Toolbox {
  #servers = recall(kStored, []).filter(isServer).map(unconnected);
  #allowed = [location.origin, ...allowedOrigins()]; // by the page as it was loaded
  #listeners = [];

  onchange(listener) {
    this.#listeners.push(listener);
  }

  get servers() {
    return this.#servers;
  }

  start() {
    this.#keep();
    for (const server of this.#servers) if (server.enabled) this.#connect(server);
  }

  // Returns whether the page has to be loaded again before it may connect. Throws where the URL is none.
  add(url, token) {
    const { href, protocol } = new URL(url);
    if (!/^https?:$/.test(protocol)) throw new TypeError("Tool servers have http or https URLs");
    keep(kTokens, { ...recall(kTokens, {}, true), [href]: token }, true);
    let server = this.#servers.find((each) => each.url === href);
    if (!server) {
      server = unconnected({ url: href, name: new URL(href).host, enabled: true, always: [] });
      this.#servers.push(server);
    }
    this.#keep();
    if (!this.mayConnect(server)) return true;
    this.#connect(server);
    return false;
  }

  mayConnect({ url }) {
    return this.#allowed.includes(new URL(url).origin);
  }

  remove(server) {
    server.session?.close();
    this.#servers = this.#servers.filter((each) => each !== server);
    this.#keep();
  }

  enable(server, enabled) {
    server.enabled = enabled;
    this.#keep();
    if (enabled && !server.session) this.#connect(server);
  }

  #usable() {
    return this.#servers.filter(({ enabled, session }) => enabled && session);
  }

  // Tools under the names that requests give them: [{name, server, tool}]. The settings' own tools keep theirs.
  #named() {
    const taken = new Set(ownTools().map((tool) => tool?.function?.name));
    return this.#usable().flatMap((server) => server.tools.map((tool) => {
      const name = uniqueName(tool.name, server.name, taken);
      taken.add(name);
      return { name, server, tool };
    }));
  }

  // The tools for a request, beside those of the settings.
  offered() {
    return this.#named().map(({ name, tool }) =>
      ({ type: "function", function: { name, description: tool.description, parameters: tool.inputSchema ?? { type: "object", properties: {} } } }));
  }

  // {server, tool} that a call names, or nothing: it is the user's to answer.
  find(name) {
    return this.#named().find((each) => each.name === name);
  }

  isAllowed({ server, tool }) {
    return server.always.includes(tool.name);
  }

  allow({ server, tool }, allowed) {
    server.always = [...server.always.filter((name) => name !== tool.name), ...(allowed ? [tool.name] : [])];
    this.#keep();
  }

  // The result, {text, files: pictures}; a failure is a text, too, which the model can read.
  async run({ server, tool }, args, signal) {
    let read;
    try {
      read = JSON.parse(args || "{}");
    } catch {
      return { text: "Error: the arguments are not JSON", files: [] };
    }
    try {
      const { text, pictures } = await server.session.call(tool.name, read, signal);
      const files = await Promise.all(pictures.map(({ type, data }, i) => pictureOf(`${tool.name} ${i + 1}`, type, data)));
      return { text, files: files.filter(Boolean) };
    } catch (error) {
      return { text: error.name === "AbortError" ? "Error: the user cancelled this call" : `Error: ${server.name}: ${error.message}`, files: [] };
    }
  }

  async #connect(server) {
    if (!this.mayConnect(server)) {
      server.state = "Load the page again to connect";
      return this.#tell();
    }
    server.state = "connects…";
    this.#tell();
    const session = new McpSession(server.url, recall(kTokens, {}, true)[server.url]);
    try {
      const { name, tools } = await session.open();
      Object.assign(server, { name, tools, session, state: `${tools.length} tools` });
    } catch (error) {
      Object.assign(server, { session: null, tools: [], state: `Failed: ${error.message}` });
    }
    return this.#keep();
  }

  #keep() {
    keep(kStored, this.#servers.map(({ url, name, enabled, always }) => ({ url, name, enabled, always })));
    const origins = [...new Set(this.#servers.map(({ url }) => new URL(url).origin))].filter((origin) => origin !== location.origin);
    document.cookie = `${kCookie}=${origins.join("|")}; path=/; SameSite=Strict; max-age=${origins.length ? kYear : 0}`;
    this.#tell();
  }

  #tell() {
    for (const listener of this.#listeners) listener();
  }
}

// Calls of tools in answers: those of a tool server run once the user allows them, or at once where he always does, and their
// results return to the model.
export class Calls {
  #toolbox;
  #give; // (conversation, message, call, text, files): the result
  #redraw; // (conversation, message)
  #running = new Map(); // call -> AbortController

  constructor(toolbox, give, redraw) {
    this.#toolbox = toolbox;
    this.#give = give;
    this.#redraw = redraw;
  }

  // Runs what may run unasked.
  begin(conversation, message) {
    const path = pathTo(conversation, message.id);
    const said = path.findLastIndex(({ role }) => role === "user");
    if (path.slice(said).filter(({ calls }) => calls?.length).length > kMostRounds) return;
    for (const call of message.calls) {
      const found = this.#toolbox.find(call.name);
      if (found && this.#toolbox.isAllowed(found)) this.#run(conversation, message, call, found);
    }
  }

  // A tool server's unanswered call has a row below it; another tool's has none.
  form(conversation, message, call) {
    const found = this.#toolbox.find(call.name);
    if (!found) return undefined;
    const box = (text, ...buttons) => element("div", { class: "row approval" }, element("span", { class: "note grow" }, text), ...buttons);
    const controller = this.#running.get(call);
    if (controller) return box(`Runs at ${found.server.name}…`, button("Cancel", () => controller.abort()));
    const run = () => this.#run(conversation, message, call, found);
    return box(`Run this at ${found.server.name}?`,
      button("Allow once", run),
      button("Always allow", () => { this.#toolbox.allow(found, true); run(); }),
      button("Refuse", () => this.#give(conversation, message, call, "Error: the user refused this call")));
  }

  async #run(conversation, message, call, found) {
    if (this.#running.has(call)) return;
    const controller = new AbortController();
    this.#running.set(call, controller);
    this.#redraw(conversation, message);
    const { text, files } = await this.#toolbox.run(found, call.arguments, controller.signal);
    this.#running.delete(call);
    this.#give(conversation, message, call, text, files);
  }
}
