// Pictures among attached files: {name, image: a data URL, width, height}. They are kept with their conversation.
import { element } from "./dom.js";

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
  const shown = new Image();
  shown.src = image;
  await shown.decode().catch(() => { throw new Error("it is no image that can be shown"); });
  return { name: file.name || "image", image, width: shown.naturalWidth, height: shown.naturalHeight };
}

export const sizeText = ({ width, height }) => `${width} × ${height}`;

export function thumbnail(file) {
  return element("img", { class: "thumbnail", src: file.image, alt: file.name, title: `${file.name}, ${sizeText(file)}` });
}
