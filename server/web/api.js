// Calls to the server's API, and its errors with what a user can do about them.
import { byId } from "./dom.js";

export class ApiError extends Error {
  // isLost: the connection's fault, not the server's.
  constructor(message, { status = 0, code = "", retryAfter = 0, isLost = false } = {}) {
    super(message);
    this.isLost = isLost;
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }

  // One sentence: what to do.
  get remedy() {
    if (this.status === 0) return "The server does not answer: check that it runs and is reachable, then try again.";
    if (this.status === 401) return "Enter a valid API key in the settings.";
    if (this.code === "context_length_exceeded") {
      return "Start a new conversation, remove messages or attachments, or lower the maximum of tokens.";
    }
    if (this.code === "unsupported_content") return "Remove the image, or choose a model that sees images.";
    if (this.code === "model_not_found") return "Choose another model.";
    if (this.status === 413) return "Remove images or files from the conversation, or start a new one.";
    if (this.status === 429 || this.status === 503) {
      return this.retryAfter > 0 ? `Try again in ${this.retryAfter} s.` : "Try again in a moment.";
    }
    if (this.status === 400) return "Correct the setting that the message names.";
    return "Try again; if it fails once more, the server's log says why.";
  }
}

function headers(hasBody) {
  const key = byId("api_key").value;
  return { ...(hasBody && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
}

async function errorOf(response) {
  const retryAfter = Number(response.headers.get("retry-after") ?? 0);
  let message = `${response.status} ${response.statusText}`;
  let code = "";
  try {
    const { error } = await response.json();
    message = error.message;
    code = error.code ?? "";
  } catch { /* not JSON: the status line has to do */ }
  return new ApiError(message, { status: response.status, code, retryAfter });
}

// The response, successful. Throws ApiError, or AbortError where `signal` ended it.
export async function call(path, { body, signal, headers: more = {}, method = body ? "POST" : "GET" } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { ...headers(Boolean(body)), ...more },
      body: body && JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("No answer from the server", { isLost: true });
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

// A frame's fields by name. Several lines of data are joined; a comment has no data.
function frameOf(text) {
  const frame = { id: "", name: "", data: "" };
  for (const line of text.split("\n")) {
    const [, field, value] = /^(id|event|data): ?(.*)$/.exec(line) ?? [];
    if (field === "data") frame.data += (frame.data && "\n") + value;
    else if (field) frame[field === "event" ? "name" : field] = value;
  }
  return frame;
}

// The frames of a streamed response as they arrive. Throws ApiError where the connection is lost.
export async function* frames(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        if (error.name === "AbortError") throw error;
        throw new ApiError("The connection to the server was lost", { isLost: true });
      });
      if (done) return;
      const texts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = texts.pop();
      for (const text of texts) yield frameOf(text);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The events of a streamed response, {id, name, data}, with the data read as JSON. Throws ApiError where the stream says so or ends
// before its end: [DONE], or an event that `isLast` accepts.
export async function* events(response, isLast = () => false) {
  for await (const frame of frames(response)) {
    if (frame.data === "[DONE]") return;
    if (!frame.data) continue;
    const event = { ...frame, data: JSON.parse(frame.data) };
    if (event.data.error) throw new ApiError(event.data.error.message, { status: 500, code: event.data.error.code ?? "" });
    yield event;
    if (isLast(event)) return;
  }
  throw new ApiError("The connection was closed before the answer's end", { isLost: true });
}
