// The settings' part about tools: functions as forms over the field that holds them as JSON, and the servers of tools.
import { button, byId, element, openDialog, sureButton } from "./dom.js";
import { ownTools } from "./settings.js";
import { keep, recall } from "./store.js";

const kTypes = ["string", "number", "integer", "boolean", "array", "object"];
const kReopen = "quire.settings_open"; // the panel is shown after a reload

function setFunctions(tools) {
  byId("tools").value = tools.length ? JSON.stringify(tools, null, 1) : "";
  byId("tools").dispatchEvent(new Event("input", { bubbles: true }));
}

// A row of the form; `known` is the parameter's schema as it was, of which the form changes type and description only.
function parameterRow(name = "", known = { type: "string" }, required = false) {
  const field = element("input", { type: "text", value: name, required: true, pattern: "[A-Za-z_][A-Za-z0-9_\\-]*", "aria-label": "Parameter's name", placeholder: "name" });
  const type = element("select", { "aria-label": "Parameter's type" }, ...kTypes.map((each) => new Option(each, each)));
  type.value = kTypes.includes(known.type) ? known.type : "string";
  const note = element("input", { type: "text", value: known.description ?? "", class: "grow", "aria-label": "Parameter's description", placeholder: "description" });
  const needed = element("input", { type: "checkbox", checked: required });
  const row = element("div", { class: "row parameter" }, field, type, note, element("label", { class: "check" }, needed, "required"),
    button("✕", () => row.remove(), { class: "quiet", "aria-label": "Remove this parameter" }));
  row.read = () => ({ name: field.value, required: needed.checked, schema: { ...known, type: type.value, description: note.value || undefined } });
  return row;
}

function editFunction(index) {
  const old = ownTools()[index];
  const { name = "", description = "", parameters = { type: "object", properties: {} } } = old?.function ?? {};
  const named = element("input", { type: "text", value: name, required: true, pattern: "[A-Za-z0-9_\\-]{1,64}", "aria-label": "Tool's name", placeholder: "get_weather" });
  const about = element("textarea", { rows: 2, "aria-label": "Tool's description", placeholder: "What it does, for the model" }, description);
  const rows = element("div", { class: "stack" }, ...Object.entries(parameters.properties ?? {})
    .map(([each, schema]) => parameterRow(each, schema, parameters.required?.includes(each))));
  const save = (event) => {
    event.preventDefault();
    const read = [...rows.children].map((row) => row.read());
    const schema = { ...parameters, type: "object", properties: Object.fromEntries(read.map((each) => [each.name, each.schema])),
      required: read.filter(({ required }) => required).map((each) => each.name) };
    const made = { ...old, type: "function", function: { ...old?.function, name: named.value, description: about.value || undefined, parameters: schema } };
    setFunctions(old ? ownTools().map((tool, i) => (i === index ? made : tool)) : [...ownTools(), made]);
    dialog.close();
  };
  const dialog = openDialog("tool", old ? "Edit a tool" : "Add a tool", element("form", { class: "stack", onsubmit: save },
    element("label", { class: "column" }, "Name", named), element("label", { class: "column" }, "Description", about), element("b", {}, "Parameters"), rows,
    element("div", { class: "row" }, button("Add a parameter", () => rows.append(parameterRow())), element("button", { type: "submit" }, "Save the tool"))));
}

function drawFunctions() {
  byId("tool-list").replaceChildren(...ownTools().map((tool, i) => element("li", { class: "row" },
    element("span", { class: "grow", title: tool.function?.description ?? "" }, tool.function?.name ?? tool.type ?? "unnamed"),
    button("Edit", () => editFunction(i), { class: "quiet", "aria-label": `Edit the tool ${tool.function?.name}` }),
    sureButton("Delete", () => setFunctions(ownTools().filter((_, at) => at !== i)), { class: "quiet", "aria-label": `Delete the tool ${tool.function?.name}` }))));
}

function loadAgain() {
  keep(kReopen, true, true);
  location.reload();
}

function serverRow(toolbox, server) {
  const enabled = element("input", { type: "checkbox", checked: server.enabled, onchange: () => toolbox.enable(server, enabled.checked), "aria-label": `Use ${server.name}` });
  const tools = element("details", { hidden: !server.tools.length }, element("summary", { class: "note" }, "Tools"), element("ul", {}, ...server.tools.map((tool) => {
    const always = element("input", { type: "checkbox", checked: toolbox.isAllowed({ server, tool }), onchange: () => toolbox.allow({ server, tool }, always.checked) });
    return element("li", { title: tool.description ?? "" }, tool.name, element("label", { class: "check" }, always, "call without asking"));
  })));
  return element("li", {}, element("div", { class: "row" }, enabled, element("b", { class: "grow", title: server.url }, server.name),
    !toolbox.mayConnect(server) && button("Reload", loadAgain, { class: "small" }),
    sureButton("Remove", () => toolbox.remove(server), { class: "quiet", "aria-label": `Remove ${server.name}` })),
  element("p", { class: "note", role: "status" }, server.state), tools);
}

// showPanel(): opens the settings, where a reload has closed them.
export function startToolSettings(toolbox, showPanel) {
  byId("tools").addEventListener("input", drawFunctions);
  byId("settings").addEventListener("shown", drawFunctions);
  byId("add-tool").addEventListener("click", () => editFunction(-1));
  const open = new Set(); // servers whose tools are listed
  const draw = () => byId("server-list").replaceChildren(...toolbox.servers.map((server) => {
    const row = serverRow(toolbox, server);
    const details = row.querySelector("details");
    details.open = open.has(server.url);
    details.addEventListener("toggle", () => (details.open ? open.add(server.url) : open.delete(server.url)));
    return row;
  }));
  toolbox.onchange(draw);
  byId("add-server").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("server-problem").textContent = "";
    try {
      const mustLoad = toolbox.add(byId("server-url").value.trim(), byId("server-token").value);
      byId("server-url").value = byId("server-token").value = "";
      if (mustLoad && byId("stop").disabled) loadAgain();
    } catch (error) {
      byId("server-problem").textContent = error.message;
    }
  });
  drawFunctions();
  if (recall(kReopen, false, true)) showPanel();
  keep(kReopen, false, true);
}
