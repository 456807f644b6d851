// Lent: borrows a container of its owner during a call: empty, with the memory that earlier calls left. One thread at a
// time. Invariant: a nested call that borrows the same container gets an empty one without memory.
#pragma once

#include <utility>

namespace quire::grammar {

template <class Container>
class Lent {
 public:
  explicit Lent(Container& owner) : owner_(owner), lent_(std::exchange(owner, {})) { lent_.clear(); }
  ~Lent() { owner_ = std::move(lent_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  Container& operator*() { return lent_; }
  Container* operator->() { return &lent_; }

 private:
  Container& owner_;
  Container lent_;
};

}  // namespace quire::grammar
