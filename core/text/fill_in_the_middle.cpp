#include "core/text/fill_in_the_middle.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace quire {

namespace {

using Names = std::initializer_list<std::string_view>;

// Some files have them as control tokens, others as user-defined tokens.
std::optional<TokenId> find_one(const Tokenizer& tokenizer, Names names) {
  for (const std::string_view name : names) {
    if (const auto token = tokenizer.find_token(name)) return token;
  }
  return std::nullopt;
}

void append(std::vector<TokenId>& tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

void keep_last(std::vector<TokenId>& tokens, std::size_t count) {
  if (tokens.size() > count) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(count));
}

// Bytes read per token of a text that will be cut, so that the work is bounded by the number of tokens kept. Source
// code has three or four bytes a token.
constexpr std::size_t kMostBytesPerToken = 16;

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The beginning of a text, long enough for `max_tokens` tokens.
std::string_view first_part(std::string_view text, std::size_t max_tokens) {
  std::size_t end = std::min(text.size(), max_tokens * kMostBytesPerToken);
  while (end < text.size() && continues_character(text[end]))
    ++end;
  return text.substr(0, end);
}

// The end of a text, long enough for `max_tokens` tokens; it begins with a whole line if the text has several.
std::string_view last_part(std::string_view text, std::size_t max_tokens) {
  const std::size_t most = max_tokens * kMostBytesPerToken;
  if (text.size() <= most) return text;
  std::size_t begin = text.size() - most;
  const std::size_t line_end = text.substr(begin, most / 2).find('\n');
  if (line_end != std::string_view::npos) return text.substr(begin + line_end + 1);
  while (begin < text.size() && continues_character(text[begin]))
    ++begin;
  return text.substr(begin);
}

std::vector<TokenId> encode_file(const Tokenizer& tokenizer, const FimTokens& fim, const FimFile& file,
                                 std::size_t max_tokens) {
  std::vector<TokenId> tokens;
  const auto add = [&](std::string_view text) {
    append(tokens, tokenizer.encode(last_part(text, max_tokens), false, false));
  };
  if (fim.file) {
    tokens.push_back(*fim.file);
    add(file.name + "\n");
  } else {
    add("\n\n--- snippet ---\n\n");
  }
  add(file.text);
  return tokens;
}

// The last `max_tokens` tokens of the files and their separators; earlier files are not read.
std::vector<TokenId> encode_files(const Tokenizer& tokenizer, const FimTokens& fim, const std::vector<FimFile>& files,
                                  std::size_t max_tokens) {
  std::vector<std::vector<TokenId>> parts;  // the last one first
  std::size_t num_tokens = 0;
  const auto add = [&](std::vector<TokenId> part) {
    num_tokens += part.size();
    parts.push_back(std::move(part));
  };
  const auto headed = [&](TokenId head, std::string_view text) {
    std::vector<TokenId> tokens{head};
    append(tokens, tokenizer.encode(text, false, false));
    return tokens;
  };
  if (fim.file) add(headed(*fim.file, "filename\n"));
  for (std::size_t i = files.size(); i > 0 && num_tokens < max_tokens; --i)
    add(encode_file(tokenizer, fim, files[i - 1], max_tokens));
  if (fim.repository && num_tokens < max_tokens) add(headed(*fim.repository, "myproject\n"));
  std::vector<TokenId> tokens;
  tokens.reserve(num_tokens);
  for (std::size_t i = parts.size(); i > 0; --i)
    append(tokens, parts[i - 1]);
  keep_last(tokens, max_tokens);
  return tokens;
}

}  // namespace

std::optional<FimTokens> find_fim_tokens(const Tokenizer& tokenizer) {
  const auto prefix = find_one(tokenizer, {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>",
                                           "<|code_prefix|>", "▁<PRE>", "<PRE>"});
  const auto suffix = find_one(tokenizer, {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>",
                                           "<|code_suffix|>", "▁<SUF>", "<SUF>"});
  const auto middle = find_one(tokenizer, {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>",
                                           "<|code_middle|>", "▁<MID>", "<MID>"});
  if (!prefix || !suffix || !middle) return std::nullopt;
  FimTokens fim{*prefix,
                *suffix,
                *middle,
                find_one(tokenizer, {"<|repo_name|>", "<|fim_repo|>", "<fim-repo>", "<reponame>", "<REPO>"}),
                find_one(tokenizer, {"<|file_sep|>", "<file_sep>"}),
                {}};
  const auto pad = find_one(tokenizer, {"<|fim_pad|>", "<fim_pad>", "<fim-pad>"});
  const auto end = find_one(tokenizer, {"▁<EOT>", "<EOT>"});
  for (const auto& token : {fim.repository, fim.file, pad, end}) {
    if (token) fim.ends.push_back(*token);
  }
  return fim;
}

std::vector<TokenId> encode_fim(const Tokenizer& tokenizer, const FimTokens& fim, const FimText& text,
                                std::size_t max_tokens) {
  std::vector<TokenId> begin = tokenizer.encode("", true, false);
  if (!begin.empty() && begin.front() != tokenizer.bos()) begin.clear();
  if (begin.size() > 1) begin.resize(1);
  const std::size_t fixed = begin.size() + 3;  // prefix, suffix, middle
  std::size_t room = max_tokens - std::min(fixed, max_tokens);
  std::vector<TokenId> after = tokenizer.encode(first_part(text.after, room / 4), false, false);
  after.resize(std::min(after.size(), room / 4));
  room -= after.size();
  std::vector<TokenId> before = tokenizer.encode(last_part(text.before, room), false, false);
  keep_last(before, room);
  room -= before.size();
  const std::vector<TokenId> files = encode_files(tokenizer, fim, text.files, room);

  std::vector<TokenId> tokens = std::move(begin);
  append(tokens, files);
  tokens.push_back(fim.prefix);
  append(tokens, before);
  tokens.push_back(fim.suffix);
  append(tokens, after);
  tokens.push_back(fim.middle);
  return tokens;
}

}  // namespace quire
