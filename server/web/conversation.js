// A conversation as a tree of messages: editing or answering again adds a sibling, and `leaf` says which branch is shown.
// Plain data, as it is stored and exported; the functions here change nothing but the conversation they are given.
//   {id, title, titled, created, updated, leaf, messages: {id: message}}
//   message: {id, parent, role, content, reasoning?, calls?, files?, finish?, usage?, timing?, model?, error?}

let lastNumber = 0;

export function newId() {
  lastNumber += 1;
  return `${Date.now().toString(36)}-${lastNumber.toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

export function newConversation() {
  const now = Date.now();
  return { id: newId(), title: "New conversation", titled: false, created: now, updated: now, leaf: null, messages: {} };
}

export function addMessage(conversation, parent, message) {
  const made = { id: newId(), parent, created: Date.now(), ...message };
  conversation.messages[made.id] = made;
  conversation.leaf = made.id;
  conversation.updated = Date.now();
  if (!conversation.titled && made.role === "user") {
    conversation.title = made.content.trim().split("\n")[0].slice(0, 60) || "New conversation";
    conversation.titled = true;
  }
  return made;
}

// The messages of the branch that ends at `leaf`, first to last.
export function pathTo(conversation, leaf) {
  const path = [];
  for (let at = leaf; at; at = conversation.messages[at]?.parent) {
    if (!conversation.messages[at]) break;
    path.push(conversation.messages[at]);
  }
  return path.reverse();
}

export const shownPath = (conversation) => pathTo(conversation, conversation.leaf);

export function childrenOf(conversation, id) {
  return Object.values(conversation.messages)
    .filter((message) => message.parent === id)
    .sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

export const siblingsOf = (conversation, message) => childrenOf(conversation, message.parent);

// The results that stand behind an answer's calls, on the branch that is newest.
export function resultsOf(conversation, message) {
  const results = [];
  for (let at = message; at;) {
    at = childrenOf(conversation, at.id).findLast(({ role }) => role === "tool");
    if (at) results.push(at);
  }
  return results;
}

// Shows the branch through that message, down to its newest end.
export function showBranch(conversation, id) {
  let at = id;
  for (let next = childrenOf(conversation, at); next.length > 0; next = childrenOf(conversation, at)) at = next.at(-1).id;
  conversation.leaf = at;
}

// Removes the message with all that follows it; returns what was removed and what was shown, for restore().
export function removeMessage(conversation, id) {
  const removed = [];
  const before = conversation.leaf;
  const parent = conversation.messages[id].parent;
  const drop = (at) => {
    childrenOf(conversation, at).forEach((child) => drop(child.id));
    removed.push(conversation.messages[at]);
    delete conversation.messages[at];
  };
  drop(id);
  if (!conversation.messages[conversation.leaf]) {
    conversation.leaf = parent;
    if (parent) showBranch(conversation, parent);
    else conversation.leaf = childrenOf(conversation, null).at(-1)?.id ?? null;
    if (!parent && conversation.leaf) showBranch(conversation, conversation.leaf);
  }
  return { removed, leaf: before };
}

export function restore(conversation, { removed, leaf }) {
  for (const message of removed) conversation.messages[message.id] = message;
  conversation.leaf = leaf;
}

// A conversation of its own with the messages up to that one.
export function branchOff(conversation, id) {
  const copy = newConversation();
  copy.title = `${conversation.title} (branch)`;
  copy.titled = true;
  for (const message of pathTo(conversation, id)) copy.messages[message.id] = structuredClone(message);
  copy.leaf = id;
  return copy;
}

// Whether something read from a file is a conversation that can be shown.
export function isConversation(value) {
  return typeof value === "object" && value !== null && typeof value.title === "string" && typeof value.messages === "object" &&
    value.messages !== null && Object.entries(value.messages).every(([id, message]) => message?.id === id &&
      ["user", "assistant", "tool"].includes(message.role) && typeof message.content === "string" &&
      (message.parent === null || message.parent in value.messages)) &&
    (value.leaf === null || value.leaf in value.messages) && !hasCycle(value);
}

function hasCycle(conversation) {
  const count = Object.keys(conversation.messages).length;
  return Object.values(conversation.messages).some((message) => {
    let steps = 0;
    for (let at = message; at?.parent; at = conversation.messages[at.parent]) if (++steps > count) return true;
    return false;
  });
}

// A user's text with the attached files behind it, as the model reads it.
function textWithFiles(message) {
  const files = (message.files ?? []).filter(({ image }) => !image).map(({ name, text }) => {
    const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`{3,}/g)].map(([run]) => run.length + 1)));
    return `${name}:\n${fence}\n${text}\n${fence}`;
  });
  return [...files, message.content].filter(Boolean).join("\n\n");
}

// A user's or tool's message. Pictures stand before the text, as models were trained.
function contentOf(message) {
  const pictures = (message.files ?? []).filter(({ image }) => image);
  const text = textWithFiles(message);
  if (!pictures.length) return text;
  return [...pictures.map(({ image }) => ({ type: "image_url", image_url: { url: image } })), ...(text ? [{ type: "text", text }] : [])];
}

// The branch as the API takes it; answers that ended in an error are left out.
export function apiMessages(path, systemPrompt) {
  const messages = systemPrompt ? [{ role: "system", content: systemPrompt }] : [];
  for (const message of path) {
    if (message.error && !message.content && !message.calls?.length) continue;
    if (message.role === "user") messages.push({ role: "user", content: contentOf(message) });
    if (message.role === "tool") messages.push({ role: "tool", tool_call_id: message.callId, content: contentOf(message) });
    if (message.role === "assistant") {
      messages.push({
        role: "assistant",
        content: message.content,
        ...(message.calls?.length && { tool_calls: message.calls.map(({ id, name, arguments: args }) =>
          ({ id, type: "function", function: { name, arguments: args } })) }),
      });
    }
  }
  return messages;
}

const pictureNames = ({ files = [] }) => files.filter(({ image }) => image).map(({ name }) => `[image: ${name}]\n\n`).join("");

// Readable text of the branch, for export.
export function asMarkdown(conversation) {
  const names = { user: "User", assistant: "Assistant", tool: "Tool" };
  return `# ${conversation.title}\n\n` + shownPath(conversation)
    .map((message) => `## ${names[message.role]}\n\n${pictureNames(message)}${textWithFiles(message)}\n`).join("\n");
}
