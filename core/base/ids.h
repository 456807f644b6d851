// Distinct integer types for ids, so that a token is never passed for a block. Value types; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace quire {

template <class Tag, class Rep>
struct Id {
  Rep value{};
  constexpr auto operator<=>(const Id&) const = default;
};

using TokenId = Id<struct TokenTag, std::int32_t>;
using BlockId = Id<struct BlockTag, std::int32_t>;
using SequenceId = Id<struct SequenceTag, std::int64_t>;

}  // namespace quire

template <class Tag, class Rep>
struct std::hash<quire::Id<Tag, Rep>> {
  std::size_t operator()(quire::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
