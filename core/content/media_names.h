// MediaNames: gives each row of a piece of media an id of its own beside the tokens' ids, so that tokens and rows are
// compared as plain numbers: equal ids are equal content. Engine thread only. Ids are below kFirstPlainId and are valid
// in this process only; PortableContent is the same content for other processes.
// Invariants: a piece has one range of ids while it has users; rows of a piece stand in the order of the piece, so that
// a stretch of rows ends where the next row is not its successor.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/content/media.h"

namespace quire {

inline constexpr std::int32_t kFirstPlainId = -(std::int32_t{1} << 30);

constexpr bool is_media(TokenId id) {
  return id.value < kFirstPlainId;
}
bool has_media(std::span<const TokenId> content);

// The row of a piece in PortableContent.
constexpr TokenId portable_row(std::int64_t row) {
  return TokenId{static_cast<std::int32_t>(std::numeric_limits<std::int32_t>::min() + row)};
}

// Tokens and portable rows, with the piece of each stretch of rows in order.
struct PortableContent {
  std::vector<TokenId> tokens{};
  std::vector<MediaRef> media{};

  bool operator==(const PortableContent&) const = default;
};

// A token's id in the model's arrays; rows of media have embeddings instead.
constexpr std::int32_t input_id(TokenId id) {
  return is_media(id) ? 0 : id.value;
}

class MediaNames {
 public:
  // Consecutive rows of one piece.
  struct Stretch {
    std::size_t begin;  // index in the content
    std::size_t count;
    MediaRef media;
    TokenId first_row;  // id of the piece's first row
    std::int64_t row;   // number of the first row in the piece
  };

  // Adds a user of the piece; returns the id of its first row; further rows have the following ids. Throws
  // std::bad_alloc, also if all ids are in use.
  TokenId acquire(const MediaRef& media);
  void release(TokenId first_row);
  // Adds each stretch as a user of its piece. Allocates nothing.
  void add_users(std::span<const TokenId> content);
  void drop_users(std::span<const TokenId> content);

  // Calls visit(const Stretch&) for each in order.
  template <class Visit>
  void visit(std::span<const TokenId> content, Visit&& visit) const;
  std::size_t num_stretches(std::span<const TokenId> content) const;

  // Turns the stretch's rows in `content` into portable rows.
  static void make_portable(const Stretch& stretch, std::span<TokenId> content);
  PortableContent exported(std::span<const TokenId> content) const;
  // Makes content portable in place, and drops its users; `media`, empty, has room for its stretches.
  void export_and_drop(std::span<TokenId> content, std::vector<MediaRef>& media);
  // The ids of portable content, with a user of each stretch's piece; nothing if rows and pieces do not match.
  std::optional<std::vector<TokenId>> imported(const PortableContent& content);

  std::size_t num_pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    MediaRef media;
    std::int64_t num_users = 0;
  };
  using Pieces = std::map<std::int32_t, Piece>;  // keys: ids of first rows

  Pieces::const_iterator piece_of(TokenId id) const;
  std::int32_t free_range(std::int64_t num_rows) const;

  Pieces pieces_;
  std::map<MediaRef, std::int32_t> first_ids_;
  std::int32_t next_ = std::numeric_limits<std::int32_t>::min();  // start of the search for a free range
};

// Holds users of pieces, and drops them when destroyed.
class HeldMedia {
 public:
  explicit HeldMedia(MediaNames& names) : names_(names) {}
  HeldMedia(const HeldMedia&) = delete;
  HeldMedia& operator=(const HeldMedia&) = delete;
  ~HeldMedia() {
    for (const TokenId first_row : first_rows_)
      names_.release(first_row);
  }
  TokenId acquire(const MediaRef& media);

 private:
  MediaNames& names_;
  std::vector<TokenId> first_rows_;
};

template <class Visit>
void MediaNames::visit(std::span<const TokenId> content, Visit&& visit) const {
  for (std::size_t begin = 0, end = 0; begin < content.size(); begin = end) {
    end = begin + 1;
    if (!is_media(content[begin])) continue;
    const auto piece = piece_of(content[begin]);
    const std::int64_t row = std::int64_t{content[begin].value} - piece->first;
    while (end < content.size() && content[end].value == content[end - 1].value + 1 &&
           row + static_cast<std::int64_t>(end - begin) < piece->second.media.num_rows) {
      ++end;
    }
    visit(Stretch{begin, end - begin, piece->second.media, TokenId{piece->first}, row});
  }
}

}  // namespace quire
