// Pictures among attached files: {name, image: a data URL, width, height, bytes, tokens?, countedBy?}. They are kept with their
// conversation; `tokens` are what they take of the model `countedBy`.
import { call } from "./api.js";
import { button, element, openDialog } from "./dom.js";

const kTypes = ["image/png", "image/jpeg", "image/webp", "image/gif"]; // what the server decodes
const kLargest = 8 * 1024 * 1024; // bytes: a request's body has room for it in base64

export const isPicture = (file) => kTypes.includes(file.type);

// Throws where the browser cannot show it.
export async function readPicture(file) {
  if (file.size > kLargest) throw new Error(`it is larger than ${kLargest / (1024 * 1024)} MiB`);
  const image = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("it cannot be read"));
    reader.readAsDataURL(file);
  });
  return measured(file.name || "image", image, file.size);
}

async function measured(name, image, bytes) {
  const shown = new Image();
  shown.src = image;
  await shown.decode().catch(() => { throw new Error("it is no image that can be shown"); });
  return { name, image, width: shown.naturalWidth, height: shown.naturalHeight, bytes };
}

// A picture to try a model with: a red circle at the top left, a blue square at the bottom right.
export async function drawnPicture() {
  const canvas = element("canvas", { width: 256, height: 256 });
  const pen = canvas.getContext("2d");
  const fill = (colour, path) => {
    pen.fillStyle = colour;
    pen.beginPath();
    path();
    pen.fill();
  };
  fill("rgb(250, 250, 250)", () => pen.rect(0, 0, 256, 256));
  fill("rgb(214, 40, 40)", () => pen.arc(43, 43, 34, 0, 2 * Math.PI));
  fill("rgb(40, 80, 214)", () => pen.rect(182, 182, 62, 62));
  const blob = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  return new File([blob], "shapes.png", { type: "image/png" });
}

// A picture that a tool returned in base64; nothing where the browser cannot show it, or the server would not read it.
export async function pictureOf(name, type, base64) {
  const bytes = Math.floor(base64.length * 3 / 4);
  if (!kTypes.includes(type) || bytes > kLargest) return undefined;
  return measured(name, `data:${type};base64,${base64}`, bytes).catch(() => undefined);
}

// Tokens of a message of these parts, as the server counts them; no image is encoded.
async function inputTokens(model, content) {
  const body = { model, input: [{ role: "user", content: [...content, { type: "input_text", text: "." }] }] };
  return (await (await call("/v1/responses/input_tokens", { body })).json()).input_tokens;
}

const besides = new Map(); // model -> tokens of such a message without a picture

// Notes how many tokens the picture takes of the model.
export async function countTokens(file, model) {
  if (!besides.has(model)) besides.set(model, await inputTokens(model, []));
  const tokens = await inputTokens(model, [{ type: "input_image", image_url: file.image }]) - besides.get(model);
  Object.assign(file, { tokens, countedBy: model });
}

const kibibytes = (bytes) => (bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${Math.max(1, Math.round(bytes / 1024))} KiB`);

export function sizeText({ width, height, bytes, tokens }) {
  return [`${width} × ${height}`, bytes && kibibytes(bytes), tokens && `${tokens} tokens`].filter(Boolean).join(", ");
}

export function thumbnail(file) {
  return element("img", { class: "thumbnail", src: file.image, alt: file.name, title: `${file.name}, ${sizeText(file)}` });
}

// A thumbnail with its sizes, which opens the picture in full.
export function figure(file) {
  const open = button(thumbnail(file), () => enlarge(file), { class: "picture", "aria-label": `Show ${file.name}` });
  return element("figure", { class: "attached" }, open, element("figcaption", {}, sizeText(file)));
}

function enlarge(file) {
  const dialog = openDialog("enlarged", file.name, element("img", { src: file.image, alt: file.name }), element("p", { class: "note" }, sizeText(file)));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}
