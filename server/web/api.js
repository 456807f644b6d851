// Calls to the server's API, and its errors with what a user can do about them.
import { byId } from "./dom.js";

export class ApiError extends Error {
  constructor(message, { status = 0, code = "", retryAfter = 0 } = {}) {
    super(message);
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
export async function call(path, { body, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: headers(Boolean(body)),
      body: body && JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("No answer from the server");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

// The payloads of the `data:` lines of a streamed response, as they arrive. Throws ApiError where the stream says so or
// ends before its end.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new ApiError("The connection was closed before the answer's end");
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const data = line.startsWith("data:") ? line.slice(5).trim() : "";
        if (data === "[DONE]") return;
        if (!data) continue;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(event.error.message, { status: 500, code: event.error.code ?? "" });
        yield event;
      }
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError("The connection to the server was lost");
  } finally {
    reader.cancel().catch(() => {});
  }
}
