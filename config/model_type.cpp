#include <fmt/format.h>

#include <algorithm>

#include "config/key_types.h"
#include "core/base/message_text.h"
#include "core/text/tools/tool_format.h"
#include "server/models/model_reference.h"

namespace quire::config_types {
namespace {

using Kind = ConfigValue::Kind;

constexpr std::string_view kAbsent = "";

// A member of a model's entry. `show` returns kAbsent for the default value.
struct Member {
  std::string_view name;
  std::string_view accepts;
  bool (*set)(ModelEntry&, const ConfigValue&);
  std::string (*show)(const ModelEntry&);
  Module module = Module::kCore;
};

template <class T, class Value>
bool take(T& field, const std::optional<Value>& value) {
  if (value) field = *value;
  return value.has_value();
}

std::optional<std::string> some_text(const ConfigValue& value) {
  return value.kind == Kind::kScalar && !value.text.empty() ? std::optional(value.text) : std::nullopt;
}

std::optional<std::int64_t> count_of_at_least(std::int64_t least, const ConfigValue& value) {
  const auto number = read_integer(value);
  return number && *number >= least && *number <= std::numeric_limits<std::int32_t>::max() ? number : std::nullopt;
}

std::string shown_text(std::string_view text) {
  return text.empty() ? std::string(kAbsent) : show_text(text);
}

std::string shown_count(const std::optional<std::int64_t>& count) {
  return count ? std::to_string(*count) : std::string(kAbsent);
}

// Takes a text or a list of texts. False if `accepts` refuses one of them.
bool take_texts(std::vector<std::string>& texts, const ConfigValue& value, bool (*accepts)(std::string_view)) {
  if (value.kind != Kind::kList && value.kind != Kind::kScalar) return false;
  texts.clear();
  if (value.kind == Kind::kScalar) texts.push_back(value.text);
  for (const ConfigValue& item : value.items)
    texts.push_back(item.kind == Kind::kScalar ? item.text : "");
  return std::ranges::all_of(texts, accepts);
}

std::string shown_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out += (out.empty() ? "" : ", ") + show_text(text);
  return out.empty() ? std::string(kAbsent) : "[" + out + "]";
}

bool is_adapter_path(std::string_view text) {
  return adapter_path_of(text).has_value();
}

std::string show_dtype(const ModelEntry& entry) {
  for (const auto& [name, dtype] : kKvDTypes) {
    if (entry.kv_dtype == dtype) return std::string(name);
  }
  return std::string(kAbsent);
}

bool set_tool_format(ModelEntry& entry, const ConfigValue& value) {
  entry.model.tool_format = value.text;
  return value.kind == Kind::kScalar && find_tool_format(value.text) != nullptr;
}

bool set_share(ModelEntry& entry, const ConfigValue& value) {
  const auto number = read_number(value);
  return number && *number > 0 && *number <= 1e6 && take(entry.kv_share, number);
}

bool set_memory(ModelEntry& entry, const ConfigValue& value) {
  const auto bytes = read_size(value);
  return bytes && *bytes > 0 && take(entry.kv_memory, bytes);
}

using Entry = ModelEntry;
using Value = ConfigValue;

constexpr Member kMembers[] = {
    {"name", "a name of at most 128 letters, digits and - _ . : / @ +",
     [](Entry& e, const Value& v) { return take(e.name, some_text(v)) && is_model_name(e.name); },
     [](const Entry& e) { return shown_text(e.name); }},
    {"path", "a path", [](Entry& e, const Value& v) { return take(e.model.path, some_text(v)); },
     [](const Entry& e) { return shown_text(e.model.path.string()); }},
    {"hf", "OWNER/NAME[@REVISION][:QUANTISATION]",
     [](Entry& e, const Value& v) {
       return take(e.model.hf, some_text(v)) && hub::parse_reference(e.model.hf).has_value();
     },
     [](const Entry& e) { return shown_text(e.model.hf); }, Module::kHub},
    {"aliases", "a name, or a list of names",
     [](Entry& e, const Value& v) { return take_texts(e.model.alias, v, is_model_name); },
     [](const Entry& e) { return shown_texts(e.model.alias); }},
    {"adapters", "NAME=PATH, or a list of them",
     [](Entry& e, const Value& v) { return take_texts(e.model.adapters, v, is_adapter_path); },
     [](const Entry& e) { return shown_texts(e.model.adapters); }},
    {"adapter_memory", "a size above 0 such as 512MiB or 4GiB",
     [](Entry& e, const Value& v) { return take(e.model.adapter_memory, read_size(v)) && e.model.adapter_memory > 0; },
     [](const Entry& e) {
       const bool is_default = e.model.adapter_memory == kDefaultAdapterMemory;
       return is_default ? std::string(kAbsent) : show_size(e.model.adapter_memory);
     }},
    {"adapter_updates", "true or false",
     [](Entry& e, const Value& v) { return take(e.model.adapter_updates, read_boolean(v)); },
     [](const Entry& e) { return std::string(e.model.adapter_updates ? "true" : kAbsent); }},
    {"chat_template", "a path", [](Entry& e, const Value& v) { return take(e.model.chat_template, some_text(v)); },
     [](const Entry& e) { return shown_text(e.model.chat_template.string()); }},
    {"mmproj", "a path", [](Entry& e, const Value& v) { return take(e.model.mmproj, some_text(v)); },
     [](const Entry& e) { return shown_text(e.model.mmproj.string()); }, Module::kImages},
    {"uses_mmproj", "true or false",
     [](Entry& e, const Value& v) { return take(e.model.uses_mmproj, read_boolean(v)); },
     [](const Entry& e) { return std::string(e.model.uses_mmproj ? kAbsent : "false"); }, Module::kImages},
    {"tool_format", "the name of a format such as hermes or llama3_json", set_tool_format,
     [](const Entry& e) { return shown_text(e.model.tool_format); }},
    {"draft_model", "a path", [](Entry& e, const Value& v) { return take(e.model.draft_model, some_text(v)); },
     [](const Entry& e) { return shown_text(e.model.draft_model.string()); }},
    {"ignore_unknown_keys", "true or false",
     [](Entry& e, const Value& v) { return take(e.model.ignore_unknown_keys, read_boolean(v)); },
     [](const Entry& e) { return std::string(e.model.ignore_unknown_keys ? "true" : kAbsent); }},
    {"packed_cache", "a path", [](Entry& e, const Value& v) { return take(e.model.packed_cache, some_text(v)); },
     [](const Entry& e) { return shown_text(e.model.packed_cache.string()); }},
    {"packed_cache_bytes", "a size above 0 such as 512MiB or 4GiB",
     [](Entry& e, const Value& v) {
       return take(e.model.packed_cache_bytes, read_size(v)) && e.model.packed_cache_bytes > 0;
     },
     [](const Entry& e) {
       const bool is_default = e.model.packed_cache_bytes == kDefaultPackedBytes;
       return is_default ? std::string(kAbsent) : show_size(e.model.packed_cache_bytes);
     }},
    {"max_model_len", "an integer of at least 0",
     [](Entry& e, const Value& v) { return take(e.max_model_len, count_of_at_least(0, v)); },
     [](const Entry& e) { return shown_count(e.max_model_len); }},
    {"max_num_seqs", "an integer of at least 1",
     [](Entry& e, const Value& v) { return take(e.max_num_seqs, count_of_at_least(1, v)); },
     [](const Entry& e) { return shown_count(e.max_num_seqs); }},
    {"kv_dtype", "one of f16, bf16, f32, i8, i4",
     [](Entry& e, const Value& v) { return take(e.kv_dtype, kv_dtype_of(some_text(v).value_or(""))); }, show_dtype},
    {"kv_memory", "a size above 0 such as 512MiB or 4GiB", set_memory,
     [](const Entry& e) { return e.kv_memory > 0 ? show_size(e.kv_memory) : std::string(kAbsent); }},
    {"kv_share", "a number above 0", set_share,
     [](const Entry& e) { return e.kv_share != 1.0 ? fmt::format("{}", e.kv_share) : std::string(kAbsent); }},
    {"max_queued_requests", "an integer of at least 1",
     [](Entry& e, const Value& v) { return take(e.max_queued_requests, count_of_at_least(1, v)); },
     [](const Entry& e) { return shown_count(e.max_queued_requests); }},
    {"max_queue_time", "a time such as 500ms, 30s or 5m",
     [](Entry& e, const Value& v) { return take(e.max_queue_time, read_duration(v)); },
     [](const Entry& e) { return e.max_queue_time ? show_duration(*e.max_queue_time) : std::string(kAbsent); }},
    {"sleep_after", "a time such as 500ms, 30s or 5m",
     [](Entry& e, const Value& v) { return take(e.sleep_after, read_duration(v)); },
     [](const Entry& e) { return e.sleep_after.count() > 0 ? show_duration(e.sleep_after) : std::string(kAbsent); }},
    {"preload", "true or false", [](Entry& e, const Value& v) { return take(e.preload, read_boolean(v)); },
     [](const Entry& e) { return std::string(e.preload ? kAbsent : "false"); }},
};

// Sets one member; returns "", or why the value is refused.
std::string set_model_member(ModelEntry& entry, const std::string& name, const ConfigValue& value) {
  std::vector<std::string_view> names;
  for (const Member& member : kMembers) {
    names.push_back(member.name);
    if (member.name != name) continue;
    if (!is_built(member.module)) return fmt::format("has '{}', which {}", name, left_out(member.module));
    return member.set(entry, value) ? std::string() : fmt::format("needs {} for '{}'", member.accepts, name);
  }
  return fmt::format("does not know '{}'; did you mean '{}'?", one_line(name), nearest_name(name, names));
}

std::string read_entry(const ConfigValue& item, ModelEntry& entry) {
  if (std::string complaint = read_members(item, entry, set_model_member); !complaint.empty()) return complaint;
  if (entry.name.empty()) return "needs a 'name'";
  if (!entry.model.path.empty() && !entry.model.hf.empty()) {
    return fmt::format("has both 'path' and 'hf' for '{}'", entry.name);
  }
  const bool has_file = !entry.model.path.empty() || !entry.model.hf.empty();
  return has_file ? std::string() : fmt::format("needs a 'path' or 'hf' for '{}'", entry.name);
}

std::string show_entry(const ModelEntry& entry) {
  std::string out;
  for (const Member& member : kMembers) {
    const std::string shown = member.show(entry);
    if (shown != kAbsent) out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", member.name, shown);
  }
  return "{" + out + "}";
}

}  // namespace

ConfigKey model_entries(Description description, Field<std::vector<ModelEntry>> field) {
  return entries<ModelEntry>(std::move(description), field,
                             {"a list of mappings with 'name' and 'path' (as a flag: name=N,path=FILE)", read_entry,
                              [](const ModelEntry& entry, const ModelEntry& earlier) {
                                const bool shared = share_a_name(spec_of(earlier, {}), spec_of(entry, {}));
                                return shared ? fmt::format("has a name of '{}' twice", entry.name) : std::string();
                              },
                              show_entry, kMostModels});
}

}  // namespace quire::config_types
