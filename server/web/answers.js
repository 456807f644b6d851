// Answers under way: requested from /v1/chat/completions and streamed into their messages. Where the server keeps streams
// (`server.resume`), one whose connection or page was lost is resumed after the last event that was taken.
import { call, events } from "./api.js";

const kSaveEvery = 1000; // ms, while an answer grows
const kMostTries = 5;    // to resume a stream whose connection was lost
const kPause = 500;      // ms before the first of them; twice as long before each further one

// The id of a request names its stream: unguessable.
function requestId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const waited = (time, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, time);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(new DOMException("The answer was stopped", "AbortError"));
  }, { once: true });
});

export const isResumable = (message) => message.role === "assistant" && !message.finish && message.stream?.seen > 0;

export function noteFailure(answer, error) {
  Object.assign(answer, { finish: "error", error: { message: error.message, remedy: error.remedy ?? "" } });
}

export class Answers {
  #keeps = false; // the server keeps streams: it numbers their events
  #running = new Map(); // conversation id -> {conversation, controller}
  #models;
  #save; // (conversation) => promise

  constructor(models, save) {
    this.#models = models;
    this.#save = save;
  }

  isRunning(conversation) {
    return this.#running.has(conversation.id);
  }

  // The conversation whose answer is received now, which is newer than the stored one; or undefined.
  running(id) {
    return this.#running.get(id)?.conversation;
  }

  stop(conversation) {
    this.#running.get(conversation.id)?.controller.abort();
  }

  // Streams an answer to `body` into the message, which ends with a `finish` and perhaps an `error`. draw() is called as it grows.
  // Without a body the message's own stream is resumed.
  async run(conversation, answer, body, draw) {
    const controller = new AbortController();
    this.#running.set(conversation.id, { conversation, controller });
    if (body) {
      Object.assign(answer, { finish: undefined, error: undefined, warnings: undefined, timing: { began: performance.now() } });
      answer.stream = { id: requestId(), seen: 0 };
    } else {
      delete answer.timing; // its clock was another page's
    }
    try {
      await this.#save(conversation);
      await this.#receiveAll(conversation, answer, body ?? answer.stream.body, draw, controller.signal);
    } catch (error) {
      if (error.name === "AbortError" && this.#keeps) call(`/v1/streams/${answer.stream.id}`, { method: "DELETE" }).catch(() => {}); // else it runs on
      if (error.name === "AbortError" || error.code === "stream_not_found") answer.finish = "aborted";
      else noteFailure(answer, error);
    }
    delete answer.stream;
    this.#running.delete(conversation.id);
  }

  // A lost connection costs nothing but time while the server keeps the stream.
  async #receiveAll(conversation, answer, body, draw, signal) {
    for (let failed = 0; ;) {
      const { seen } = answer.stream;
      try {
        const response = await this.#request(answer, body, signal);
        answer.warnings ??= response.headers.get("x-quire-warning") || undefined;
        return await this.#receive(response, conversation, answer, body, draw);
      } catch (error) {
        if (answer.stream.seen > seen) failed = 0;
        failed += 1;
        if (!error.isLost || answer.stream.seen === 0 || failed > kMostTries) throw error;
        await waited(kPause * 2 ** (failed - 1), signal);
      }
    }
  }

  async #request({ stream, model }, body, signal) {
    const watch = this.#models.watch(model); // shows a model that is still loading
    const headers = { "X-Request-Id": stream.id, ...(stream.seen > 0 && { "Last-Event-ID": String(stream.seen) }) };
    try {
      return await call("/v1/chat/completions", { body, headers, signal });
    } finally {
      watch.end();
    }
  }

  async #receive(response, conversation, answer, body, draw) {
    let saved = performance.now();
    for await (const { id, data } of events(response)) {
      if (id) Object.assign(answer.stream, { body, seen: Number(id) }); // saved only where it can be resumed
      this.#keeps ||= Boolean(id);
      if (data.usage) answer.usage = data.usage;
      const choice = data.choices?.[0];
      if (!choice) continue;
      if (choice.finish_reason) answer.finish = choice.finish_reason;
      if (!take(answer, choice.delta ?? {})) continue;
      const now = performance.now();
      if (answer.timing) {
        answer.timing.last = now;
        answer.timing.first ??= now;
      }
      draw();
      if (now - saved > kSaveEvery) {
        saved = now;
        await this.#save(conversation);
      }
    }
    answer.finish ??= "stop";
  }
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
