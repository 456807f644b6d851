// The chat: one conversation, streamed from /v1/chat/completions.
const byId = (id) => document.getElementById(id);

const conversation = []; // {role, content} as the API takes them
let running = null; // the AbortController of the answer under way

function addMessage(role, text) {
  const box = document.createElement("div");
  box.className = `message ${role}`;
  const body = document.createElement("div");
  body.className = "content";
  body.textContent = text;
  box.append(body);
  byId("messages").append(box);
  box.scrollIntoView({ block: "end" });
  return box;
}

function reasoningOf(box) {
  let part = box.querySelector(".reasoning");
  if (!part) {
    part = document.createElement("div");
    part.className = "reasoning";
    box.prepend(part);
  }
  return part;
}

function numberOf(id) {
  const value = byId(id).value;
  return value === "" ? undefined : Number(value);
}

function requestBody() {
  const system = byId("system").value.trim();
  return {
    model: byId("model").value,
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation,
    temperature: numberOf("temperature"),
    top_p: numberOf("top_p"),
    top_k: numberOf("top_k"),
    max_tokens: numberOf("max_tokens"),
    seed: numberOf("seed"),
    stream: true,
    stream_options: { include_usage: true },
  };
}

// The payloads of the `data:` lines of a response, as they come.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function receive(response, box) {
  const answer = { role: "assistant", content: "" };
  const started = performance.now();
  let first = 0;
  let pieces = 0;
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    const delta = event.choices?.[0]?.delta ?? {};
    const reasoning = delta.reasoning_content ?? "";
    if (reasoning) reasoningOf(box).textContent += reasoning;
    if (delta.content) {
      answer.content += delta.content;
      box.querySelector(".content").textContent = answer.content;
    }
    if (delta.content || reasoning) {
      first ||= performance.now();
      pieces += 1;
      box.scrollIntoView({ block: "end" });
    }
    const tokens = event.usage?.completion_tokens ?? pieces;
    const seconds = (performance.now() - (first || started)) / 1000;
    if (seconds > 0 && tokens > 1) {
      byId("rate").textContent = `${tokens} tokens, ${((tokens - 1) / seconds).toFixed(1)} tokens/s, first after ${((first - started) / 1000).toFixed(2)} s`;
    }
  }
  return answer;
}

function setBusy(busy) {
  byId("send").disabled = busy;
  byId("stop").disabled = !busy;
  byId("regenerate").disabled = busy || !conversation.some((message) => message.role === "user");
}

async function answer() {
  running = new AbortController();
  setBusy(true);
  const box = addMessage("assistant", "");
  const key = byId("api_key").value;
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) },
      body: JSON.stringify(requestBody()),
      signal: running.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error?.message ?? response.statusText);
    conversation.push(await receive(response, box));
  } catch (error) {
    if (error.name === "AbortError") {
      conversation.push({ role: "assistant", content: box.querySelector(".content").textContent });
    } else {
      box.classList.add("error");
      box.querySelector(".content").textContent = error.message;
    }
  } finally {
    running = null;
    setBusy(false);
  }
}

function send(event) {
  event.preventDefault();
  const text = byId("prompt").value.trim();
  if (!text || running) return;
  byId("prompt").value = "";
  conversation.push({ role: "user", content: text });
  addMessage("user", text);
  answer();
}

function regenerate() {
  while (conversation.length && conversation.at(-1).role === "assistant") conversation.pop();
  const boxes = byId("messages").children;
  while (boxes.length && !boxes[boxes.length - 1].classList.contains("user")) boxes[boxes.length - 1].remove();
  answer();
}

function clear() {
  running?.abort();
  conversation.length = 0;
  byId("messages").replaceChildren();
  byId("rate").textContent = "";
  setBusy(false);
}

export function startChat() {
  byId("composer").addEventListener("submit", send);
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) send(event);
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("regenerate").addEventListener("click", regenerate);
  byId("clear").addEventListener("click", clear);
}
