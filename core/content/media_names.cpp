#include "core/content/media_names.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "kernels/check.h"

namespace quire {

bool has_media(std::span<const TokenId> content) {
  return std::ranges::any_of(content, is_media);
}

TokenId MediaNames::acquire(const MediaRef& media) {
  const auto known = first_ids_.find(media);
  if (known != first_ids_.end()) {
    ++pieces_.at(known->second).num_users;
    return TokenId{known->second};
  }
  const std::int32_t first = free_range(media.num_rows);
  const auto piece = pieces_.emplace(first, Piece{media, 1}).first;
  try {
    first_ids_.emplace(media, first);
  } catch (...) {
    pieces_.erase(piece);
    throw;
  }
  next_ = static_cast<std::int32_t>(first + media.num_rows);
  return TokenId{first};
}

// The first free range after `next_`, or else after the lowest id.
std::int32_t MediaNames::free_range(std::int64_t num_rows) const {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int32_t>::min();
  for (std::int64_t start : {std::int64_t{next_}, kLowest}) {
    auto after = pieces_.lower_bound(static_cast<std::int32_t>(start));
    if (after != pieces_.begin()) {
      const auto before = std::prev(after);
      start = std::max(start, before->first + before->second.media.num_rows);
    }
    for (; after != pieces_.end() && after->first < start + num_rows; ++after)
      start = after->first + after->second.media.num_rows;
    if (start + num_rows <= kFirstPlainId) return static_cast<std::int32_t>(start);
  }
  throw std::bad_alloc();
}

MediaNames::Pieces::const_iterator MediaNames::piece_of(TokenId id) const {
  const auto after = pieces_.upper_bound(id.value);
  QUIRE_CHECK(after != pieces_.begin(), "an id of media belongs to a piece");
  const auto piece = std::prev(after);
  QUIRE_CHECK(id.value - std::int64_t{piece->first} < piece->second.media.num_rows,
              "an id of media belongs to a piece that has users");
  return piece;
}

void MediaNames::release(TokenId first_row) {
  const auto piece = pieces_.find(first_row.value);
  QUIRE_CHECK(piece != pieces_.end(), "a piece is released once for each user");
  if (--piece->second.num_users > 0) return;
  first_ids_.erase(piece->second.media);
  pieces_.erase(piece);
}

void MediaNames::add_users(std::span<const TokenId> content) {
  visit(content, [&](const Stretch& stretch) { ++pieces_.find(stretch.first_row.value)->second.num_users; });
}

void MediaNames::drop_users(std::span<const TokenId> content) {
  visit(content, [&](const Stretch& stretch) { release(stretch.first_row); });
}

std::size_t MediaNames::num_stretches(std::span<const TokenId> content) const {
  std::size_t count = 0;
  visit(content, [&](const Stretch&) { ++count; });
  return count;
}

void MediaNames::make_portable(const Stretch& stretch, std::span<TokenId> content) {
  for (std::size_t i = 0; i < stretch.count; ++i)
    content[stretch.begin + i] = portable_row(stretch.row + static_cast<std::int64_t>(i));
}

PortableContent MediaNames::exported(std::span<const TokenId> content) const {
  PortableContent portable{.tokens = {content.begin(), content.end()}};
  visit(content, [&](const Stretch& stretch) {
    portable.media.push_back(stretch.media);
    make_portable(stretch, portable.tokens);
  });
  return portable;
}

void MediaNames::export_and_drop(std::span<TokenId> content, std::vector<MediaRef>& media) {
  visit(content, [&](const Stretch& stretch) {
    media.push_back(stretch.media);
    make_portable(stretch, content);
    release(stretch.first_row);
  });
}

std::optional<std::vector<TokenId>> MediaNames::imported(const PortableContent& content) {
  std::vector<TokenId> ids = content.tokens;
  HeldMedia held(*this);
  std::size_t num_media = 0;
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    end = begin + 1;
    if (!is_media(ids[begin])) continue;
    const std::int64_t row = std::int64_t{ids[begin].value} - portable_row(0).value;
    while (end < ids.size() && content.tokens[end].value == content.tokens[end - 1].value + 1)
      ++end;
    if (num_media == content.media.size()) return std::nullopt;
    const MediaRef& media = content.media[num_media++];
    const std::int64_t most_rows = std::int64_t{kFirstPlainId} - portable_row(0).value;
    const auto count = static_cast<std::int64_t>(end - begin);
    if (media.num_rows <= 0 || media.num_rows > most_rows || row + count > media.num_rows) return std::nullopt;
    const TokenId first = held.acquire(media);
    for (std::int64_t i = 0; i < count; ++i)
      ids[begin + static_cast<std::size_t>(i)].value = static_cast<std::int32_t>(first.value + row + i);
  }
  if (num_media != content.media.size()) return std::nullopt;
  add_users(ids);
  return ids;
}

TokenId HeldMedia::acquire(const MediaRef& media) {
  first_rows_.reserve(first_rows_.size() + 1);
  first_rows_.push_back(names_.acquire(media));
  return first_rows_.back();
}

}  // namespace quire
