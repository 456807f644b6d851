// The chat: what the user does with the conversation, and answers streamed from /v1/chat/completions into it.
import { Answers, isResumable, noteFailure } from "./answers.js";
import { Attachments } from "./attachments.js";
import { addMessage, apiMessages, branchOff, newConversation, pathTo, removeMessage, restore, resultsOf, showBranch, shownPath } from "./conversation.js";
import { announce, byId, copyText, toast } from "./dom.js";
import { Prompts } from "./prompts.js";
import { requestFields, systemPrompt } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Calls } from "./toolbox.js";
import { Transcript } from "./transcript.js";
import { Voice } from "./voice.js";

const kLast = "quire.conversation";

export class Chat {
  #store;
  #sidebar;
  #transcript;
  #shown = newConversation();
  #answers;
  #models;
  #attachments;
  #prompts;
  #toolbox;
  #calls;

  constructor(store, models, toolbox) {
    this.#store = store;
    this.#models = models;
    this.#toolbox = toolbox;
    const redraw = (conversation, message) => { if (this.#shown === conversation && message && !this.#answers.isRunning(conversation)) this.#transcript.update(message); };
    this.#calls = new Calls(toolbox, (...result) => this.#answerCall(...result), redraw);
    toolbox.onchange(() => redraw(this.#shown, shownPath(this.#shown).findLast(({ calls }) => calls?.length)));
    this.#answers = new Answers(models, (conversation) => store.save(conversation));
    this.#attachments = new Attachments(models);
    this.#prompts = new Prompts((text) => this.#write(text));
    new Voice((text) => this.#write(text));
    models.onchoice(() => byId("messages").classList.toggle("many-models", models.names.length > 1));
    this.#sidebar = new Sidebar(store, (id, message) => this.open(id, message));
    this.#transcript = new Transcript(byId("messages"), byId("jump"), {
      edit: (message, text) => this.#edit(message, text),
      again: (message, model) => this.#answer(message.parent, undefined, model),
      otherModels: (message) => models.names.filter((name) => name !== message.model),
      contextOf: (model) => models.find(model)?.max_model_len,
      proceed: (message) => this.#answer(message.parent, message),
      remove: (message) => this.#remove(message),
      branch: (message) => this.#branch(message),
      show: (id) => this.#change(() => showBranch(this.#shown, id)),
      answerCall: (message, toolCall, text) => this.#answerCall(this.#shown, message, toolCall, text),
      callForm: (message, toolCall) => this.#calls.form(this.#shown, message, toolCall),
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

  // Shows a stored conversation, or a new one; at that message, where one is named.
  async open(id, message) {
    this.#shown = this.#answers.running(id) ?? ((id && (await this.#store.load(id))) || newConversation());
    if (message && !shownPath(this.#shown).some((each) => each.id === message)) showBranch(this.#shown, message);
    const resumable = this.#answers.isRunning(this.#shown) ? null : this.#leftBehind();
    this.#remember();
    this.#transcript.show(this.#shown);
    if (message) this.#transcript.reveal(message);
    this.#drawBusy();
    await this.#sidebar.draw(this.#shown.id);
    if (window.matchMedia("(max-width: 50rem)").matches) this.#sidebar.toggle(false);
    if (resumable) this.#stream(this.#shown, resumable);
  }

  // The answer of a closed page whose stream the server may still have; any other such answer has ended.
  #leftBehind() {
    const begun = Object.values(this.#shown.messages).filter(({ role, finish }) => role === "assistant" && !finish);
    const resumable = begun.find(isResumable) ?? null;
    for (const message of begun) {
      if (message === resumable) continue;
      message.finish = "aborted";
      delete message.stream;
    }
    return resumable;
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
    byId("stop").addEventListener("click", () => this.#stopShown());
    for (const idea of document.querySelectorAll(".idea")) {
      idea.addEventListener("click", () => {
        this.#write(idea.textContent);
      });
    }
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      this.#stopShown();
    });
  }

  // Makes `text` the message that is being written.
  #write(text) {
    byId("prompt").value = text;
    this.#fitPrompt();
    byId("prompt").focus();
  }

  #fitPrompt() {
    const field = byId("prompt");
    field.style.height = "auto";
    field.style.height = `${Math.min(field.scrollHeight + 2, window.innerHeight / 2)}px`;
  }

  #send(event) {
    event.preventDefault();
    const text = byId("prompt").value.trim();
    if ((!text && this.#attachments.isEmpty) || this.#attachments.problem || this.#answers.isRunning(this.#shown)) return;
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

  // The result of a call stands behind those that came before it; with the last one the model is asked to go on.
  #answerCall(conversation, message, toolCall, text, files = []) {
    const results = resultsOf(conversation, message);
    const made = addMessage(conversation, results.at(-1)?.id ?? message.id, { role: "tool", callId: toolCall.id, name: toolCall.name, content: text, files });
    if (this.#shown === conversation) this.#transcript.show(conversation);
    const answered = [...results, made].map(({ callId }) => callId);
    if (message.calls.every(({ id }) => answered.includes(id))) this.#answer(made.id, undefined, message.model, conversation);
    else this.#store.save(conversation);
  }

  #stopShown() {
    this.#answers.stop(this.#shown);
  }

  async #change(change) {
    change();
    this.#transcript.show(this.#shown);
    await this.#store.save(this.#shown);
    await this.#sidebar.draw();
  }

  // Asks for an answer to the message; `begun`: continues that answer, whose text was cut.
  async #answer(parent, begun, model = this.#models.chosen, conversation = this.#shown) {
    if (this.#answers.isRunning(conversation)) return;
    const answer = begun ?? addMessage(conversation, parent, { role: "assistant", content: "", model });
    const path = pathTo(conversation, begun ? begun.id : parent);
    if (!begun && this.#shown === conversation) this.#transcript.show(conversation);
    try {
      await this.#stream(conversation, answer, this.#requestBody(path, begun, model));
    } catch (error) {
      noteFailure(answer, error);
      await this.#finish(conversation, answer);
    }
  }

  // Throws ApiError where a setting is not what it should be.
  #requestBody(path, begun, model) {
    const fields = requestFields();
    const tools = [...(fields.tools ?? []), ...this.#toolbox.offered()];
    return {
      model,
      messages: apiMessages(path, systemPrompt()),
      ...fields,
      tools: tools.length ? tools : undefined,
      stream: true,
      stream_options: { include_usage: true },
      ...(begun && { continue_final_message: true, add_generation_prompt: false }),
    };
  }

  async #stream(conversation, answer, body) {
    const screen = new Screen(this.#transcript, answer, () => this.#shown === conversation);
    const run = this.#answers.run(conversation, answer, body, () => screen.draw());
    this.#drawBusy();
    screen.draw();
    await run;
    screen.end();
    await this.#finish(conversation, answer);
    if (answer.calls?.length && answer.finish === "tool_calls") this.#calls.begin(conversation, answer);
  }

  async #finish(conversation, answer) {
    conversation.updated = Date.now();
    await this.#store.save(conversation);
    if (this.#shown === conversation) {
      this.#transcript.update(answer);
      this.#drawBusy();
      announce(answer.error ? `Error: ${answer.error.message}` : "The answer is complete");
    }
    await this.#sidebar.draw();
  }

  newConversation() {
    this.open(null);
    byId("prompt").focus();
  }

  showPrompts() {
    this.#prompts.show();
  }

  search() {
    this.#sidebar.toggle(true);
    byId("search").focus();
  }

  // The last answer of the conversation that is shown.
  #lastAnswer() {
    return shownPath(this.#shown).findLast(({ role }) => role === "assistant");
  }

  answerAgain() {
    const last = this.#lastAnswer();
    if (last) this.#answer(last.parent);
  }

  async copyLast() {
    const last = this.#lastAnswer();
    if (!last) return;
    await copyText(last.content);
    toast("The last answer was copied");
  }

  #drawBusy() {
    const busy = this.#answers.isRunning(this.#shown);
    byId("send").disabled = busy;
    byId("stop").disabled = !busy;
    byId("messages").setAttribute("aria-busy", String(busy));
  }
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
