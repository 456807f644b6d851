// Small values that the browser keeps between visits. Where it refuses storage they last as long as the page.
const held = new Map();

function storage(isOfTab) {
  return isOfTab ? sessionStorage : localStorage;
}

// The value kept under that key, or `fallback`. isOfTab: only as long as the tab is open, for secrets.
export function recall(key, fallback = null, isOfTab = false) {
  try {
    return JSON.parse(storage(isOfTab).getItem(key)) ?? fallback;
  } catch {
    return held.get(key) ?? fallback;
  }
}

export function keep(key, value, isOfTab = false) {
  held.set(key, value);
  try {
    storage(isOfTab).setItem(key, JSON.stringify(value));
  } catch { /* held above */ }
}
