#include "core/grammar/machine/stack.h"

#include <algorithm>

namespace quire::grammar {

void Stack::clear() {
  release({});
  frames.emplace_back();
  frames.push_back(Frame{.kind = FrameKind::kBase});
  texts.push_back(TextNode{kNoIndex, 0, 0, 0x9E3779B97F4A7C15ull});
}

void Stack::reserve_like(const Stack& other) {
  frames.reserve(other.frames.capacity());
  edges.reserve(other.edges.capacity());
  words.reserve(other.words.capacity());
  texts.reserve(other.texts.capacity());
  used.reserve(other.used.capacity());
}

void Stack::release(const Mark& mark) {
  frames.resize(mark.frames);
  edges.resize(mark.edges);
  words.resize(mark.words);
  texts.resize(mark.texts);
  used.resize(mark.used);
}

std::uint32_t Stack::push(const Frame& frame) {
  frames.push_back(frame);
  return static_cast<std::uint32_t>(frames.size() - 1);
}

void Stack::add_edge(std::uint32_t shared_frame, std::uint32_t state, std::uint32_t parent) {
  edges.push_back({state, parent, frames[shared_frame].edges});
  frames[shared_frame].edges = static_cast<std::uint32_t>(edges.size() - 1);
}

std::uint32_t Stack::push_words(const std::uint64_t* from, std::size_t count) {
  const std::size_t offset = static_cast<std::size_t>(from - words.data());
  const auto first = static_cast<std::uint32_t>(words.size());
  words.resize(words.size() + count);
  for (std::size_t i = 0; i < count; ++i)
    words[first + i] = words[offset + i];
  return first;
}

std::uint32_t Stack::push_words(std::size_t count) {
  const auto first = static_cast<std::uint32_t>(words.size());
  words.resize(words.size() + count, 0);
  return first;
}

std::uint32_t Stack::extend_text(std::uint32_t text, char32_t c) {
  const std::uint64_t mixed = (texts[text].hash ^ c) * 0xFF51AFD7ED558CCDull;
  texts.push_back(TextNode{text, texts[text].length + 1, c, mixed ^ mixed >> 32});
  return static_cast<std::uint32_t>(texts.size() - 1);
}

std::string Stack::bytes_between(std::uint32_t prefix, std::uint32_t text) const {
  std::string bytes;
  for (std::uint32_t at = text; at != prefix; at = texts[at].previous)
    bytes.push_back(static_cast<char>(texts[at].last));
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

bool Stack::text_starts_with(std::uint32_t text, std::uint32_t prefix) const {
  const std::uint32_t length = texts[prefix].length;
  if (texts[text].length < length) return false;
  while (texts[text].length > length)
    text = texts[text].previous;
  return texts[text].hash == texts[prefix].hash;
}

}  // namespace quire::grammar
