// The chat: what the user does with the conversation, and answers streamed from /v1/chat/completions into it.
import { call, events } from "./api.js";
import { Attachments } from "./attachments.js";
import { addMessage, apiMessages, branchOff, newConversation, pathTo, removeMessage, restore, showBranch } from "./conversation.js";
import { announce, byId, toast } from "./dom.js";
import { requestFields, systemPrompt } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Transcript } from "./transcript.js";

const kSaveEvery = 1000; // ms, while an answer grows
const kLast = "quire.conversation";

export class Chat {
  #store;
  #sidebar;
  #transcript;
  #shown = newConversation();
  #running = new Map(); // conversation id -> AbortController
  #models;
  #attachments;

  constructor(store, models) {
    this.#store = store;
    this.#models = models;
    this.#attachments = new Attachments(models);
    this.#sidebar = new Sidebar(store, (id) => this.open(id));
    this.#transcript = new Transcript(byId("messages"), byId("jump"), {
      edit: (message, text) => this.#edit(message, text),
      again: (message) => this.#answer(message.parent),
      proceed: (message) => this.#answer(message.parent, message),
      remove: (message) => this.#remove(message),
      branch: (message) => this.#branch(message),
      show: (id) => this.#change(() => showBranch(this.#shown, id)),
      answerCall: (message, toolCall, text) => this.#answerCall(message, toolCall, text),
    });
    this.#bind();
  }

  async start() {
    let last = null;
    try {
      last = localStorage.getItem(kLast);
    } catch { /* storage is refused */ }
    await this.open(last);
  }

  // Shows a stored conversation, or a new one.
  async open(id) {
    this.#shown = (id && (await this.#store.load(id))) || newConversation();
    // An answer that a closed page left behind.
    for (const message of Object.values(this.#shown.messages)) {
      if (message.role === "assistant" && !message.finish && !this.#running.has(this.#shown.id)) message.finish = "aborted";
    }
    this.#remember();
    this.#transcript.show(this.#shown);
    this.#drawBusy();
    await this.#sidebar.draw(this.#shown.id);
    if (window.matchMedia("(max-width: 50rem)").matches) this.#sidebar.toggle(false);
  }

  #remember() {
    try {
      localStorage.setItem(kLast, this.#shown.id);
    } catch { /* as above */ }
  }

  #bind() {
    byId("composer").addEventListener("submit", (event) => this.#send(event));
    byId("prompt").addEventListener("keydown", (event) => {
      // While an input method composes, Enter belongs to it.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) this.#send(event);
    });
    byId("prompt").addEventListener("input", () => this.#fitPrompt());
    byId("stop").addEventListener("click", () => this.#running.get(this.#shown.id)?.abort());
    for (const idea of document.querySelectorAll(".idea")) {
      idea.addEventListener("click", () => {
        byId("prompt").value = idea.textContent;
        this.#fitPrompt();
        byId("prompt").focus();
      });
    }
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      this.#stopShown();
    });
  }

  #fitPrompt() {
    const field = byId("prompt");
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, window.innerHeight / 2)}px`;
  }

  #send(event) {
    event.preventDefault();
    const text = byId("prompt").value.trim();
    if ((!text && this.#attachments.isEmpty) || this.#attachments.problem || this.#running.has(this.#shown.id)) return;
    const message = addMessage(this.#shown, this.#shown.leaf, { role: "user", content: text, files: this.#attachments.takeAll() });
    byId("prompt").value = "";
    this.#fitPrompt();
    this.#transcript.update(message);
    this.#transcript.follow();
    this.#answer(message.id);
  }

  #edit(message, text) {
    if (message.role !== "user") {
      const { id, parent, created, ...rest } = message;
      this.#change(() => addMessage(this.#shown, parent, { ...rest, content: text, finish: "stop" }));
      return;
    }
    this.#stopShown();
    const made = addMessage(this.#shown, message.parent, { role: "user", content: text, files: message.files });
    this.#transcript.show(this.#shown);
    this.#answer(made.id);
  }

  #remove(message) {
    this.#stopShown();
    const conversation = this.#shown;
    const undo = removeMessage(conversation, message.id);
    this.#change(() => {});
    toast("The message was deleted", {
      label: "Undo",
      run: async () => {
        restore(conversation, undo);
        await this.#store.save(conversation);
        await this.open(conversation.id);
      },
    });
  }

  async #branch(message) {
    const copy = branchOff(this.#shown, message.id);
    await this.#store.save(copy);
    await this.open(copy.id);
    toast("A new conversation begins here");
  }

  #answerCall(message, toolCall, text) {
    const made = addMessage(this.#shown, this.#shown.leaf, { role: "tool", callId: toolCall.id, content: text });
    this.#transcript.show(this.#shown);
    const results = pathTo(this.#shown, made.id).filter(({ role }) => role === "tool").map(({ callId }) => callId);
    if (message.calls.every(({ id }) => results.includes(id))) this.#answer(made.id);
    else this.#store.save(this.#shown);
  }

  #stopShown() {
    this.#running.get(this.#shown.id)?.abort();
  }

  async #change(change) {
    change();
    this.#transcript.show(this.#shown);
    await this.#store.save(this.#shown);
    await this.#sidebar.draw();
  }

  // Asks for an answer to the message; `begun`: continues that answer, whose text was cut.
  async #answer(parent, begun) {
    const conversation = this.#shown;
    if (this.#running.has(conversation.id)) return;
    const answer = begun ?? addMessage(conversation, parent, { role: "assistant", content: "", model: this.#models.chosen });
    const path = pathTo(conversation, begun ? begun.id : parent);
    Object.assign(answer, { finish: undefined, error: undefined, warnings: undefined, timing: { began: performance.now() } });
    const controller = new AbortController();
    this.#running.set(conversation.id, controller);
    this.#drawBusy();
    if (!begun) this.#transcript.show(conversation);
    const screen = new Screen(this.#transcript, answer, () => this.#shown === conversation);
    try {
      await this.#store.save(conversation);
      const response = await this.#request(path, begun, controller.signal);
      answer.warnings = warningsOf(response);
      await this.#receive(response, conversation, answer, screen);
    } catch (error) {
      answer.finish = error.name === "AbortError" ? "aborted" : "error";
      if (error.name !== "AbortError") answer.error = { message: error.message, remedy: error.remedy ?? "" };
    }
    this.#running.delete(conversation.id);
    await this.#finish(conversation, answer, screen);
  }

  async #request(path, begun, signal) {
    const body = {
      model: this.#models.chosen,
      messages: apiMessages(path, systemPrompt()),
      ...requestFields(),
      stream: true,
      stream_options: { include_usage: true },
      ...(begun && { continue_final_message: true, add_generation_prompt: false }),
    };
    const watch = this.#models.watch(); // shows a model that is still loading
    try {
      return await call("/v1/chat/completions", { body, signal });
    } finally {
      watch.end();
    }
  }

  async #receive(response, conversation, answer, screen) {
    let saved = performance.now();
    for await (const event of events(response)) {
      if (event.usage) answer.usage = event.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      if (choice.finish_reason) answer.finish = choice.finish_reason;
      if (!take(answer, choice.delta ?? {})) continue;
      answer.timing.last = performance.now();
      answer.timing.first ??= answer.timing.last;
      screen.draw();
      if (answer.timing.last - saved > kSaveEvery) {
        saved = answer.timing.last;
        await this.#store.save(conversation);
      }
    }
    answer.finish ??= "stop";
  }

  async #finish(conversation, answer, screen) {
    screen.end();
    conversation.updated = Date.now();
    await this.#store.save(conversation);
    if (this.#shown === conversation) {
      this.#transcript.update(answer);
      this.#drawBusy();
      announce(answer.error ? `Error: ${answer.error.message}` : "The answer is complete");
    }
    await this.#sidebar.draw();
  }

  #drawBusy() {
    const busy = this.#running.has(this.#shown.id);
    byId("send").disabled = busy;
    byId("stop").disabled = !busy;
    byId("messages").setAttribute("aria-busy", String(busy));
  }
}

// What the server left out of the request or finds misspelt, as it says in the answer's headers.
function warningsOf(response) {
  return response.headers.get("x-quire-warning") || undefined;
}

// Adds a piece of the stream to the answer; false where it holds nothing.
function take(answer, delta) {
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
  if (reasoning) answer.reasoning = (answer.reasoning ?? "") + reasoning;
  if (delta.content) answer.content += delta.content;
  for (const piece of delta.tool_calls ?? []) {
    answer.calls ??= [];
    const known = answer.calls[piece.index] ??= { id: "", name: "", arguments: "" };
    if (piece.id) known.id = piece.id;
    known.name += piece.function?.name ?? "";
    known.arguments += piece.function?.arguments ?? "";
  }
  return Boolean(reasoning || delta.content || delta.tool_calls?.length);
}

// Draws an answer at most once per frame, and less often when drawing takes long.
class Screen {
  #transcript;
  #answer;
  #isShown;
  #planned = 0;
  #pause = 0;

  constructor(transcript, answer, isShown) {
    this.#transcript = transcript;
    this.#answer = answer;
    this.#isShown = isShown;
    if (isShown()) transcript.update(answer, true);
  }
  draw() {
    if (this.#planned) return;
    this.#planned = setTimeout(() => requestAnimationFrame(() => {
      if (!this.#planned) return;
      this.#planned = 0;
      if (!this.#isShown()) return;
      const began = performance.now();
      this.#transcript.update(this.#answer, true);
      this.#pause = Math.min(1000, 4 * (performance.now() - began));
    }), this.#pause);
  }
  end() {
    clearTimeout(this.#planned);
    this.#planned = 0;
  }
}
