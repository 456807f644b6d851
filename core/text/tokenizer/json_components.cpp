#include "core/text/tokenizer/json_components.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/base/result.h"

namespace quire {
namespace {

using nlohmann::json;

// Calls `visit` for each component of the possibly nested sequence, whose members stand under `members`.
void for_each_component(const json& object, const char* members,
                        const std::function<void(const std::string&, const json&)>& visit, int depth = 0) {
  if (object.is_null()) return;
  const auto type = object.at("type").get<std::string>();
  if (type != "Sequence") return visit(type, object);
  constexpr int kDeepest = 16;
  if (depth == kDeepest) throw StartupError("tokenizer.json nests its sequences too deeply");
  for (const json& member : object.at(members))
    for_each_component(member, members, visit, depth + 1);
}

[[noreturn]] void refuse(const char* what, const std::string& type) {
  throw StartupError(fmt::format("tokenizer.json: the {} '{}' is not supported", what, type));
}

Regex read_pattern(const json& pattern) {
  if (pattern.contains("Regex")) return Regex::compile(pattern.at("Regex").get<std::string>());
  return Regex::compile_literal(pattern.at("String").get<std::string>());
}

SplitBehavior read_behavior(const std::string& name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  refuse("split behaviour", name);
}

// "prepend_scheme", or the boolean that stood for it in older files.
PrependScheme read_prepend_scheme(const json& object) {
  if (!object.contains("prepend_scheme")) {
    return object.value("add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const auto name = object.at("prepend_scheme").get<std::string>();
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  refuse("prepend scheme", name);
}

void add_normalizer(const std::string& type, const json& object, JsonNormalizer& out) {
  const auto add = [&](Normalizer::Step step) { out.normalizer.add(std::move(step)); };
  if (type == "NFC") return add(Normalizer::Normalize{unicode::Form::kNfc});
  if (type == "NFD") return add(Normalizer::Normalize{unicode::Form::kNfd});
  if (type == "NFKC") return add(Normalizer::Normalize{unicode::Form::kNfkc});
  if (type == "NFKD") return add(Normalizer::Normalize{unicode::Form::kNfkd});
  if (type == "Lowercase") return add(Normalizer::Lowercase{});
  if (type == "StripAccents") return add(Normalizer::StripMarks{});
  if (type == "Prepend") return add(Normalizer::Prepend{object.at("prepend").get<std::string>()});
  if (type == "Strip")
    return add(Normalizer::Strip{object.at("strip_left").get<bool>(), object.at("strip_right").get<bool>()});
  if (type == "ByteLevel") {
    out.byte_level = true;
    return;
  }
  if (type != "Replace") refuse("normalizer", type);
  const json& pattern = object.at("pattern");
  auto content = object.at("content").get<std::string>();
  const auto literal = pattern.value("String", std::string());
  if (literal.size() == 1) return add(Normalizer::ReplaceCharacter{literal[0], std::move(content)});
  add(Normalizer::Replace{read_pattern(pattern), std::move(content)});
}

void add_byte_level(const json& object, bool is_last, JsonPreTokenizer& out) {
  out.byte_level = true;
  if (object.value("add_prefix_space", true)) out.pre_tokenizer.add(PreTokenizer::PrefixSpace{});
  if (object.value("use_regex", true)) out.pre_tokenizer.add(PreTokenizer::Split{Regex::compile(kGpt2Pattern)});
  if (!is_last) out.pre_tokenizer.add(PreTokenizer::ToByteAlphabet{});
}

void add_pre_tokenizer(const std::string& type, const json& object, bool is_last, JsonPreTokenizer& out) {
  const auto split = [&](std::string_view pattern, SplitBehavior behavior, bool invert = false) {
    out.pre_tokenizer.add(PreTokenizer::Split{Regex::compile(pattern), behavior, invert});
  };
  constexpr std::string_view kPunctuation = "[\\p{P}!-/:-@\\[-`{-~]";
  if (type == "ByteLevel") return add_byte_level(object, is_last, out);
  if (type == "Digits") {
    const bool individual = object.value("individual_digits", false);
    return split("\\p{N}", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Whitespace") return split("\\w+|[^\\w\\s]+", SplitBehavior::kRemoved, true);
  if (type == "WhitespaceSplit") return split("\\s", SplitBehavior::kRemoved);
  if (type == "Punctuation")
    return split(kPunctuation, read_behavior(object.value("behavior", std::string("Isolated"))));
  if (type == "BertPreTokenizer") {
    split("\\s", SplitBehavior::kRemoved);
    return split(kPunctuation, SplitBehavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    out.pre_tokenizer.add(PreTokenizer::Split{Regex::compile_literal(object.at("delimiter").get<std::string>()),
                                              SplitBehavior::kRemoved});
    return;
  }
  if (type == "Split") {
    out.pre_tokenizer.add(PreTokenizer::Split{read_pattern(object.at("pattern")),
                                              read_behavior(object.at("behavior").get<std::string>()),
                                              object.value("invert", false)});
    return;
  }
  if (type != "Metaspace") refuse("pre-tokenizer", type);
  auto replacement = object.at("replacement").get<std::string>();
  if (replacement.empty()) throw StartupError("tokenizer.json: the pre-tokenizer 'Metaspace' has an empty replacement");
  out.pre_tokenizer.add(
      PreTokenizer::Metaspace{std::move(replacement), read_prepend_scheme(object), object.value("split", true)});
}

void add_decoder(const std::string& type, const json& object, JsonDecoder& out) {
  if (type == "ByteLevel") {
    out.byte_level = true;
  } else if (type == "ByteFallback") {
    out.byte_fallback = true;
  } else if (type == "Metaspace") {
    out.replacements.emplace_back(object.at("replacement").get<std::string>(), " ");
    out.strips_leading_space = read_prepend_scheme(object) != PrependScheme::kNever;
  } else if (type == "Replace" && object.at("pattern").contains("String")) {
    out.replacements.emplace_back(object.at("pattern").at("String").get<std::string>(),
                                  object.at("content").get<std::string>());
  } else if (type == "Strip") {
    const json& start = object.at("start");
    if (object.at("content") != " " || (start != 0 && start != 1) || object.at("stop") != 0) {
      throw StartupError("tokenizer.json: the decoder 'Strip' is supported for one leading space only");
    }
    out.strips_leading_space = start == 1;
  } else if (type != "Fuse") {
    refuse("decoder", type);
  }
}

void add_template(const json& object, JsonPostProcessor& out) {
  bool before = true;
  for (const json& item : object.at("single")) {
    if (item.contains("Sequence")) {
      before = false;
      continue;
    }
    const auto name = item.at("SpecialToken").at("id").get<std::string>();
    for (const json& id : object.at("special_tokens").at(name).at("ids")) {
      (before ? out.prefix : out.suffix).push_back(read_token_id(id));
    }
  }
}

}  // namespace

JsonNormalizer read_normalizer(const json& object) {
  JsonNormalizer out;
  for_each_component(object, "normalizers",
                     [&](const std::string& type, const json& each) { add_normalizer(type, each, out); });
  return out;
}

JsonPreTokenizer read_pre_tokenizer(const json& object, bool in_alphabet) {
  std::vector<std::pair<std::string, const json*>> components;
  for_each_component(object, "pretokenizers",
                     [&](const std::string& type, const json& each) { components.emplace_back(type, &each); });
  JsonPreTokenizer out;
  if (in_alphabet) out.pre_tokenizer.add(PreTokenizer::ToByteAlphabet{});
  for (const auto& component : components) {
    if (in_alphabet && component.first == "ByteLevel")
      refuse("pre-tokenizer after a ByteLevel normalizer", component.first);
    add_pre_tokenizer(component.first, *component.second, &component == &components.back(), out);
  }
  return out;
}

JsonDecoder read_decoder(const json& object) {
  JsonDecoder out;
  for_each_component(object, "decoders",
                     [&](const std::string& type, const json& each) { add_decoder(type, each, out); });
  return out;
}

TokenId read_token_id(const json& id) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  // A number beyond 64 bits is read as a fraction.
  const std::int64_t value = id.is_number_integer() ? id.get<std::int64_t>() : -1;
  if (value < 0 || value >= kMostTokens) throw StartupError("tokenizer.json: " + id.dump() + " is no token id");
  return TokenId{static_cast<std::int32_t>(value)};
}

JsonPostProcessor read_post_processor(const json& object) {
  JsonPostProcessor out;
  for_each_component(object, "processors", [&](const std::string& type, const json& each) {
    if (type == "TemplateProcessing") return add_template(each, out);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      out.prefix.push_back(read_token_id(each.at("cls").at(1)));
      out.suffix.push_back(read_token_id(each.at("sep").at(1)));
      return;
    }
    if (type != "ByteLevel") refuse("post-processor", type);
  });
  return out;
}

}  // namespace quire
