// Thread: one reading of the text so far: a position in the grammar, and the frames below it. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace quire::grammar {

enum class Position : std::uint8_t {
  kDone,
  kValue,
  kString,
  kBare,
  kObjectFirst,
  kKey,
  kColon,
  kAfterProperty,
  kNextKey,
  kArrayFirst,
  kAfterItem,
  kRule,
};

struct Thread {
  Position position = Position::kDone;
  std::uint16_t spaces = 0;  // whitespace since the last token
  std::uint16_t string = 0;  // kString: index of the node's shape
  std::uint32_t shape = 0;   // node, or object shape for kKey
  std::uint32_t state = 0;   // state of the current lexer
  // Texts that must differ (kKey, and items with a supply) are followed in `text`, an unfinished code point byte by
  // byte, with `count` as the text before it. For other strings `count` is the number of code points so far.
  std::uint32_t count = 0;
  std::uint32_t text = 0;
  std::uint32_t frame = 0;
  auto operator<=>(const Thread&) const = default;
};

using Threads = std::vector<Thread>;

}  // namespace quire::grammar
