#include "server/models/model_reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/message_text.h"

namespace quire::hub {

namespace {

constexpr std::size_t kLongestPart = 96;
constexpr std::size_t kLongestPath = 1024;

bool is_word(std::string_view text, std::string_view others) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [others](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

bool is_part(std::string_view text) {
  return text.size() <= kLongestPart && is_word(text, "-_.") && text.front() != '.' && text.front() != '-' &&
         text.find("..") == std::string_view::npos && text.find("--") == std::string_view::npos;
}

bool is_repository(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && is_part(text.substr(0, slash)) && is_part(text.substr(slash + 1));
}

std::string_view without_host(std::string_view text) {
  for (const std::string_view prefix : {"https://", "http://"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  for (const std::string_view prefix : {"hf.co/", "huggingface.co/"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  return text;
}

}  // namespace

std::string ModelReference::text() const {
  return repository + (revision == "main" ? "" : "@" + revision) + (wanted.empty() ? "" : ":" + wanted);
}

bool is_commit(std::string_view text) {
  constexpr std::size_t kDigits = 40;
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kLongestPath) return false;
  const bool printable =
      std::all_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  if (!printable || path.find('\\') != std::string_view::npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

Result<ModelReference> parse_reference(std::string_view text) {
  const std::string_view plain = without_host(text);
  const std::size_t colon = std::min(plain.find(':'), plain.size());
  const std::string_view named = plain.substr(0, colon);
  const std::size_t at = std::min(named.find('@'), named.size());
  ModelReference reference;
  reference.repository = named.substr(0, at);
  if (at < named.size()) reference.revision = named.substr(at + 1);
  if (colon < plain.size()) reference.wanted = plain.substr(colon + 1);
  const bool is_whole = colon == plain.size() || !reference.wanted.empty();
  const bool usable =
      is_repository(reference.repository) && is_word(reference.revision, "-_./") && is_safe_path(reference.revision) &&
      is_whole && (reference.wanted.empty() || (is_word(reference.wanted, "-_./+") && is_safe_path(reference.wanted)));
  if (!usable) {
    return invalid(fmt::format("'{}' must be OWNER/NAME of a repository, optionally with @REVISION and :QUANTISATION, "
                               "such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0",
                               printable(text)),
                   "model", "invalid_model_reference");
  }
  return reference;
}

}  // namespace quire::hub
