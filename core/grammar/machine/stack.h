// Stack: the frames that the threads of one generation stand on, in arenas addressed by index. One thread at a time.
// Invariant: entries never change once a step is over, so threads share them freely, and a look ahead is undone by
// releasing all entries younger than a mark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/grammar/machine/program.h"

namespace quire::grammar {

enum class FrameKind : std::uint8_t { kRoot, kBase, kArray, kObject, kShared };

struct Frame {
  FrameKind kind = FrameKind::kRoot;
  std::uint32_t parent = 0;
  std::uint32_t shape = 0;         // kArray, kObject: index in the program; kShared: the rule called
  std::uint32_t count = 0;         // items or properties begun
  std::uint32_t words = 0;         // first word of seen keys and marks, or of counts for `contains`
  std::uint32_t used = kNoIndex;   // unnamed keys (or unique items) so far
  std::uint32_t pending = 0;       // kObject: class of the current property
  std::uint32_t missing = 0;       // kObject: required keys not yet seen
  std::uint32_t edges = kNoIndex;  // kShared: its return edges
};

// A way back from a rule or value, shared by all callers at one place of the text.
struct ReturnEdge {
  std::uint32_t state;  // state of the calling rule; kNoIndex: the parent needs only the value's end
  std::uint32_t parent;
  std::uint32_t next;
};

// The text read so far, as a chain of its code points; the hash covers the whole chain.
struct TextNode {
  std::uint32_t previous;
  std::uint32_t length;
  char32_t last;
  std::uint64_t hash;
};

struct UsedText {
  std::uint32_t text;
  std::uint32_t next;
  std::uint64_t hash;
};

inline constexpr std::uint32_t kRootFrame = 0;
inline constexpr std::uint32_t kBaseFrame = 1;  // placeholder for the frames below, while masks are prepared
inline constexpr std::uint32_t kEmptyText = 0;

inline bool bit(const std::uint64_t* words, std::uint32_t index) {
  return (words[index / 64] >> index % 64 & 1) != 0;
}

class Stack {
 public:
  Stack() { clear(); }

  void clear();  // keeps the permanent frames and the empty text
  std::size_t num_entries() const { return frames.size() + edges.size() + words.size() + texts.size() + used.size(); }
  struct Mark {
    std::size_t frames, edges, words, texts, used;
  };
  Mark mark() const { return {frames.size(), edges.size(), words.size(), texts.size(), used.size()}; }
  void release(const Mark& mark);
  void reserve_like(const Stack& other);  // reserves the other stack's capacity

  std::uint32_t push(const Frame& frame);
  void add_edge(std::uint32_t shared_frame, std::uint32_t state, std::uint32_t parent);
  std::uint32_t push_words(const std::uint64_t* from, std::size_t count);
  std::uint32_t push_words(std::size_t count);
  std::uint32_t extend_text(std::uint32_t text, char32_t c);
  // The code units of the chain of `text` behind `prefix`, which is on it; each must be a byte.
  std::string bytes_between(std::uint32_t prefix, std::uint32_t text) const;
  // Whether the chain of `text` begins with that of `prefix`.
  bool text_starts_with(std::uint32_t text, std::uint32_t prefix) const;

  std::vector<Frame> frames;
  std::vector<ReturnEdge> edges;
  std::vector<std::uint64_t> words;
  std::vector<TextNode> texts;
  std::vector<UsedText> used;
};

}  // namespace quire::grammar
