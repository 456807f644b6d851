// KeptMedia: results of pieces of media by name, within a budget; the least recently used are dropped. One thread at a
// time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/content/media.h"

namespace quire {

// A piece, and the salt of the requests that may share it.
using MediaName = std::pair<std::string, MediaKey>;
// The name in a look-up, which takes no memory.
using MediaNameView = std::pair<std::string_view, MediaKey>;

template <class Result>
class KeptMedia {
 public:
  explicit KeptMedia(std::int64_t budget) : budget_(budget) {}

  // Null: it is not there. The result counts as used.
  const Result* find(const MediaNameView& name) {
    const auto found = kept_.find(name);
    if (found == kept_.end()) return nullptr;
    order_.splice(order_.end(), order_, found->second.place);
    return &found->second.result;
  }

  // Keeps the result unless it alone exceeds the budget.
  void keep(const MediaName& name, Result result, std::int64_t size) {
    if (size > budget_ || kept_.contains(name)) return;
    while (used_ + size > budget_) {
      const auto oldest = kept_.find(order_.front());
      used_ -= oldest->second.size;
      kept_.erase(oldest);
      order_.pop_front();
    }
    std::list<MediaName> one(1, name);
    kept_.emplace(name, Kept{std::move(result), size, one.begin()});
    order_.splice(order_.end(), one);
    used_ += size;
  }

 private:
  struct Kept {
    Result result;
    std::int64_t size;
    std::list<MediaName>::iterator place;
  };
  struct Before {
    using is_transparent = void;
    bool operator()(const MediaNameView& a, const MediaNameView& b) const { return a < b; }
  };
  const std::int64_t budget_;
  std::map<MediaName, Kept, Before> kept_;
  std::list<MediaName> order_;  // least recently used first
  std::int64_t used_ = 0;
};

}  // namespace quire
