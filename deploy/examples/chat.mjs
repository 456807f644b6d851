// A streamed conversation with Node's own fetch: node chat.mjs [QUESTION...]. Ctrl-C cancels the request, and the server stops computing it.
const url = process.env.QUIRE_URL ?? "http://127.0.0.1:8080";
const headers = { "Content-Type": "application/json", Authorization: `Bearer ${process.env.QUIRE_KEY ?? "none"}` };
const cancel = new AbortController();
process.once("SIGINT", () => cancel.abort());

// The pieces of an answer's text.
async function* stream_chat(messages, options = {}) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST", headers, signal: cancel.signal, body: JSON.stringify({ messages, stream: true, ...options }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${(await response.json()).error.message}`);
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice("data: ".length));
      if (event.error) throw new Error(event.error.message);
      yield event.choices[0]?.delta.content ?? "";
    }
  }
}

const messages = [];
for (const question of process.argv.length > 2 ? process.argv.slice(2) : ["What is a KV block?"]) {
  messages.push({ role: "user", content: question });
  let answer = "";
  for await (const piece of stream_chat(messages, { max_tokens: 256 })) {
    process.stdout.write(piece);
    answer += piece;
  }
  process.stdout.write("\n");
  messages.push({ role: "assistant", content: answer });
}
