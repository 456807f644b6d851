#include <algorithm>

#include "core/base/result.h"
#include "core/text/tokenizer/read/vocabulary_parts.h"
#include "core/text/unicode.h"

namespace quire {
namespace {

std::optional<TokenId> token_named(const VocabularyData& data, std::string_view text) {
  const auto found = std::find(data.tokens.begin(), data.tokens.end(), text);
  if (found == data.tokens.end()) return std::nullopt;
  return TokenId{static_cast<std::int32_t>(found - data.tokens.begin())};
}

// Adds the special tokens by their usual names if the file does not define them.
VocabularyData with_named_tokens(VocabularyData data) {
  if (!data.bos) data.bos = token_named(data, "[CLS]");
  if (!data.separator) data.separator = token_named(data, "[SEP]");
  if (!data.unknown) data.unknown = token_named(data, "[UNK]");
  if (!data.bos || !data.separator) {
    throw StartupError("a 'bert' vocabulary needs the tokens [CLS] and [SEP] (tokenizer.ggml.seperator_token_id)");
  }
  if (data.kinds.empty()) data.kinds.assign(data.tokens.size(), TokenKind::kNormal);
  for (const auto& [id, kind] :
       {std::pair{data.bos, TokenKind::kControl}, std::pair{data.separator, TokenKind::kControl},
        std::pair{data.unknown, TokenKind::kUnknown}}) {
    if (id) data.kinds[static_cast<std::size_t>(id->value)] = kind;
  }
  return data;
}

}  // namespace

std::shared_ptr<const Tokenizer> make_word_piece(const VocabularyData& given) {
  const VocabularyData data = with_named_tokens(given);
  TextTokenizerParts parts = common_parts(data, {});
  parts.around = {.prefix = {*data.bos},
                  .suffix = {*data.separator},
                  .pair_first = {*data.bos},
                  .pair_between = {*data.separator},
                  .pair_last = {*data.separator}};
  WordPieceOptions options{.unknown = data.unknown ? data.unknown->value : -1};
  std::vector<std::string> starts(data.tokens.size());
  std::vector<std::string> continuations(data.tokens.size());
  parts.bytes.resize(data.tokens.size());
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string_view text = data.tokens[id];
    const bool special = is_special_kind(kind_of(data, id));
    parts.bytes[id] = special ? std::string(text) : with_spaces(text);
    if (special || !unicode::is_valid(text)) continue;
    if (text == kSpaceMark) options.bare_start = static_cast<std::int32_t>(id);
    if (text.starts_with(kSpaceMark)) {
      starts[id] = text.substr(kSpaceMark.size());
    } else {
      continuations[id] = text;
    }
  }
  parts.model = WordPieceModel(starts, continuations, options);
  parts.normalizer.add(
      Normalizer::Bert{.strip_accents = data.strip_accents.value_or(data.lowercase), .lowercase = data.lowercase});
  add_bert_steps(parts.pre_tokenizer);
  parts.strips_leading_space = true;
  return std::make_shared<TextTokenizer>(std::move(parts));
}

std::shared_ptr<const Tokenizer> make_unigram(const VocabularyData& data) {
  check_scores(data);
  TextTokenizerParts parts = common_parts(data, {.add_eos = true});
  UnigramOptions options;
  options.unknown = data.unknown ? data.unknown->value : -1;
  const std::vector<std::string> texts = read_texts(data, parts, options.byte_tokens);
  double lowest = 0;
  bool any = false;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (kind_of(data, id) != TokenKind::kNormal) continue;
    lowest = any ? std::min(lowest, static_cast<double>(data.scores[id])) : data.scores[id];
    any = true;
  }
  options.unknown_score = lowest - kUnknownPenalty;
  parts.model = UnigramModel(texts, {data.scores.begin(), data.scores.end()}, options);
  if (CharacterMap map(data.character_map); !map.empty()) {
    parts.normalizer.add(Normalizer::MapCharacters{std::move(map)});
  }
  const bool prefix = data.add_space_prefix.value_or(false);
  parts.normalizer.add(Normalizer::MarkSpaces{std::string(kSpaceMark), prefix, data.collapse_spaces});
  parts.strips_leading_space = prefix || data.collapse_spaces;
  return std::make_shared<TextTokenizer>(std::move(parts));
}

}  // namespace quire
