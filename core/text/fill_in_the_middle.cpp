#include "core/text/fill_in_the_middle.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace quire {

namespace {

using Names = std::initializer_list<std::string_view>;

// Some files have them as control tokens, others as tokens of their users' own.
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

std::vector<TokenId> encode_files(const Tokenizer& tokenizer, const FimTokens& fim, const std::vector<FimFile>& files) {
  std::vector<TokenId> tokens;
  const auto add = [&](std::string_view text) { append(tokens, tokenizer.encode(text, false, false)); };
  if (fim.repository) {
    tokens.push_back(*fim.repository);
    add("myproject\n");
  }
  for (const FimFile& file : files) {
    if (fim.file) {
      tokens.push_back(*fim.file);
      add(file.name + "\n");
    } else {
      add("\n\n--- snippet ---\n\n");
    }
    add(file.text);
  }
  if (fim.file) {
    tokens.push_back(*fim.file);
    add("filename\n");
  }
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
  std::vector<TokenId> after = tokenizer.encode(text.after, false, false);
  after.resize(std::min(after.size(), room / 4));
  room -= after.size();
  std::vector<TokenId> before = tokenizer.encode(text.before, false, false);
  keep_last(before, room);
  room -= before.size();
  std::vector<TokenId> files = encode_files(tokenizer, fim, text.files);
  keep_last(files, room);

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
