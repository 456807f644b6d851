// Rules of accessibility that a page's tree can be checked against, as audits of browsers have them. Returns what breaks one.
import { contrasts } from "./page_support.mjs";

// Runs in the page.
function faults() {
  const found = [];
  const seen = (node) => node.checkVisibility({ visibilityProperty: true });
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const say = (rule, node) => found.push(`${rule}: ${node.outerHTML.slice(0, 120)}`);
  const named = (node) => node.getAttribute("aria-label")?.trim() || node.getAttribute("aria-labelledby") || node.textContent.trim() || node.labels?.length ||
    node.title || node.querySelector("img[alt]:not([alt=''])");
  const kControls = "button, input, select, textarea, summary, a[href], [tabindex], [role=tab]";
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  for (const id of ids.filter((each, i) => ids.indexOf(each) !== i)) found.push(`id used twice: ${id}`);
  for (const node of all(kControls)) if (!named(node)) say("control without a name", node);
  for (const node of all("input:not([type=hidden]), select, textarea")) {
    if (!node.labels?.length && !node.getAttribute("aria-label") && !node.getAttribute("aria-labelledby")) say("field without a label", node);
  }
  for (const node of all("button, a[href], label, summary")) {
    if (node.matches("button, a[href], summary") && node.querySelector("button, a[href], input, select, textarea, summary")) say("control within a control", node);
  }
  for (const name of ["aria-controls", "aria-labelledby", "aria-describedby", "for"]) {
    for (const node of all(`[${name}]`)) for (const id of node.getAttribute(name).split(/\s+/)) if (!document.getElementById(id)) say(`${name} of nothing`, node);
  }
  for (const node of all("img")) if (!node.hasAttribute("alt")) say("picture without alt", node);
  for (const node of all("[tabindex]")) if (Number(node.getAttribute("tabindex")) > 0) say("tabindex above 0", node);
  for (const node of all("ul, ol")) if ([...node.children].some(({ tagName }) => tagName !== "LI")) say("list of other than items", node);
  for (const node of all("dl")) if ([...node.children].some(({ tagName }) => !["DT", "DD", "DIV"].includes(tagName))) say("dl of other than dt and dd", node);
  for (const node of all("th")) if (!node.hasAttribute("scope")) say("heading of a table without scope", node);
  for (const node of all("[aria-hidden=true]")) if (node.querySelector(kControls)) say("hidden control that takes the focus", node);
  for (const node of all("dialog, [role=dialog]")) if (!named(node)) say("dialog without a name", node);
  for (const node of all("*")) {
    const scrolls = ["auto", "scroll"].some((value) => [getComputedStyle(node).overflowX, getComputedStyle(node).overflowY].includes(value)) &&
      (node.scrollHeight > node.clientHeight + 1 || node.scrollWidth > node.clientWidth + 1);
    if (scrolls && !node.matches("textarea, html, body, dialog, select") && node.tabIndex < 0 && !node.querySelector(kControls)) say("scrolls, but not by keyboard", node);
  }
  let level = 0;
  const scope = document.querySelector("dialog[open]") ?? document;
  for (const node of [...scope.querySelectorAll("h1, h2, h3, h4")].filter(seen).filter((each) => !each.closest(".block"))) {
    const own = Number(node.tagName[1]);
    if (level && own > level + 1) say(`heading of level ${own} below level ${level}`, node);
    level = own;
  }
  if (!document.documentElement.lang) found.push("no language");
  if (!document.title) found.push("no title");
  return found;
}

// least: the contrast that texts must have.
export async function audit(page, least) {
  const low = (await contrasts(page)).filter(([, ratio]) => ratio < least).map(([what, ratio]) => `contrast ${ratio.toFixed(1)}: ${what}`);
  return [...await page.evaluate(faults), ...low];
}
