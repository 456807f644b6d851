#include "core/grammar/machine/merging.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

bool counts_conditions(const Thread& thread, const Program& program, const Stack& stack) {
  const std::uint32_t shape = stack.frames[thread.frame].shape;
  switch (thread.position) {
    case Position::kAfterProperty:
    case Position::kNextKey: return program.objects[shape].num_marks > 0;
    case Position::kAfterItem: return program.arrays[shape].counts != nullptr;
    default: return false;
  }
}

bool meets_as_much(const Thread& a, const Thread& b, const Program& program, const Stack& stack) {
  const Frame& x = stack.frames[a.frame];
  const Frame& y = stack.frames[b.frame];
  if (a.position != b.position || a.spaces != b.spaces || x.parent != y.parent || x.shape != y.shape ||
      x.count != y.count || x.used != y.used || x.missing != y.missing) {
    return false;
  }
  const std::uint64_t* const met = &stack.words[x.words];
  const std::uint64_t* const other = &stack.words[y.words];
  if (a.position == Position::kAfterItem) {
    const auto& contains = program.arrays[x.shape].contains;
    for (std::size_t i = 0; i < contains.size(); ++i) {
      const bool bounded = contains[i].max != kUnbounded;
      if (bounded ? met[i] != other[i] : met[i] < other[i]) return false;
    }
    return true;
  }
  const std::size_t num_names = program.objects[x.shape].num_words() - 1;
  return std::equal(met, met + num_names, other) && (met[num_names] | other[num_names]) == met[num_names];
}

namespace {

// A value that must differ from its array's other items is judged by that array's frame, so it cannot be shared.
bool shareable(const Thread& thread, const Program& program, const Stack& stack) {
  const Frame& frame = stack.frames[thread.frame];
  return thread.position == Position::kValue &&
         (frame.kind != FrameKind::kArray || !program.arrays[frame.shape].unique);
}

}  // namespace

// Equal values that begin at the same place are read once and return to each caller. Without this, a recursive schema
// whose alternatives agree for a while would double its threads with every level.
void share_values(Threads& threads, const Program& program, Stack& stack) {
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!shareable(threads[i], program, stack)) continue;
    std::uint32_t shared = kNoIndex;
    for (std::size_t k = threads.size(); k-- > i + 1;) {
      const Thread& other = threads[k];
      if (!shareable(other, program, stack) || other.shape != threads[i].shape || other.spaces != threads[i].spaces)
        continue;
      if (shared == kNoIndex) {
        shared = stack.push(Frame{.kind = FrameKind::kShared});
        stack.add_edge(shared, kNoIndex, threads[i].frame);
      }
      stack.add_edge(shared, kNoIndex, other.frame);
      threads.erase(threads.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (shared != kNoIndex) threads[i].frame = shared;
  }
}

class Compactor::Copy {
 public:
  // alike: by frame, the frame that replaces it; empty: each stays itself.
  Copy(const Stack& old, const Program& program, const std::vector<std::uint32_t>& alike, Renumbered& indices,
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

void Compactor::compact(Stack& stack, Threads& threads, const Program& program) {
  Copy(stack, program, {}, renumbered_, fresh_).run(threads);
  std::swap(stack, fresh_);
}

// Without merging, a rule such as `s ::= s s | "a"` would have another frame, and each of its frames another return
// edge, with every byte of a text.
void Compactor::merge(Stack& stack, Threads& threads, const Program& program, Allowance& allowance) {
  const std::vector<std::uint32_t> alike = find_alike(stack, threads, allowance);
  Copy(stack, program, alike, renumbered_, fresh_).run(threads);
  std::swap(stack, fresh_);
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
}

}  // namespace quire::grammar
