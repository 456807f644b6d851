// The messages of the conversation that is shown, and what can be done with each. Draws; the conversation is changed by
// the actions that the chat passes in.
import { button, copyText, element, menu } from "./dom.js";
import { resultsOf, shownPath, siblingsOf } from "./conversation.js";
import { renderMarkdown } from "./markdown.js";
import { figure } from "./pictures.js";

const kShortest = 0.05; // seconds of an answer from which a rate is computed
const kChunk = 16; // messages that the browser lays out, or skips, together
const kAtOnce = 6; // messages at the end of a conversation that are complete when it is opened
const kFrameBudget = 5; // ms of each frame for messages that come near the screen
const kLineHeight = 24; // px, and characters of a line, by which the height of a message is guessed
const kLineLength = 95;
const kNames = { user: "You", assistant: "Assistant", tool: "Tool result" };
const kEnds = {
  stop: "", tool_calls: "", length: "Ended at the maximum of tokens.", content_filter: "Ended by a filter.",
  aborted: "Stopped.", error: "",
};

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // still incomplete
  }
}

function guessedHeight(text) {
  const lines = text.split("\n").reduce((sum, line) => sum + Math.ceil((line.length || 1) / kLineLength), 0);
  return kLineHeight * (lines + 3);
}

// An answer's cost: [[what, value]], and its first two as a line.
function costs({ usage, timing, model }, context) {
  const tokens = usage?.completion_tokens;
  if (!tokens) return { line: "", rows: [] };
  const seconds = timing?.first ? (timing.last - timing.first) / 1000 : 0;
  const first = timing?.first && (timing.first - timing.began) / 1000;
  const rate = tokens > 1 && seconds > kShortest && `${((tokens - 1) / seconds).toFixed(1)} tokens/s`;
  const cached = usage.prompt_tokens_details?.cached_tokens;
  const reasoning = usage.completion_tokens_details?.reasoning_tokens;
  const total = usage.prompt_tokens + tokens;
  return {
    line: [`${tokens} tokens`, rate, first !== undefined && `first after ${first.toFixed(2)} s`, cached && `${cached} of ${usage.prompt_tokens} prompt tokens cached`]
      .filter(Boolean).join(", "),
    rows: [
      ["Model", model], ["Prompt", `${usage.prompt_tokens} tokens${cached ? `, ${cached} of them cached` : ""}`],
      ["Answer", `${tokens} tokens${reasoning ? `, ${reasoning} of them reasoning` : ""}`], ["Speed", rate],
      ["First token", first !== undefined && `after ${first.toFixed(2)} s`],
      ["Whole answer", timing?.first && `${((timing.last - timing.began) / 1000).toFixed(2)} s`],
      ["Context", context && `${total} of ${context} tokens (${Math.round(100 * total / context)} %)`],
    ].filter(([, value]) => value),
  };
}

function title({ role, model, name }) {
  if (role === "assistant") return model ?? kNames.assistant;
  return role === "tool" && name ? `Result of ${name}` : kNames[role];
}

export class Transcript {
  #box;
  #jump;
  #actions;
  #conversation = null;
  #follows = true; // the newest text is kept in view
  #lastTop = 0;
  #seen;
  #near = new Set(); // chunks near the screen that have incomplete messages
  #planned = 0; // the animation frame that completes some

  // actions: edit(message, text), again(message, model), proceed(message), remove(message), branch(message), show(id),
  // answerCall(message, call, text), otherModels(message), contextOf(model), callForm(message, call)
  constructor(box, jump, actions) {
    this.#box = box;
    this.#jump = jump;
    this.#actions = actions;
    box.addEventListener("scroll", () => this.#noteScroll(), { passive: true });
    jump.addEventListener("click", () => this.follow());
    // The messages of a long conversation are completed where they come near the screen.
    this.#seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) this.#near.add(target);
        else this.#near.delete(target);
      }
      if (this.#near.size && !this.#planned) this.#planned = requestAnimationFrame(() => this.#completeNear());
    }, { root: box, rootMargin: "800px" });
  }

  // As many as a frame has time for, the last chunk first: scrolling stays smooth.
  #completeNear() {
    this.#planned = 0;
    const began = performance.now();
    for (const chunk of [...this.#near].reverse()) {
      for (const article of [...chunk.children].reverse()) {
        if (article.querySelector("footer")) continue;
        if (performance.now() - began > kFrameBudget) break;
        const message = this.#conversation?.messages[article.dataset.id];
        if (message) this.#complete(article, message, false);
      }
      if (performance.now() - began > kFrameBudget) break;
      this.#near.delete(chunk);
      this.#seen.unobserve(chunk);
    }
    if (this.#follows) this.#box.scrollTop = this.#box.scrollHeight; // what is above may have another height than guessed
    if (this.#near.size) this.#planned = requestAnimationFrame(() => this.#completeNear());
  }

  show(conversation) {
    this.#conversation = conversation;
    this.#seen.disconnect();
    this.#near.clear();
    const path = conversation ? shownPath(conversation) : [];
    const firstNear = path.length - kAtOnce;
    const chunks = [];
    for (let begin = 0; begin < path.length; begin += kChunk) {
      const messages = path.slice(begin, begin + kChunk);
      const chunk = element("div", { class: "chunk" }, ...messages.map((message, i) => this.#build(message, begin + i >= firstNear)));
      chunk.style.containIntrinsicSize = `auto ${messages.reduce((sum, { content }) => sum + guessedHeight(content), 0)}px`;
      if (begin < firstNear) this.#seen.observe(chunk);
      chunks.push(chunk);
    }
    this.#box.replaceChildren(...chunks);
    this.follow();
  }

  // The message changed; it is added where it is new.
  update(message, isGrowing) {
    const old = this.#box.querySelector(`[data-id="${CSS.escape(message.id)}"]`);
    if (old && !old.querySelector("footer")) this.#complete(old, message, isGrowing);
    else if (old) this.#redraw(old, message, isGrowing);
    else this.#append(this.#build(message, true));
    if (this.#follows) this.#toEnd();
  }

  #append(article) {
    if (!(this.#box.lastElementChild?.childElementCount < kChunk)) this.#box.append(element("div", { class: "chunk" }));
    this.#box.lastElementChild.append(article);
  }

  follow() {
    this.#follows = true;
    this.#jump.hidden = true;
    this.#toEnd();
  }

  // Brings the message into view, which is where the reader stays. Twice: heights above it were guesses.
  reveal(id) {
    this.#follows = false;
    const go = () => this.#box.querySelector(`[data-id="${CSS.escape(id)}"]`)?.scrollIntoView({ block: "center" });
    go();
    requestAnimationFrame(() => requestAnimationFrame(go));
  }

  // Again in the next frame: what was not drawn before had only a guessed height.
  #toEnd() {
    const go = () => { if (this.#follows) this.#box.scrollTop = this.#box.scrollHeight; };
    go();
    requestAnimationFrame(go);
  }

  // Only a scroll upwards is the reader's own: the text's growth moves the end away, too.
  #noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#box;
    if (scrollHeight - scrollTop - clientHeight < 40) this.#follows = true;
    else if (scrollTop < this.#lastTop - 1) this.#follows = false;
    this.#lastTop = scrollTop;
    this.#jump.hidden = this.#follows;
  }

  // In place, so that the text does not move under a reader.
  #redraw(article, message, isGrowing) {
    this.#drawText(article, message, isGrowing);
    if (isGrowing) return;
    article.classList.toggle("error", Boolean(message.error));
    article.querySelector("header").replaceWith(this.#header(message));
    this.#drawEnd(article, message);
  }

  #build(message, isNear = false) {
    const article = element("article", {
      class: `message ${message.role}${message.error ? " error" : ""}`, "data-id": message.id, "aria-label": kNames[message.role],
    });
    if (isNear) this.#complete(article, message, false);
    else {
      article.append(element("div", { class: "content" }, message.content)); // for the browser's own search
    }
    return article;
  }

  #complete(article, message, isGrowing) {
    article.replaceChildren(
      this.#header(message),
      element("details", { class: "reasoning", hidden: true }, element("summary", {}, "Reasoning"), element("div", { class: "text" })),
      element("div", message.role === "tool" ? { class: "content", tabindex: "0", role: "region", "aria-label": title(message) } : { class: "content" }),
      element("div", { class: "calls" }),
      element("footer"));
    this.#drawText(article, message, isGrowing);
    this.#drawEnd(article, message);
  }

  #header(message) {
    const header = element("header", {}, element("b", {}, title(message)));
    const siblings = siblingsOf(this.#conversation, message);
    if (siblings.length > 1) {
      const at = siblings.indexOf(message);
      const go = (step, label) => button(step < 0 ? "‹" : "›", () => this.#actions.show(siblings[at + step].id),
        { class: "quiet", "aria-label": label, disabled: !siblings[at + step] });
      header.append(element("span", { class: "branches" }, go(-1, "Earlier version"), `${at + 1}/${siblings.length}`, go(1, "Later version")));
    }
    for (const file of message.files ?? []) {
      header.append(file.image ? figure(file) : element("span", { class: "chip", title: `${file.text.length} characters` }, file.name));
    }
    return header;
  }

  #drawText(article, message, isGrowing) {
    const reasoning = article.querySelector(".reasoning");
    reasoning.hidden = !message.reasoning;
    if (message.reasoning) {
      renderMarkdown(reasoning.querySelector(".text"), message.reasoning, isGrowing && !message.content);
      reasoning.querySelector("summary").textContent = isGrowing && !message.content ? "Reasoning…" : "Reasoning";
    }
    const content = article.querySelector(".content");
    if (message.role === "assistant") renderMarkdown(content, message.content, isGrowing);
    else content.textContent = message.content;
    article.classList.toggle("waiting", Boolean(isGrowing && !message.content && !message.reasoning && !message.calls?.length));
    this.#drawCalls(article.querySelector(".calls"), message, isGrowing);
  }

  #drawCalls(box, message, isGrowing) {
    const answers = message.calls?.length ? resultsOf(this.#conversation, message).map(({ callId }) => callId) : [];
    box.replaceChildren(...(message.calls ?? []).map((call) => {
      const shown = element("details", { class: "call", open: true }, element("summary", {}, `Calls ${call.name}`),
        element("pre", {}, pretty(call.arguments)));
      if (!isGrowing && !answers.includes(call.id)) shown.append(this.#actions.callForm(message, call) ?? this.#answerForm(message, call));
      return shown;
    }));
  }

  #answerForm(message, call) {
    const field = element("textarea", { rows: 2, "aria-label": `Result of ${call.name}`, placeholder: "What the tool returns" });
    const send = (event) => {
      event.preventDefault();
      this.#actions.answerCall(message, call, field.value);
    };
    return element("form", { onsubmit: send }, field, element("button", { type: "submit" }, "Give this result"));
  }

  #drawEnd(article, message) {
    const footer = article.querySelector("footer");
    const actions = this.#actions;
    footer.replaceChildren();
    if (message.error) {
      footer.append(element("p", { class: "problem", role: "alert" }, element("b", {}, message.error.message), ` ${message.error.remedy}`));
    }
    if (message.warnings) footer.append(element("p", { class: "warning" }, message.warnings));
    if (kEnds[message.finish]) footer.append(element("span", { class: "ended" }, kEnds[message.finish]));
    if (["length", "aborted"].includes(message.finish) && message.content && !message.calls?.length) {
      footer.append(button("Continue", () => actions.proceed(message)));
    }
    const tools = element("span", { class: "tools" },
      button("Copy", () => copyText(message.content), { class: "quiet" }),
      message.role !== "tool" && button("Edit", () => this.#edit(article, message), { class: "quiet" }),
      message.role === "assistant" && button("Again", () => actions.again(message), { class: "quiet again" }),
      message.role === "assistant" && menu("with…", "Answer again with another model",
        () => actions.otherModels(message).map((model) => [model, () => actions.again(message, model)]), { class: "again-with" }),
      button("Branch", () => actions.branch(message), { class: "quiet", title: "A new conversation from here" }),
      button("Delete", () => actions.remove(message), { class: "quiet", title: "With all that follows" }));
    tools.querySelectorAll("button").forEach((tool) => tool.setAttribute("aria-label", `${tool.textContent} this message`));
    const { line, rows } = costs(message, actions.contextOf(message.model));
    if (line) {
      footer.append(element("details", { class: "usage" }, element("summary", { class: "rate" }, line),
        element("dl", {}, ...rows.flatMap(([what, value]) => [element("dt", {}, what), element("dd", {}, value)]))));
    }
    footer.append(tools);
  }

  #edit(article, message) {
    const field = element("textarea", { class: "editor", rows: Math.min(20, message.content.split("\n").length + 1), "aria-label": "Edited text" });
    field.value = message.content;
    const close = () => article.replaceWith(this.#build(message, true));
    const save = () => {
      if (field.value.trim() && field.value !== message.content) this.#actions.edit(message, field.value);
      else close();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    });
    article.querySelector(".content").replaceChildren(field);
    article.querySelector("footer").replaceChildren(
      button(message.role === "user" ? "Send" : "Save", save), button("Cancel", close));
    field.focus();
  }
}
