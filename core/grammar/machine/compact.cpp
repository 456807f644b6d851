// Copies the part of a Stack that threads still stand on, so that a long generation does not keep all it ever held.
#include <algorithm>
#include <utility>

#include "core/grammar/machine/machine.h"

namespace quire::grammar {

namespace {

class Compactor {
 public:
  Compactor(const Stack& old, const Program& program)
      : old_(old),
        program_(program),
        frames_(old.frames.size(), kNoIndex),
        texts_(old.texts.size(), kNoIndex),
        used_(old.used.size(), kNoIndex) {
    frames_[kRootFrame] = kRootFrame;
    frames_[kBaseFrame] = kBaseFrame;
    texts_[kEmptyText] = kEmptyText;
  }

  Stack run(Threads& threads) {
    for (const Thread& thread : threads)
      number(thread.frame);
    for (std::size_t i = 0; i < order_.size(); ++i)
      fresh_.frames[frames_[order_[i]]] = copy(old_.frames[order_[i]]);
    for (Thread& thread : threads) {
      thread.frame = frames_[thread.frame];
      thread.text = text(thread.text);
      if (thread.position == Position::kKey || follows_text(thread)) thread.count = text(thread.count);
    }
    return std::move(fresh_);
  }

 private:
  bool follows_text(const Thread& thread) const {
    return thread.position == Position::kString &&
           program_.nodes[thread.shape].strings[thread.string].supply != nullptr;
  }

  // Frames of rules may refer to one another in circles, so they are numbered before they are filled.
  std::uint32_t number(std::uint32_t frame) {
    if (frames_[frame] == kNoIndex) {
      frames_[frame] = fresh_.push(Frame{});
      order_.push_back(frame);
    }
    return frames_[frame];
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
      fresh_.edges.push_back({old_.edges[edge].state, number(old_.edges[edge].parent), result.edges});
      result.edges = static_cast<std::uint32_t>(fresh_.edges.size() - 1);
    }
    result.used = used(frame.used);
    return result;
  }

  std::uint32_t used(std::uint32_t entry) {
    std::vector<std::uint32_t> chain;
    for (; entry != kNoIndex && used_[entry] == kNoIndex; entry = old_.used[entry].next)
      chain.push_back(entry);
    std::uint32_t at = entry == kNoIndex ? kNoIndex : used_[entry];
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      UsedText copied = old_.used[*link];
      copied.text = text(copied.text);
      copied.next = at;
      fresh_.used.push_back(copied);
      at = used_[*link] = static_cast<std::uint32_t>(fresh_.used.size() - 1);
    }
    return at;
  }

  std::uint32_t text(std::uint32_t node) {
    std::vector<std::uint32_t> chain;
    for (; texts_[node] == kNoIndex; node = old_.texts[node].previous)
      chain.push_back(node);
    std::uint32_t at = texts_[node];
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      at = texts_[*link] = fresh_.extend_text(at, old_.texts[*link].last);
    }
    return at;
  }

  const Stack& old_;
  const Program& program_;
  Stack fresh_;
  std::vector<std::uint32_t> frames_;
  std::vector<std::uint32_t> texts_;
  std::vector<std::uint32_t> used_;
  std::vector<std::uint32_t> order_;
};

}  // namespace

void Machine::compact(Threads& threads) {
  stack_ = Compactor(stack_, *program_).run(threads);
}

}  // namespace quire::grammar
