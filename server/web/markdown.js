// Markdown of a model, rendered safely: parsed by marked, cleaned by DOMPurify, code coloured by highlight.js, formulas
// set by KaTeX. Until these libraries have arrived the text is shown as it is.
import { button, copyText, element, loadScript } from "./dom.js";

const kFormulas = [
  { begin: "$$", end: "$$", display: true },
  { begin: "\\[", end: "\\]", display: true },
  { begin: "\\(", end: "\\)", display: false },
  { begin: "$", end: "$", display: false },
];
const kMostCode = 50_000; // characters of a block that are still coloured

let ready = null;

function escapeHtml(text) {
  return text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
}

// The formula that `source` begins with, or nothing. A single dollar is money unless its text touches both signs and no
// digit follows.
export function formulaAt(source) {
  for (const { begin, end, display } of kFormulas) {
    if (!source.startsWith(begin)) continue;
    const stop = source.indexOf(end, begin.length);
    if (stop < 0) continue;
    const tex = source.slice(begin.length, stop);
    if (!tex.trim() || (!display && /\n\s*\n/.test(tex))) continue;
    if (begin === "$" && (/^\s|\s$/.test(tex) || /^\d/.test(source.slice(stop + 1)))) continue;
    return { raw: source.slice(0, stop + end.length), tex, display };
  }
  return undefined;
}

const formula = {
  name: "formula",
  level: "inline",
  start: (source) => {
    const at = source.search(/\$|\\[[(]/);
    return at < 0 ? undefined : at;
  },
  tokenizer: (source) => {
    const found = formulaAt(source);
    return found && { type: "formula", ...found };
  },
  renderer: ({ tex, display }) => `<span class="formula${display ? " display" : ""}">${escapeHtml(tex)}</span>`,
};

// HTML in a model's text is shown as text, but for marks that have no attributes.
const kHarmlessTag = /^<\/?(br|sub|sup|kbd|details|summary)\s*\/?>$/i;
const renderer = {
  html: (html) => (kHarmlessTag.test(html.trim()) ? html : escapeHtml(html)),
  image: (href, title, text) => escapeHtml(text || href), // nothing is loaded from elsewhere
};

const displayFormula = {
  ...formula,
  name: "displayFormula",
  level: "block",
  start: (source) => source.match(/\n(\$\$|\\\[)/)?.index,
  tokenizer: (source) => {
    const found = formulaAt(source);
    return found?.display ? { type: "displayFormula", ...found } : undefined;
  },
  renderer: (token) => `<p>${formula.renderer(token)}</p>`,
};

export function loadMarkdown() {
  // Debian 12's DOMPurify (2.4.1-2+deb12u1) reads a variable of this name that it never declares.
  window.shadowNode ??= {};
  ready ??= Promise.all([
    loadScript("/ui/lib/marked.js"), loadScript("/ui/lib/purify.js"), loadScript("/ui/lib/highlight.js"),
    loadScript("/ui/lib/katex.js"),
  ]).then(() => {
    document.head.append(element("link", { rel: "stylesheet", href: "/ui/lib/katex.css" }));
    window.marked.use({ renderer, extensions: [displayFormula, formula], gfm: true, breaks: false, headerIds: false, mangle: false });
    window.DOMPurify.addHook("afterSanitizeAttributes", (node) => {
      if (node.tagName !== "A") return;
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer");
    });
    return true;
  });
  return ready;
}

const kClean = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "kbd", "li",
    "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul", "details", "summary"],
  ALLOWED_ATTR: ["href", "title", "class", "align", "start", "type", "checked", "disabled", "target", "rel"],
  ALLOW_DATA_ATTR: false,
};

function setFormulas(block) {
  for (const span of block.querySelectorAll(".formula")) {
    const tex = span.textContent;
    window.katex.render(tex, span, { displayMode: span.classList.contains("display"), throwOnError: false, maxExpand: 200 });
  }
  if (block.querySelector(".formula")) requestAnimationFrame(() => fitFormulas(block));
}

// A formula that is wider than the text scrolls on its own, by keyboard too.
function fitFormulas(block) {
  const { clientWidth } = block;
  const wide = [...block.querySelectorAll(".formula")].filter((span) =>
    span.scrollWidth > span.clientWidth + 1 && span.clientWidth > 0 || [...span.querySelectorAll(".base")].some(({ offsetWidth }) => offsetWidth > clientWidth));
  for (const span of wide) {
    span.classList.add("wide");
    Object.entries({ tabindex: "0", role: "region", "aria-label": "Formula" }).forEach(([name, value]) => span.setAttribute(name, value));
  }
}

function finishCode(block) {
  for (const code of block.querySelectorAll("pre > code")) {
    const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
    const source = code.textContent;
    if (window.hljs.getLanguage(language) && source.length <= kMostCode) {
      code.innerHTML = window.hljs.highlight(language, source, true).value;
    }
    const pre = code.parentElement;
    const copy = button("Copy", async () => {
      await copyText(source);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    }, { class: "quiet", "aria-label": "Copy the code" });
    pre.replaceWith(element("figure", { class: "code" }, element("figcaption", {}, language || "code", copy), pre.cloneNode(true)));
  }
  for (const table of block.querySelectorAll("table")) {
    const frame = element("div", { class: "wide-table", tabindex: "0", role: "region", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const box of block.querySelectorAll("input")) {
    box.disabled = true;
    box.setAttribute("aria-label", box.checked ? "done" : "open");
  }
}

function renderBlock(token, links, isOpen) {
  const list = [token];
  list.links = links;
  const block = element("div", { class: "block" });
  block.innerHTML = window.DOMPurify.sanitize(window.marked.parser(list), kClean);
  setFormulas(block);
  if (!isOpen) finishCode(block);
  return block;
}

// Shows `text` in `target`. Called again while the text grows: blocks that did not change are kept, so that each call costs
// what is new. isGrowing: the last block may still change, and is not coloured yet.
export function renderMarkdown(target, text, isGrowing) {
  if (!window.marked || !window.DOMPurify || !window.katex || !window.hljs) {
    target.textContent = text;
    loadMarkdown().then(() => { if (target.isConnected && target.textContent === text) renderMarkdown(target, text, false); });
    return;
  }
  const tokens = window.marked.lexer(text);
  const blocks = tokens.filter(({ type }) => type !== "space");
  const kept = target.shownBlocks ?? [];
  const shown = [];
  blocks.forEach((token, index) => {
    const isOpen = isGrowing && index === blocks.length - 1;
    const key = `${token.type}|${isOpen}|${token.raw}`;
    if (kept[index]?.key === key) {
      shown.push(kept[index]);
      return;
    }
    const node = renderBlock(token, tokens.links, isOpen);
    if (kept[index]) kept[index].node.replaceWith(node);
    else {
      if (index === 0) target.replaceChildren();
      target.append(node);
    }
    shown.push({ key, node });
  });
  kept.slice(blocks.length).forEach(({ node }) => node.remove());
  if (blocks.length === 0) target.replaceChildren();
  target.shownBlocks = shown;
}
