#include "server/api/ollama/ollama.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <ctime>

#include "core/base/message_text.h"
#include "core/text/chat_template.h"
#include "core/text/fill_in_the_middle.h"
#include "server/api/common/encodings.h"
#include "server/api/conversation/prepared_chat.h"

namespace quire {

namespace {

// The release of Ollama whose API is implemented: clients check it.
constexpr const char* kOllamaVersion = "0.13.5";

std::unique_ptr<Operation> ready_json(const Json& body) {
  return std::make_unique<ReadyOperation>(dump_json(body));
}

std::string utc_time(std::int64_t unix_seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

// Digest of the model's name, date and size, not of its file, which would take minutes to read; it stays the same as
// long as the model is served.
std::string digest_of(const TableEntry& model) {
  const std::string text =
      fmt::format("{} {} {}", model.name, model.created, model.info ? model.info->file_bytes : std::uint64_t{0});
  return hex_digits(sha256(text));
}

std::string parameter_size(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.1f}B", number / 1e9);
  if (number >= 1e6) return fmt::format("{:.2f}M", number / 1e6);
  return fmt::format("{:.2f}K", number / 1e3);
}

Json details_of(const TableEntry& model) {
  Json details{{"parent_model", ""}, {"format", ""}, {"family", ""}, {"families", Json::array()}};
  details["parameter_size"] = model.info ? parameter_size(model.info->num_parameters) : "";
  details["quantization_level"] = model.info ? model.info->file_type : "";
  if (model.info) {
    details["family"] = model.info->architecture;
    details["families"].push_back(model.info->architecture);
  }
  return details;
}

Json listed(const TableEntry& model) {
  return Json{{"name", model.name},
              {"model", model.name},
              {"modified_at", utc_time(model.created)},
              {"size", model.info ? model.info->file_bytes : 0},
              {"digest", digest_of(model)},
              {"details", details_of(model)}};
}

Json capabilities_of(const TableEntry& model) {
  Json list = Json::array();
  const bool writes = !model.info || model.info->has_head;
  list.push_back(writes ? "completion" : "embedding");
  if (!writes || !model.served) return list;
  if (model.served->sight != nullptr) list.push_back("vision");
  if (model.served->template_capabilities.tools) list.push_back("tools");
  if (find_fim_tokens(*model.served->tokenizer)) list.push_back("insert");
  if (model.served->chat_template && writes_reasoning(*model.served)) list.push_back("thinking");
  return list;
}

// A Modelfile's PARAMETER lines: sampling defaults of the model's file.
std::string parameters_of(const GenerationDefaults& defaults) {
  std::string lines;
  const auto add = [&lines](const char* name, const auto& value) {
    if (value) lines += fmt::format("{}{:<30} {}", lines.empty() ? "" : "\n", name, *value);
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add("repeat_penalty", defaults.repetition_penalty);
  return lines;
}

Json model_info_of(const TableEntry& model) {
  Json info = Json::object();
  if (!model.info) return info;
  const std::string& architecture = model.info->architecture;
  info["general.architecture"] = architecture;
  info["general.basename"] = model.info->name;
  info["general.parameter_count"] = model.info->num_parameters;
  info[architecture + ".context_length"] = model.max_model_len;
  info[architecture + ".embedding_length"] = model.info->hidden_size;
  info[architecture + ".vocab_size"] = model.info->vocab_size;
  return info;
}

// The model that the body names.
Result<std::string> named_model(const Call& call) {
  const auto body = parse_json_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader fields(*body);
  auto name = fields.string("model");
  if (!name) name = fields.string("name");
  if (!name) fields.missing("model");
  if (fields.error()) return tl::make_unexpected(*fields.error());
  return *std::move(name);
}

}  // namespace

Result<std::unique_ptr<Operation>> ollama_tags(const ModelTable& models, const Call&) {
  Json body{{"models", Json::array()}};
  for (const TableEntry& model : models.entries()) {
    if (model.state != ModelState::kUnloaded) body["models"].push_back(listed(model));
  }
  return ready_json(body);
}

Result<std::unique_ptr<Operation>> ollama_ps(const ModelTable& models, const Call&) {
  Json body{{"models", Json::array()}};
  for (const TableEntry& model : models.entries()) {
    if (!model.served) continue;
    Json entry = listed(model);
    entry["expires_at"] = "0001-01-01T00:00:00Z";  // no expiry: it stays until it idles or is unloaded
    entry["size_vram"] = 0;
    entry["context_length"] = model.max_model_len;
    body["models"].push_back(std::move(entry));
  }
  return ready_json(body);
}

Result<std::unique_ptr<Operation>> ollama_show(const ModelTable& models, const Call& call) {
  const auto name = named_model(call);
  if (!name) return tl::make_unexpected(name.error());
  const auto found = models.entry(*name);
  if (!found) return tl::make_unexpected(found.error());
  const TableEntry& model = **found;
  const bool has_template = model.served && model.served->chat_template;
  return ready_json({{"modelfile", ""},
                     {"license", ""},
                     {"parameters", model.served ? parameters_of(model.served->defaults) : ""},
                     {"template", has_template ? std::string(model.served->chat_template->source()) : ""},
                     {"details", details_of(model)},
                     {"model_info", model_info_of(model)},
                     {"capabilities", capabilities_of(model)},
                     {"modified_at", utc_time(model.created)}});
}

Result<std::unique_ptr<Operation>> ollama_version(const ModelTable&, const Call&) {
  return ready_json({{"version", kOllamaVersion}, {"quire", QUIRE_VERSION}});
}

Result<std::unique_ptr<Operation>> refuse_ollama_change(const ModelTable&, const Call& call) {
  return invalid(fmt::format("'{}' is not supported: which models are served is the operator's choice", call.path), "",
                 "unsupported_operation");
}

}  // namespace quire
