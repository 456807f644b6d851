// Copies the frames of a Stack that threads still stand on, so that a long generation does not keep all its old frames.
#include <algorithm>
#include <utility>

#include "core/grammar/machine/machine.h"

namespace quire::grammar {

class Machine::Compactor {
 public:
  // alike: by frame, the frame that replaces it; empty: each stays itself.
  Compactor(const Stack& old, const Program& program, const std::vector<std::uint32_t>& alike, Renumbered& indices,
            Stack& fresh)
      : old_(old), program_(program), alike_(alike), indices_(indices), fresh_(fresh) {
    // Reserves the old stack's size, so that memory is allocated only once.
    fresh_.reserve_like(old);
    indices_.frames.reserve(old.frames.capacity());
    indices_.texts.reserve(old.texts.capacity());
    indices_.used.reserve(old.used.capacity());
    indices_.order.reserve(old.frames.capacity());
    indices_.used_chain.reserve(old.used.capacity());
    indices_.text_chain.reserve(old.texts.capacity());
    indices_.frames.assign(old.frames.size(), kNoIndex);
    indices_.texts.assign(old.texts.size(), kNoIndex);
    indices_.used.assign(old.used.size(), kNoIndex);
    indices_.order.clear();
    indices_.frames[kRootFrame] = kRootFrame;
    indices_.frames[kBaseFrame] = kBaseFrame;
    indices_.texts[kEmptyText] = kEmptyText;
    fresh_.clear();
  }

  void run(Threads& threads) {
    for (const Thread& thread : threads)
      number(thread.frame);
    for (std::size_t i = 0; i < indices_.order.size(); ++i) {
      const std::uint32_t frame = indices_.order[i];
      fresh_.frames[indices_.frames[frame]] = copy(old_.frames[frame]);
    }
    for (Thread& thread : threads) {
      thread.frame = number(thread.frame);
      thread.text = text(thread.text);
      if (thread.position == Position::kKey || follows_text(thread)) thread.count = text(thread.count);
    }
  }

 private:
  bool follows_text(const Thread& thread) const {
    return thread.position == Position::kString &&
           program_.nodes[thread.shape].strings[thread.string].supply != nullptr;
  }

  // Frames of rules may refer to one another in cycles, so they are numbered before they are filled.
  std::uint32_t number(std::uint32_t frame) {
    if (!alike_.empty()) frame = alike_[frame];
    std::uint32_t& index = indices_.frames[frame];
    if (index == kNoIndex) {
      index = fresh_.push(Frame{});
      indices_.order.push_back(frame);
    }
    return index;
  }

  Frame copy(const Frame& frame) {
    Frame result = frame;
    result.parent = number(frame.parent);
    std::size_t num_words = 0;
    if (frame.kind == FrameKind::kObject) num_words = program_.objects[frame.shape].num_words();
    if (frame.kind == FrameKind::kArray) num_words = program_.arrays[frame.shape].contains.size();
    result.words = fresh_.push_words(num_words);
    std::copy_n(old_.words.begin() + frame.words, num_words, fresh_.words.begin() + result.words);
    result.edges = kNoIndex;
    for (std::uint32_t edge = frame.edges; edge != kNoIndex; edge = old_.edges[edge].next) {
      const ReturnEdge copied{old_.edges[edge].state, number(old_.edges[edge].parent), result.edges};
      if (!alike_.empty() && has_edge(result.edges, copied)) continue;
      fresh_.edges.push_back(copied);
      result.edges = static_cast<std::uint32_t>(fresh_.edges.size() - 1);
    }
    result.used = used(frame.used);
    return result;
  }

  bool has_edge(std::uint32_t first, const ReturnEdge& wanted) const {
    for (std::uint32_t edge = first; edge != kNoIndex; edge = fresh_.edges[edge].next) {
      if (fresh_.edges[edge].state == wanted.state && fresh_.edges[edge].parent == wanted.parent) return true;
    }
    return false;
  }

  std::uint32_t used(std::uint32_t entry) {
    std::vector<std::uint32_t>& chain = indices_.used_chain;
    chain.clear();
    for (; entry != kNoIndex && indices_.used[entry] == kNoIndex; entry = old_.used[entry].next)
      chain.push_back(entry);
    std::uint32_t at = entry == kNoIndex ? kNoIndex : indices_.used[entry];
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      UsedText copied = old_.used[*link];
      copied.text = text(copied.text);
      copied.next = at;
      fresh_.used.push_back(copied);
      at = indices_.used[*link] = static_cast<std::uint32_t>(fresh_.used.size() - 1);
    }
    return at;
  }

  std::uint32_t text(std::uint32_t node) {
    std::vector<std::uint32_t>& chain = indices_.text_chain;
    chain.clear();
    for (; indices_.texts[node] == kNoIndex; node = old_.texts[node].previous)
      chain.push_back(node);
    std::uint32_t at = indices_.texts[node];
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      at = indices_.texts[*link] = fresh_.extend_text(at, old_.texts[*link].last);
    }
    return at;
  }

  const Stack& old_;
  const Program& program_;
  const std::vector<std::uint32_t>& alike_;
  Renumbered& indices_;
  Stack& fresh_;
};

void Machine::compact(Threads& threads) {
  Compactor(stack_, *program_, {}, renumbered_, other_stack_).run(threads);
  std::swap(stack_, other_stack_);
}

// Without merging, a rule such as `s ::= s s | "a"` would have another frame, and each of its frames another return
// edge, with every byte of a text.
void Machine::merge(Threads& threads) {
  const std::vector<std::uint32_t> alike = find_alike(stack_, threads, allowance_);
  Compactor(stack_, *program_, alike, renumbered_, other_stack_).run(threads);
  std::swap(stack_, other_stack_);
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
}

}  // namespace quire::grammar
