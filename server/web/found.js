// Places found by a search, and highlighted words.
import { element } from "./dom.js";

const kMostRanges = 2000; // highlighted at once
const kMarkAfter = 150; // ms after a change of the texts
const kBefore = 30; // characters of a text before the first word found in it, and behind
const kBehind = 90;

export const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

const anyOf = (words) => new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|"), "giu");

// A message's text with that of its files.
const wholeText = ({ content, files = [] }) => [content, ...files.map(({ name, text = "" }) => `${name}\n${text}`)].join("\n");

// The result is {id, message, snippet}, the latter two of the first message that has a word; undefined if any word is missing.
export function findIn(conversation, words) {
  const messages = Object.values(conversation.messages);
  const text = [conversation.title, ...messages.map(wholeText)].join("\n").toLowerCase();
  if (!words.every((word) => text.includes(word))) return undefined;
  const pattern = anyOf(words);
  for (const message of messages.sort((a, b) => a.created - b.created)) {
    const whole = wholeText(message);
    const at = whole.search(pattern);
    if (at < 0) continue;
    const begin = Math.max(0, at - kBefore);
    const snippet = (begin ? "…" : "") + whole.slice(begin, at + kBehind).replace(/\s+/g, " ");
    return { id: conversation.id, message: message.id, snippet };
  }
  return { id: conversation.id, message: null, snippet: "" };
}

// The text as nodes, with the words in <mark>.
export function marked(text, words) {
  const nodes = [];
  let end = 0;
  for (const match of words.length ? text.matchAll(anyOf(words)) : []) {
    nodes.push(text.slice(end, match.index), element("mark", {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...nodes, text.slice(end)];
}

// Highlights words in all that `box` shows, as it changes.
export class Highlights {
  #box;
  #words = [];
  #planned = 0;
  #watch = new MutationObserver(() => this.#plan());

  constructor(box) {
    this.#box = box;
  }

  show(words) {
    this.#words = words;
    this.#watch.disconnect();
    if (words.length) this.#watch.observe(this.#box, { childList: true, subtree: true, characterData: true });
    this.#mark();
  }

  // Not in each frame: a walk through a long conversation takes as long as one.
  #plan() {
    this.#planned ||= setTimeout(() => this.#mark(), kMarkAfter);
  }

  #mark() {
    clearTimeout(this.#planned);
    this.#planned = 0;
    if (!window.Highlight) return;
    CSS.highlights.delete("found");
    if (!this.#words.length) return;
    const pattern = anyOf(this.#words);
    const ranges = [];
    const texts = document.createTreeWalker(this.#box, NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && ranges.length < kMostRanges) {
      const node = texts.currentNode;
      if (!node.parentElement.closest(".content")) continue;
      for (const match of node.data.matchAll(pattern)) {
        const range = new Range();
        range.setStart(node, match.index);
        range.setEnd(node, match.index + match[0].length);
        ranges.push(range);
      }
    }
    CSS.highlights.set("found", new window.Highlight(...ranges));
  }
}
