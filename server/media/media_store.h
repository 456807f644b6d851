// MediaStore: prepared pictures and read PDF files by content, within one budget of memory: those of requests, and the
// most recently used others. Any thread. Invariants: a piece in use by a request is never evicted; once those fill the
// budget, further pieces are refused; a piece is found only within the scope in which it was added.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "core/base/result.h"
#include "core/content/media.h"
#include "core/content/prepared_media.h"
#include "core/model/encode/media_layout.h"
#include "server/media/pdf/pdf_file.h"

namespace quire {

// A picture's file, without its bytes: enough to count its tokens and to find it prepared.
struct MediaFile {
  MediaKey hash;  // hash of the file's bytes
  std::int32_t width = 0;
  std::int32_t height = 0;
};

MediaKey hash_media(std::string_view bytes);
// The key of a piece: its file's hash and how it is to be prepared.
MediaKey media_key(const MediaKey& file, const PictureSettings& settings);

// Why pictures were refused, for the metrics.
enum class MediaRefusal { kFormat, kSize, kBroken, kSlow, kFetch, kOverload, kOther };
inline constexpr std::size_t kNumMediaRefusals = 7;
const char* media_refusal_name(MediaRefusal why);

class MediaStore {
 public:
  explicit MediaStore(std::int64_t budget) : budget_(budget) {}

  // Null: it is not there.
  std::shared_ptr<const PreparedMedia> find(const std::string& scope, const MediaKey& key);
  // Returns the piece to use, which counts against the budget while anything holds it. 503 without room.
  Result<std::shared_ptr<const PreparedMedia>> add(const std::string& scope, const MediaKey& key,
                                                   std::shared_ptr<const PreparedMedia> media, std::int64_t num_bytes);
  // Content of a PDF file, in the same way. `key`: hash of the file and of what was read from it.
  std::shared_ptr<const PdfContent> find_pdf(const std::string& scope, const MediaKey& key);
  Result<std::shared_ptr<const PdfContent>> add_pdf(const std::string& scope, const MediaKey& key, PdfContent content);
  // Bytes of a file that was fetched, counted in the same way.
  Result<std::shared_ptr<const std::string>> hold(std::string bytes);

  // Keep the file behind a name that a client gave a picture.
  void remember(const std::string& scope, const std::string& name, const MediaFile& file);
  std::optional<MediaFile> recall(const std::string& scope, const std::string& name);

  void count_piece() { ++num_pieces_; }
  void count_refusal(MediaRefusal why) { ++num_refused_[static_cast<std::size_t>(why)]; }
  struct Stats {
    std::int64_t num_pieces = 0;
    std::int64_t num_hits = 0;
    std::int64_t num_bytes = 0;
    std::array<std::int64_t, kNumMediaRefusals> num_refused{};
  };
  Stats stats() const;

 private:
  enum class Kind { kPicture, kPdf };
  using Place = std::tuple<Kind, std::string, MediaKey>;
  using Content = std::shared_ptr<const void>;  // PreparedMedia or PdfContent, by the place's kind
  struct Entry {
    Place place;
    Content content;
  };
  struct Remembered {
    std::pair<std::string, std::string> name;
    MediaFile file;
  };
  Content find_content(const Place& place);
  Result<Content> add_content(const Place& place, Content content, std::int64_t num_bytes);
  // Requires the lock. Evicts entries without other users until `num_bytes` more fit; false if they cannot.
  bool make_room(std::int64_t num_bytes);
  std::shared_ptr<void> charge(std::int64_t num_bytes);

  const std::int64_t budget_;
  // Shared with the charges, which may outlive the store.
  const std::shared_ptr<std::atomic<std::int64_t>> used_ = std::make_shared<std::atomic<std::int64_t>>(0);
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first
  std::map<Place, std::list<Entry>::iterator> by_place_;
  std::list<Remembered> names_;  // the most recently used first
  std::map<std::pair<std::string, std::string>, std::list<Remembered>::iterator> by_name_;
  std::atomic<std::int64_t> num_pieces_{0};
  std::atomic<std::int64_t> num_hits_{0};
  std::array<std::atomic<std::int64_t>, kNumMediaRefusals> num_refused_{};
};

}  // namespace quire
