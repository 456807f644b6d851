#include "config/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "config/config.h"
#include "core/base/message_text.h"
#include "core/base/result.h"

namespace quire {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Methods of vLLM's object, and Quire's own names; a request may name either (speculative_config).
constexpr std::array kMethods = std::to_array<Pair>({{"ngram", "prompt_lookup"},
                                                     {"prompt_lookup", "prompt_lookup"},
                                                     {"draft_model", "draft"},
                                                     {"draft", "draft"},
                                                     {"mtp", "mtp"},
                                                     {"none", "none"}});
constexpr std::array kKeys = std::to_array<std::string_view>({"method", "model", "num_speculative_tokens"});
constexpr std::string_view kByItself = "the number of drafts follows from their acceptance rate and cost";
constexpr std::array kLeftOut = std::to_array<Pair>({
    {"prompt_lookup_max", "the longest match is always taken"},
    {"prompt_lookup_min", "the longest match is always taken"},
    {"disable_by_batch_size", kByItself},
    {"disable_padded_drafter_batch", kByItself},
    {"draft_tensor_parallel_size", "the draft model uses the same GPUs as the model"},
    {"quantization", "weights keep the precision of their file"},
    {"max_model_len", "a draft model has the context of the model"},
    {"revision", "'model' is a file or directory"},
    {"acceptance_method", "drafts never change an answer"},
    {"rejection_sample_method", "drafts never change an answer"},
    {"draft_sample_method", "drafts never change an answer"},
});

[[noreturn]] void refuse(const std::string& what) {
  throw StartupError(fmt::format("{}: {}", kSpeculativeFlag, what));
}

std::optional<std::string_view> value_of(std::span<const Pair> pairs, std::string_view name) {
  const auto found = std::ranges::find(pairs, name, &Pair::first);
  return found == pairs.end() ? std::nullopt : std::optional(found->second);
}

[[noreturn]] void refuse_key(const std::string& key) {
  if (const auto reason = value_of(kLeftOut, key)) refuse(fmt::format("leave out '{}': {}", key, *reason));
  const auto likely = likely_name(key, {kKeys.begin(), kKeys.end()});
  refuse(fmt::format("unknown key '{}'; {}", printable(key),
                     likely ? fmt::format("did you mean '{}'?", *likely)
                            : std::string("there are 'method', 'model' and 'num_speculative_tokens'")));
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  if (!found->is_string() || found->get_ref<const std::string&>().empty())
    refuse(fmt::format("'{}' is not a text", key));
  return found->get<std::string>();
}

}  // namespace

void set_speculative_config(Config& config, const std::string& json) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object()) refuse(R"(takes a JSON object such as '{"method": "ngram", "num_speculative_tokens": 4}')");
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) refuse_key(key);
  }
  const std::string model = text_of(object, "model");
  std::string method = text_of(object, "method");
  if (method.empty() && !model.empty()) method = "draft_model";
  if (method.empty()) refuse("'method' is missing: one of ngram, draft_model, mtp");
  const auto own = value_of(kMethods, method);
  if (!own) refuse(fmt::format("the method '{}' is not supported: one of ngram, draft_model, mtp", printable(method)));
  if (!model.empty() && *own != "draft") refuse("'model' is for the method draft_model");
  const auto set = [&](std::string_view key, const std::string& value) {
    set_config_value(config, key, {value}, std::string(kSpeculativeFlag));
  };
  set("speculation.method", std::string(*own));
  if (!model.empty()) set("speculation.draft_model", model);
  if (const auto count = object.find("num_speculative_tokens"); count != object.end()) {
    if (!count->is_number_integer()) refuse("'num_speculative_tokens' is not an integer");
    set("speculation.max_tokens", count->dump());
  }
}

}  // namespace quire
