// TokenRun: the tokens of an output event, normally one, several if a grammar forces them: the first kInside lie in the
// object itself, so that sending them allocates nothing. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/base/ids.h"

namespace quire {

class TokenRun {
 public:
  using value_type = TokenId;

  void push_back(TokenId token) {
    if (size_ == kInside) spilled_.assign(inside_.begin(), inside_.end());
    if (size_ < kInside) {
      inside_[size_] = token;
    } else {
      spilled_.push_back(token);
    }
    ++size_;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const TokenId* data() const { return size_ <= kInside ? inside_.data() : spilled_.data(); }
  const TokenId* begin() const { return data(); }
  const TokenId* end() const { return data() + size_; }
  const TokenId& operator[](std::size_t i) const { return data()[i]; }

 private:
  static constexpr std::size_t kInside = 24;
  std::array<TokenId, kInside> inside_{};
  std::vector<TokenId> spilled_;  // all tokens, if there are more than kInside
  std::size_t size_ = 0;
};

}  // namespace quire
