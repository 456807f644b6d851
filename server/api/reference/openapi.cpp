#include "server/api/reference/pages.h"

#include <algorithm>
#include <string>
#include <vector>

namespace quire::reference {

namespace {

std::vector<std::string> divided(std::string_view text, std::string_view divider) {
  const auto parts = fields::parts_of(text, divider);
  return {parts.begin(), parts.end()};
}

std::vector<std::string> listed(std::string_view text) {
  return divided(text, ", ");
}

Json reference_to(const std::string& kind, const std::string& name) {
  return {{"$ref", "#/components/" + kind + "/" + name}};
}

Json with_null(std::vector<std::string> types) {
  types.emplace_back("null");
  return types;
}

Json ranged(const char* type_name, const FieldType& type) {
  Json schema{{"type", with_null({type_name})}};
  if (type.low <= type.high) {
    const auto bound = [](double value) {
      const auto whole = static_cast<std::int64_t>(value);
      return static_cast<double>(whole) == value ? Json(whole) : Json(value);
    };
    schema["minimum"] = bound(type.low);
    schema["maximum"] = bound(type.high);
  }
  return schema;
}

Json type_schema(const FieldType& type) {
  const Json texts{{"type", with_null({"array"})}, {"items", {{"type", "string"}}}, {"maxItems", type.most}};
  switch (type.kind) {
    case Kind::kTypes: return {{"type", with_null(divided(type.listed, "|"))}};
    case Kind::kWords: {
      Json values = divided(type.listed, "|");
      values.push_back(nullptr);
      return {{"enum", std::move(values)}};
    }
    case Kind::kOnly: {
      Json values = Json::parse(type.listed);
      values.push_back(nullptr);
      return {{"enum", std::move(values)}};
    }
    case Kind::kNumber: return ranged("number", type);
    case Kind::kInteger: return ranged("integer", type);
    case Kind::kTexts: return texts;
    case Kind::kTextOrTexts: return {{"anyOf", {{{"type", "string"}}, texts}}};
    case Kind::kTokenIds: return {{"type", with_null({"array"})}, {"items", {{"type", "integer"}, {"minimum", 0}}}};
  }
  return Json::object();
}

// "/v1/chat/completions" to "v1_chat_completions": a name of components and operations.
std::string name_of(std::string_view path) {
  std::string name;
  for (const char c : path) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (!name.empty() && name.back() == '_')
    name.pop_back();
  return name;
}

void add_fields(Json& schema, const FieldTable& table) {
  Json& properties = schema["properties"];
  for (const Field& row : table.rows) {
    if (!properties.contains(row.name)) properties[std::string(row.name)] = field_schema(row);
  }
}

// Fields of a member's own table (Ollama's options) belong to that member.
Json body_schema(const OperationRow& operation) {
  Json schema{{"type", "object"}, {"properties", Json::object()}};
  for (const FieldTable* table : operation.body) {
    if (table->inside.empty()) add_fields(schema, *table);
  }
  for (const FieldTable* table : operation.body) {
    if (table->inside.empty()) continue;
    Json& member = schema["properties"][std::string(table->inside)];
    member["properties"] = Json::object();
    add_fields(member, *table);
  }
  if (!operation.required.empty()) schema["required"] = listed(operation.required);
  return schema;
}

const char* error_name(ErrorShape shape) {
  switch (shape) {
    case ErrorShape::kOpenAi: return "Error";
    case ErrorShape::kAnthropic: return "AnthropicError";
    case ErrorShape::kOllama: return "OllamaError";
  }
  return "";
}

Json answer_content(const OperationRow& operation) {
  const Json text{{"schema", {{"type", "string"}}}};
  if (operation.answer == AnswerForm::kText) return {{"text/plain", text}};
  Json schema{{"type", operation.answer == AnswerForm::kList ? Json{"object", "array"} : Json("object")}};
  if (operation.paths.starts_with("/completion, ") || operation.paths == "/completion")
    schema["type"] = {"object", "array"};
  if (!operation.members.empty()) schema["required"] = listed(operation.members);
  Json content{{"application/json", {{"schema", std::move(schema)}}}};
  if (operation.answer == AnswerForm::kEvents) content["text/event-stream"] = text;
  if (operation.answer == AnswerForm::kLines) content["application/x-ndjson"] = text;
  return content;
}

Json security_of(Audience audience) {
  if (audience == Audience::kOpen) return Json::array({Json::object()});
  Json security = Json::array({{{"bearer", Json::array()}}, {{"api_key", Json::array()}}});
  // Without configured keys, no key is needed.
  if (audience != Audience::kAdmin) security.push_back(Json::object());
  return security;
}

Json parameters_of(const OperationRow& operation, const std::string& path) {
  Json parameters = Json::array();
  if (path.find("{id}") != std::string::npos)
    parameters.push_back({{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  for (const std::string& name : listed(operation.query))
    parameters.push_back({{"name", name}, {"in", "query"}, {"schema", {{"type", Json{"string", "integer"}}}}});
  if (operation.audience == Audience::kKey) {
    for (const char* header : {"request_id", "last_event_id", "traceparent"})
      parameters.push_back(reference_to("parameters", header));
  }
  return parameters;
}

Json operation_json(const OperationRow& operation, const std::string& path) {
  std::string id(operation.method);
  std::transform(id.begin(), id.end(), id.begin(), [](char c) { return static_cast<char>(c | 0x20); });
  Json json{{"operationId", id + "_" + name_of(path)},
            {"summary", operation.text},
            {"tags", {operation.tag}},
            {"security", security_of(operation.audience)},
            {"parameters", parameters_of(operation, path)}};
  if (!operation.body.empty()) {
    const std::string name = name_of(listed(operation.paths).front());
    json["requestBody"] = {{"required", !operation.required.empty()},
                           {"content", {{"application/json", {{"schema", reference_to("schemas", name)}}}}}};
  }
  const Json error = reference_to("responses", error_name(operation.errors));
  json["responses"] = {{"200", {{"description", "the answer"}, {"content", answer_content(operation)}}}};
  for (const char* status : {"400", "401", "404", "429", "503"})
    json["responses"][status] = error;
  return json;
}

Json header_parameter(const char* name, const char* text) {
  return {{"name", name}, {"in", "header"}, {"description", text}, {"schema", {{"type", "string"}}}};
}

Json error_schemas() {
  const Json text{{"type", "string"}};
  const Json text_or_null{{"type", {"string", "null"}}};
  const Json details{{"type", "object"},
                     {"required", {"message", "type", "code"}},
                     {"properties", {{"message", text}, {"type", text}, {"param", text_or_null}, {"code", text}}}};
  Json anthropic = details;
  anthropic["required"] = {"type", "message"};
  return {{"Error", {{"type", "object"}, {"required", {"error"}}, {"properties", {{"error", details}}}}},
          {"AnthropicError",
           {{"type", "object"},
            {"required", {"type", "error"}},
            {"properties", {{"type", {{"const", "error"}}}, {"error", anthropic}, {"request_id", text}}}}},
          {"OllamaError", {{"type", "object"}, {"required", {"error"}}, {"properties", {{"error", text}}}}}};
}

Json components(const std::vector<OperationRow>& served) {
  Json schemas = error_schemas();
  Json responses = Json::object();
  for (const auto& [name, unused] : schemas.items()) {
    responses[name] = {{"description", "the request was refused, or failed"},
                       {"content", {{"application/json", {{"schema", reference_to("schemas", name)}}}}}};
  }
  for (const OperationRow& operation : served) {
    if (!operation.body.empty()) schemas[name_of(listed(operation.paths).front())] = body_schema(operation);
  }
  return {{"schemas", std::move(schemas)},
          {"responses", std::move(responses)},
          {"parameters",
           {{"request_id", header_parameter("X-Request-Id", "up to 128 visible characters; echoed and logged")},
            {"last_event_id", header_parameter("Last-Event-ID", "resumes a stream after the event with this id")},
            {"traceparent", header_parameter("traceparent", "W3C's; the request's spans join this trace")}}},
          {"securitySchemes",
           {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
            {"api_key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}}};
}

Json tags(const std::vector<OperationRow>& served) {
  Json list = Json::array();
  for (const OperationRow& operation : served) {
    const Json tag{{"name", operation.tag}};
    if (std::find(list.begin(), list.end(), tag) == list.end()) list.push_back(tag);
  }
  return list;
}

std::vector<OperationRow> operations_of(IsServed is_served) {
  std::vector<OperationRow> served = operations();
  std::erase_if(served, [&](const OperationRow& operation) {
    return !is_served(operation.method, listed(operation.paths).front());
  });
  return served;
}

}  // namespace

Json field_schema(const Field& row) {
  Json schema = type_schema(row.type);
  std::string text(row.note);
  if (row.support == Support::kRefused) text = "refused" + (text.empty() ? "" : ": " + text);
  if (!text.empty()) schema["description"] = text;
  if (row.support != Support::kRefused) schema["examples"] = Json::array({Json::parse(row.example)});
  schema["x-quire-support"] = support_word(row.support);
  return schema;
}

Json openapi_document(IsServed is_served) {
  const std::vector<OperationRow> served = operations_of(is_served);
  Json paths = Json::object();
  for (const OperationRow& operation : served) {
    std::string method(operation.method);
    std::transform(method.begin(), method.end(), method.begin(), [](char c) { return static_cast<char>(c | 0x20); });
    for (const std::string& path : listed(operation.paths))
      paths[path][method] = operation_json(operation, path);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Quire"},
            {"version", QUIRE_VERSION},
            {"description", "Each endpoint's fields. null counts as absent; most endpoints ignore unknown fields."},
            {"license", {{"name", "Apache 2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"servers", Json::array({{{"url", "/"}}})},
          {"tags", tags(served)},
          {"paths", std::move(paths)},
          {"components", components(served)}};
}

}  // namespace quire::reference
