#include <algorithm>
#include <utility>

#include "core/grammar/machine/merging.h"

namespace quire::grammar {

namespace {

// Frames of nested rules need as many iterations as they are deep: beyond this there is little to merge.
constexpr int kMostIterations = 24;

// Splits classes of frames until all frames of a class return to the same states on frames of the same classes.
class Partition {
 public:
  Partition(const Stack& stack, const Threads& threads, Allowance& allowance)
      : stack_(stack), allowance_(allowance), classes_(stack.frames.size(), kNoIndex) {
    for (const Thread& thread : threads)
      reach(thread.frame);
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const Frame& frame = stack.frames[reached_[i]];
      reach(frame.parent);
      for (std::uint32_t edge = frame.edges; edge != kNoIndex; edge = stack.edges[edge].next)
        reach(stack.edges[edge].parent);
    }
  }

  bool settle() {
    for (int iteration = 0; iteration < kMostIterations; ++iteration) {
      if (!split()) return true;
    }
    return false;
  }

  std::vector<std::uint32_t> take() {
    std::vector<std::uint32_t> first(num_classes_, kNoIndex);
    std::vector<std::uint32_t> alike(classes_.size(), kNoIndex);
    for (const std::uint32_t frame : reached_) {
      std::uint32_t& known = first[classes_[frame]];
      known = std::min(known, frame);
    }
    for (const std::uint32_t frame : reached_)
      alike[frame] = first[classes_[frame]];
    alike[kRootFrame] = kRootFrame;
    alike[kBaseFrame] = kBaseFrame;
    return alike;
  }

 private:
  struct Signed {
    std::uint32_t frame;
    std::vector<std::uint64_t> signature;  // its class, then its return edges
  };

  void reach(std::uint32_t frame) {
    if (classes_[frame] != kNoIndex) return;
    // Shared frames are alike until they are found to differ; each other frame has a class of its own.
    classes_[frame] = stack_.frames[frame].kind == FrameKind::kShared ? 0 : num_classes_++;
    reached_.push_back(frame);
  }

  // Splits classes by return edges; true if there are more classes now.
  bool split() {
    std::vector<Signed> all;
    for (const std::uint32_t frame : reached_) {
      if (stack_.frames[frame].kind != FrameKind::kShared) continue;
      all.push_back({frame, {classes_[frame]}});
      std::vector<std::uint64_t>& ways = all.back().signature;
      for (std::uint32_t edge = stack_.frames[frame].edges; edge != kNoIndex; edge = stack_.edges[edge].next)
        ways.push_back(std::uint64_t{stack_.edges[edge].state} << 32 | classes_[stack_.edges[edge].parent]);
      allowance_.spend(1 + ways.size());
      std::sort(ways.begin() + 1, ways.end());
      ways.erase(std::unique(ways.begin() + 1, ways.end()), ways.end());
    }
    std::sort(all.begin(), all.end(), [](const Signed& a, const Signed& b) { return a.signature < b.signature; });
    const std::uint32_t before = num_classes_;
    for (std::size_t i = 1; i < all.size(); ++i) {
      const Signed& last = all[i - 1];
      if (all[i].signature == last.signature) {
        classes_[all[i].frame] = classes_[last.frame];
      } else if (all[i].signature[0] == last.signature[0]) {
        classes_[all[i].frame] = num_classes_++;
      }
    }
    return num_classes_ > before;
  }

  const Stack& stack_;
  Allowance& allowance_;
  std::vector<std::uint32_t> classes_;
  std::vector<std::uint32_t> reached_;
  std::uint32_t num_classes_ = 1;
};

}  // namespace

std::vector<std::uint32_t> find_alike(const Stack& stack, const Threads& threads, Allowance& allowance) {
  Partition partition(stack, threads, allowance);
  return partition.settle() ? partition.take() : std::vector<std::uint32_t>();
}

}  // namespace quire::grammar
