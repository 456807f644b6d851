// Small helpers over the DOM: elements, dialogs, menus, notes. Texts become text nodes: nothing here parses HTML.
const kToastTime = 10_000; // ms

export const byId = (id) => document.getElementById(id);

// element("button", {class: "quiet", title: "Copy", onclick: copy}, "Copy")
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, label);
}

// A button for what cannot be undone: it asks once more.
export function sureButton(label, onclick, attributes = {}) {
  let isSure = false;
  const ask = (sure) => {
    isSure = sure;
    made.textContent = sure ? `Really ${label.toLowerCase()}?` : label;
  };
  const made = button(label, () => {
    if (isSure) onclick();
    ask(!isSure);
  }, { ...attributes, onblur: () => ask(false) });
  return made;
}

// A dialog with a heading, that content, and a button that closes it. It is made when it opens and gone when it closes.
export function openDialog(id, title, ...content) {
  const dialog = element("dialog", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), ...content,
    element("form", { method: "dialog", class: "row" }, element("span", { class: "grow" }), element("button", {}, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// A button that opens a short list of actions. Escape, a choice or leaving it closes it.
// items: buttons' labels with what each does, [[label, run]], or a function that gives them whenever the menu opens.
export function menu(text, label, items, attributes = {}) {
  const summary = element("summary", { "aria-label": label }, text);
  const list = element("div", { class: "menu", onclick: () => { box.open = false; } });
  const box = element("details", { ...attributes, class: `more ${attributes.class ?? ""}`.trim() }, summary, list);
  const fill = () => list.replaceChildren(...(typeof items === "function" ? items() : items).map(([name, run]) => button(name, run)));
  if (typeof items !== "function") fill();
  summary.addEventListener("click", () => { if (!box.open) fill(); });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !box.open) return;
    event.preventDefault(); // a running answer is not stopped
    box.open = false;
    summary.focus();
  });
  box.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !box.contains(event.relatedTarget)) box.open = false;
  });
  return box;
}

// Says something that only screen readers would miss otherwise.
export function announce(text) {
  byId("announcer").textContent = text;
}

let toastTimer = 0;

// A line below everything else, which it does not cover, with at most one action such as Undo. It stays while it is pointed at or
// has the focus.
export function toast(text, action) {
  const box = byId("toast");
  const close = () => { box.hidden = true; };
  const closeLater = () => {
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => (box.matches(":hover, :focus-within") ? closeLater() : close()), kToastTime);
  };
  box.replaceChildren(element("span", { class: "grow" }, text));
  if (action) box.append(button(action.label, () => { close(); action.run(); }));
  box.append(button("✕", close, { class: "quiet", "aria-label": "Close this note" }));
  box.hidden = false;
  closeLater();
}

// Loads a classic script of the page once; resolves when it has run.
const scripts = new Map();
export function loadScript(source) {
  if (!scripts.has(source)) {
    scripts.set(source, new Promise((resolve, reject) => {
      const tag = element("script", { src: source });
      tag.addEventListener("load", resolve);
      tag.addEventListener("error", () => reject(new Error(`${source} could not be loaded`)));
      document.head.append(tag);
    }));
  }
  return scripts.get(source);
}

// The clipboard's own interface needs a secure context, which plain HTTP to another machine is not.
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = element("textarea", { class: "offscreen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function download(name, text, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
