// Lists that travel between browsers as JSON files: {quire: 1, [key]: items}.
import { download, toast } from "./dom.js";

export function exportList(name, key, items) {
  download(`${name}.json`, JSON.stringify({ quire: 1, [key]: items }, null, 1), "application/json");
}

// The items of the file that the field holds, or nothing, after a note that says why.
export async function importList(field, key, isItem) {
  const [file] = field.files;
  if (!file) return undefined;
  try {
    const items = JSON.parse(await file.text())[key];
    if (!Array.isArray(items) || !items.every(isItem)) throw new Error(`it holds no ${key} of Quire`);
    toast(`${items.length} imported`);
    return items;
  } catch (error) {
    toast(`${file.name} cannot be imported: ${error.message}`);
    return undefined;
  } finally {
    field.value = "";
  }
}
