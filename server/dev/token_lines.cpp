#include "server/dev/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "core/text/detokenizer.h"
#include "server/cli/tokenize.h"

namespace quire::dev {
namespace {

using nlohmann::json;

Result<bool> read_flag(const json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_boolean()) return invalid(fmt::format("'{}' must be true or false", key), key);
  return found->get<bool>();
}

Result<json> read_object(const std::string& line, std::span<const char* const> known_keys) {
  json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return invalid("the line is not a JSON object in UTF-8");
  for (const auto& member : object.items()) {
    const bool known =
        std::any_of(known_keys.begin(), known_keys.end(), [&](const char* key) { return member.key() == key; });
    if (!known) return invalid(fmt::format("unknown field '{}'", member.key()), member.key());
  }
  return object;
}

Result<json> tokenize_line(const std::string& line, const Tokenizer& tokenizer, const cli::TokenizeOptions& options) {
  constexpr std::array kKeys = {"text", "add_special", "parse_special"};
  const auto object = read_object(line, kKeys);
  if (!object) return tl::make_unexpected(object.error());
  const auto text = object->find("text");
  if (text == object->end() || !text->is_string()) return invalid("'text' must be a string", "text");
  const auto add_special = read_flag(*object, "add_special", options.add_special);
  if (!add_special) return tl::make_unexpected(add_special.error());
  const auto parse_special = read_flag(*object, "parse_special", options.parse_special);
  if (!parse_special) return tl::make_unexpected(parse_special.error());
  json ids = json::array();
  for (const TokenId id : tokenizer.encode(text->get_ref<const std::string&>(), *add_special, *parse_special)) {
    ids.push_back(id.value);
  }
  return json{{"ids", std::move(ids)}};
}

Result<json> detokenize_line(const std::string& line, const Tokenizer& tokenizer, const cli::TokenizeOptions& options) {
  constexpr std::array kKeys = {"ids", "skip_special"};
  const auto object = read_object(line, kKeys);
  if (!object) return tl::make_unexpected(object.error());
  const auto ids = object->find("ids");
  if (ids == object->end() || !ids->is_array()) return invalid("'ids' must be an array", "ids");
  const auto skip_special = read_flag(*object, "skip_special", options.skip_special);
  if (!skip_special) return tl::make_unexpected(skip_special.error());
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = *skip_special, .at_text_start = true});
  std::string text;
  for (const json& id : *ids) {
    const bool in_range = id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size();
    if (!in_range) return invalid(fmt::format("{} is not a token of the vocabulary", id.dump()), "ids");
    text += detokenizer.push(TokenId{id.get<std::int32_t>()});
  }
  text += detokenizer.finish();
  return json{{"text", std::move(text)}};
}

template <class Map>
std::size_t map_lines(std::istream& in, std::ostream& out, const Map& map) {
  std::size_t num_errors = 0;
  for (std::string line; std::getline(in, line);) {
    const Result<json> mapped = map(line);
    if (!mapped) ++num_errors;
    const json& shown = mapped ? *mapped : json{{"error", mapped.error().message}};
    out << shown.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
    // The writer may wait for this line before it writes the next one.
    if (in.rdbuf()->in_avail() <= 0) out.flush();
  }
  out.flush();
  return num_errors;
}

}  // namespace

std::size_t tokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                           const cli::TokenizeOptions& options) {
  return map_lines(in, out, [&](const std::string& line) { return tokenize_line(line, tokenizer, options); });
}

std::size_t detokenize_lines(std::istream& in, std::ostream& out, const Tokenizer& tokenizer,
                             const cli::TokenizeOptions& options) {
  return map_lines(in, out, [&](const std::string& line) { return detokenize_line(line, tokenizer, options); });
}

}  // namespace quire::dev
