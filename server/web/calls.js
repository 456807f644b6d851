// Calls of tools in answers: those of a tool server run once the user allows them, or at once where he always does, and their
// results return to the model.
import { button, element } from "./dom.js";
import { pathTo } from "./conversation.js";

const kMostRounds = 20; // rounds without the user; then each call is asked for

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
