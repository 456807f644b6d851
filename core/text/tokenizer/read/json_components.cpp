#include "core/text/tokenizer/read/json_components.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/base/result.h"

namespace quire {
namespace {

using nlohmann::json;

// Calls `visit` for each component of a possibly nested sequence, whose items are listed under `members`.
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

// "prepend_scheme", or the boolean that older files have instead.
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

Normalizer::Bert read_bert(const json& object) {
  const bool lowercase = object.value("lowercase", true);
  const auto accents = object.find("strip_accents");
  return {.clean = object.value("clean_text", true),
          .separate_chinese = object.value("handle_chinese_chars", true),
          .strip_accents = accents == object.end() || accents->is_null() ? lowercase : accents->get<bool>(),
          .lowercase = lowercase};
}

std::string read_base64(const json& value) {
  if (value.is_null()) return {};
  std::string out;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : value.get_ref<const std::string&>()) {
    if (c == '=') break;
    const std::size_t digit =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (digit == std::string_view::npos) throw StartupError("tokenizer.json: precompiled_charsmap is not base64");
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(static_cast<unsigned char>(bits >> num_bits));
    bits &= (1U << num_bits) - 1;
  }
  return out;
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
  if (type == "Nmt") return add(Normalizer::Nmt{});
  if (type == "BertNormalizer") return add(read_bert(object));
  if (type == "Precompiled") {
    return add(Normalizer::MapCharacters{CharacterMap(read_base64(object.at("precompiled_charsmap")))});
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
  if (type == "ByteLevel") return add_byte_level(object, is_last, out);
  if (type == "Digits") {
    const bool individual = object.value("individual_digits", false);
    return split("\\p{N}", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Whitespace") return split("\\w+|[^\\w\\s]+", SplitBehavior::kRemoved, true);
  if (type == "WhitespaceSplit") return split("\\s", SplitBehavior::kRemoved);
  if (type == "Punctuation")
    return split(kPunctuationPattern, read_behavior(object.value("behavior", std::string("Isolated"))));
  if (type == "BertPreTokenizer") return add_bert_steps(out.pre_tokenizer);
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
  } else if (type == "WordPiece") {
    out.continuing_prefix = object.value("prefix", std::string("##"));
    out.strips_leading_space = true;
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

// The ids of a template's tokens before, between and after its sequences.
std::vector<std::vector<TokenId>> read_template(const json& items, const json& tokens) {
  std::vector<std::vector<TokenId>> parts(1);
  for (const json& item : items) {
    if (item.contains("Sequence")) {
      parts.emplace_back();
      continue;
    }
    const auto name = item.at("SpecialToken").at("id").get<std::string>();
    for (const json& id : tokens.at(name).at("ids"))
      parts.back().push_back(read_token_id(id));
  }
  return parts;
}

void add_template(const json& object, SurroundingTokens& out) {
  const json& tokens = object.at("special_tokens");
  auto single = read_template(object.at("single"), tokens);
  if (single.size() != 2) throw StartupError("tokenizer.json: the post-processor's template has not one sequence");
  out.prefix = std::move(single[0]);
  out.suffix = std::move(single[1]);
  const auto pair = object.find("pair");
  auto parts = pair == object.end() ? std::vector<std::vector<TokenId>>() : read_template(*pair, tokens);
  if (parts.size() != 3) return;
  out.pair_first = std::move(parts[0]);
  out.pair_between = std::move(parts[1]);
  out.pair_last = std::move(parts[2]);
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

SurroundingTokens read_post_processor(const json& object) {
  SurroundingTokens out;
  for_each_component(object, "processors", [&](const std::string& type, const json& each) {
    if (type == "TemplateProcessing") return add_template(each, out);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      const TokenId cls = read_token_id(each.at("cls").at(1));
      const TokenId sep = read_token_id(each.at("sep").at(1));
      // RoBERTa has two separators between a pair.
      out = {.prefix = {cls}, .suffix = {sep}, .pair_first = {cls}, .pair_between = {sep}, .pair_last = {sep}};
      if (type == "RobertaProcessing") out.pair_between.push_back(sep);
      return;
    }
    if (type != "ByteLevel") refuse("post-processor", type);
  });
  return out;
}

}  // namespace quire
