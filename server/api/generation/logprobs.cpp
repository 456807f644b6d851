#include "server/api/generation/logprobs.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kMinLogprob;
}

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

Json chat_entry(const Tokenizer& tokenizer, TokenId token, float logprob, bool as_ids) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(token))
    bytes.push_back(static_cast<unsigned char>(c));
  return Json{
      {"token", token_name(tokenizer, token, as_ids)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string token_name(const Tokenizer& tokenizer, TokenId token, bool as_id) {
  if (as_id) return "token_id:" + std::to_string(token.value);
  // A token can end inside a character: dump_json() replaces invalid UTF-8; `bytes` has the exact bytes.
  const std::string dumped = dump_json(Json(std::string(tokenizer.token_bytes(token))));
  return Json::parse(dumped).get<std::string>();
}

Json chat_logprobs(const Tokenizer& tokenizer, std::span<const TokenLogprob> logprobs, std::size_t num_top,
                   bool as_ids) {
  Json list = Json::array();
  for (const TokenLogprob& each : logprobs) {
    Json entry = chat_entry(tokenizer, each.token, each.logprob, as_ids);
    Json top = Json::array();
    for (std::size_t i = 0; i < std::min(num_top, each.top.size()); ++i) {
      top.push_back(chat_entry(tokenizer, each.top[i].first, each.top[i].second, as_ids));
    }
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

void append_chat_logprobs(std::string& out, const Tokenizer& tokenizer, std::span<const TokenLogprob> logprobs,
                          std::size_t num_top, bool as_ids) {
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const std::string entry = dump_json(chat_logprobs(tokenizer, logprobs.subspan(i, 1), num_top, as_ids));
    if (i > 0) out += ',';
    out.append(entry, 1, entry.size() - 2);
  }
}

void TextPlaces::begin_behind(std::string_view text) {
  offset_ = num_characters(text);
}

std::size_t TextPlaces::next(TokenId token) {
  const std::size_t begin = offset_;
  offset_ += num_characters(detokenizer_.push(token));
  return begin;
}

void CompletionLogprobs::add(const Tokenizer& tokenizer, TokenId token, const TokenLogprob* logprob,
                             std::size_t num_top, bool as_ids, std::size_t offset) {
  const std::string name = token_name(tokenizer, token, as_ids);
  Json top(nullptr);
  if (logprob != nullptr) {
    top = Json::object();
    for (std::size_t i = 0; i < std::min(num_top, logprob->top.size()); ++i) {
      top[token_name(tokenizer, logprob->top[i].first, as_ids)] = finite(logprob->top[i].second);
    }
    // The chosen token is always among them, so there can be one more than asked for.
    top[name] = finite(logprob->logprob);
  }
  const auto append = [](std::string& list, const Json& value) {
    if (!list.empty()) list += ',';
    list += dump_json(value);
  };
  append(tokens, name);
  append(token_logprobs, logprob == nullptr ? Json(nullptr) : Json(finite(logprob->logprob)));
  append(top_logprobs, top);
  append(text_offset, offset);
}

std::string CompletionLogprobs::text() const {
  return "{\"tokens\":[" + tokens + "],\"token_logprobs\":[" + token_logprobs + "],\"top_logprobs\":[" + top_logprobs +
         "],\"text_offset\":[" + text_offset + "]}";
}

Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const std::optional<TokenLogprob>> logprobs) {
  Json list = Json::array();
  for (const auto& each : logprobs) {
    if (!each) {
      list.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    const auto add = [&](TokenId token, float logprob, Json rank) {
      entry[std::to_string(token.value)] = {{"logprob", finite(logprob)},
                                            {"rank", std::move(rank)},
                                            {"decoded_token", token_name(tokenizer, token, false)}};
    };
    // The prompt's own token first; its rank is known where it is among the top.
    add(each->token, each->logprob, nullptr);
    for (std::size_t i = 0; i < each->top.size(); ++i)
      add(each->top[i].first, each->top[i].second, i + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace quire
