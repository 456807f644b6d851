// The trained seeing model through the daemon: right words about pictures that this file draws, the same in a crowd, after
// another turn, and in every API.
import assert from "node:assert/strict";
import { join } from "node:path";
import { afterEach, test } from "node:test";
import { deflateSync } from "node:zlib";
import { png } from "../png.mjs";
import { QuireServer } from "../server_process.mjs";

const model = join(process.env.QUIRE_SOURCE, "deploy/demo-model/seeing/quire-seeing.gguf");
const colours = { white: [250, 250, 250], red: [214, 40, 40], blue: [40, 80, 214], green: [30, 150, 60], yellow: [240, 205, 30] };
const shapes = {
  circle: (x, y) => x * x + y * y <= 1,
  square: (x, y) => Math.max(Math.abs(x), Math.abs(y)) <= 0.9,
  triangle: (x, y) => y <= 0.85 && y >= -1 + 1.9 * Math.abs(x),
  cross: (x, y) => Math.min(Math.abs(x), Math.abs(y)) <= 0.33 && Math.max(Math.abs(x), Math.abs(y)) <= 1,
};

// A square PNG with items of {kind, colour, row, column}, rows and columns from 0 to 2.
function picture(items, side = 192) {
  const rows = Buffer.alloc(side * (3 * side + 1));
  for (let y = 0; y < side; ++y) {
    for (let x = 0; x < side; ++x) {
      const cell = side / 3;
      const item = items.find(({ kind, row, column }) =>
        shapes[kind]((x + 0.5 - (column + 0.5) * cell) / (0.4 * cell), (y + 0.5 - (row + 0.5) * cell) / (0.4 * cell)));
      colours[item?.colour ?? "white"].forEach((value, i) => { rows[y * (3 * side + 1) + 1 + 3 * x + i] = value; });
    }
  }
  return png(side, side, deflateSync(rows)).toString("base64");
}

const one = picture([{ kind: "triangle", colour: "green", row: 1, column: 1 }]);
const two = picture([{ kind: "circle", colour: "red", row: 0, column: 0 }, { kind: "square", colour: "blue", row: 2, column: 2 }], 64);
const three = picture([{ kind: "cross", colour: "yellow", row: 0, column: 1 }, { kind: "square", colour: "blue", row: 1, column: 0 },
  { kind: "square", colour: "blue", row: 2, column: 2 }], 300);
const expected = [
  [one, "What is in the picture?", "A green triangle."],
  [one, "What shape is it?", "It is a triangle."],
  [one, "Where is the triangle?", "The triangle is in the middle."],
  [two, "What do you see?", "A red circle and a blue square."],
  [two, "What colour is the square?", "The square is blue."],
  [two, "Where is the red circle?", "The red circle is at the top left."],
  [two, "Is there a green cross?", "No, there is no green cross."],
  [three, "How many squares are there?", "There are two squares."],
  [three, "How many shapes are there?", "There are three shapes."],
  [three, "Where is the cross?", "The cross is at the top."],
];

let server;
afterEach(() => server?.kill());

async function post(path, body) {
  const response = await server.post(path, { temperature: 0, ...body });
  assert.equal(response.status, 200, await response.clone().text());
  return response.json();
}

const asked = (image, text) => ({ role: "user", content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${image}` } }, { type: "text", text }] });
const answer = async (image, text) => (await post("/v1/chat/completions", { messages: [asked(image, text)], max_tokens: 60 })).choices[0].message.content;

test("the seeing model names shapes, colours, numbers and places, alone and in a crowd", async () => {
  server = await QuireServer.start([], { model });
  for (const [image, question, right] of expected) assert.equal(await answer(image, question), right, question);
  const crowd = await Promise.all(expected.map(([image, question]) => answer(image, question)));
  assert.deepEqual(crowd, expected.map(([, , right]) => right));
  await server.stop();
});

test("a second question about a picture takes it from the cache, and every API shows it", async () => {
  server = await QuireServer.start([], { model });
  const messages = [asked(two, "What is in the picture?")];
  const first = await post("/v1/chat/completions", { messages, max_tokens: 60 });
  assert.equal(first.choices[0].message.content, "A red circle and a blue square.");
  messages.push(first.choices[0].message, { role: "user", content: "What colour is the circle?" });
  const second = await post("/v1/chat/completions", { messages, max_tokens: 60 });
  assert.equal(second.choices[0].message.content, "The circle is red.");
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > 16, "the picture's rows among them");
  const question = "Where is the red circle?";
  const right = "The red circle is at the top left.";
  const claude = await post("/v1/messages", { max_tokens: 60, messages: [{ role: "user",
    content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: two } }, { type: "text", text: question }] }] });
  assert.equal(claude.content[0].text, right);
  const responses = await post("/v1/responses", { input: [{ role: "user",
    content: [{ type: "input_image", image_url: `data:image/png;base64,${two}` }, { type: "input_text", text: question }] }] });
  assert.equal(responses.output[0].content[0].text, right);
  const ollama = await post("/api/chat", { stream: false, options: { temperature: 0 }, messages: [{ role: "user", content: question, images: [two] }] });
  assert.equal(ollama.message.content, right);
  await server.stop();
});

test("without a picture it says what it can do", async () => {
  server = await QuireServer.start([], { model });
  const { choices } = await post("/v1/chat/completions", { messages: [{ role: "user", content: "Hello" }], max_tokens: 60 });
  assert.match(choices[0].message.content, /^Hello! I am Quire's seeing model\./);
  await server.stop();
});
