#include "server/media/media_store.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <utility>

namespace quire {

namespace {

constexpr std::size_t kMostNames = 4096;

// "The server holds too many pictures": the same refusal as that of a full queue.
tl::unexpected<Error> no_room() {
  return tl::make_unexpected(Error{ErrorKind::kUnavailable,
                                   "The pictures of the requests under way fill media.memory; try again later",
                                   "server_overloaded", "", std::chrono::seconds(2)});
}

MediaKey key_of(const XXH128_hash_t& hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

const char* media_refusal_name(MediaRefusal why) {
  switch (why) {
    case MediaRefusal::kFormat: return "format";
    case MediaRefusal::kSize: return "size";
    case MediaRefusal::kBroken: return "invalid";
    case MediaRefusal::kSlow: return "timeout";
    case MediaRefusal::kFetch: return "fetch";
    case MediaRefusal::kOverload: return "overload";
    case MediaRefusal::kOther: return "other";
  }
  return "other";
}

MediaKey hash_media(std::string_view bytes) {
  return key_of(XXH3_128bits(bytes.data(), bytes.size()));
}

MediaKey media_key(const MediaKey& file, const PictureSettings& settings) {
  const std::string text = fmt::format("{:016x}{:016x} {} {} {}", file.high, file.low, settings.min_pixels.value_or(-1),
                                       settings.max_pixels.value_or(-1), static_cast<int>(settings.detail));
  return hash_media(text);
}

MediaStore::Content MediaStore::find_content(const Place& place) {
  const std::lock_guard lock(mutex_);
  const auto found = by_place_.find(place);
  if (found == by_place_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->content;
}

std::shared_ptr<const PreparedMedia> MediaStore::find(const std::string& scope, const MediaKey& key) {
  auto found = find_content({Kind::kPicture, scope, key});
  if (found != nullptr) ++num_hits_;
  return std::static_pointer_cast<const PreparedMedia>(std::move(found));
}

std::shared_ptr<const PdfContent> MediaStore::find_pdf(const std::string& scope, const MediaKey& key) {
  return std::static_pointer_cast<const PdfContent>(find_content({Kind::kPdf, scope, key}));
}

bool MediaStore::make_room(std::int64_t num_bytes) {
  for (auto last = entries_.end(); last != entries_.begin() && *used_ + num_bytes > budget_;) {
    --last;
    if (last->content.use_count() > 1) continue;
    by_place_.erase(last->place);
    last = entries_.erase(last);
  }
  return *used_ + num_bytes <= budget_;
}

std::shared_ptr<void> MediaStore::charge(std::int64_t num_bytes) {
  *used_ += num_bytes;
  return {nullptr, [used = used_, num_bytes](void*) { *used -= num_bytes; }};
}

Result<MediaStore::Content> MediaStore::add_content(const Place& place, Content content, std::int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_place_.find(place); found != by_place_.end()) return found->second->content;
  if (!make_room(num_bytes)) return no_room();
  const void* const pointer = content.get();
  Content counted(pointer, [content = std::move(content), charged = charge(num_bytes)](const void*) {});
  std::list<Entry> one(1, Entry{place, counted});
  by_place_.emplace(place, one.begin());
  entries_.splice(entries_.begin(), one);
  return counted;
}

Result<std::shared_ptr<const PreparedMedia>> MediaStore::add(const std::string& scope, const MediaKey& key,
                                                             std::shared_ptr<const PreparedMedia> media,
                                                             std::int64_t num_bytes) {
  auto added = add_content({Kind::kPicture, scope, key}, std::move(media), num_bytes);
  if (!added) return tl::make_unexpected(added.error());
  return std::static_pointer_cast<const PreparedMedia>(*std::move(added));
}

Result<std::shared_ptr<const PdfContent>> MediaStore::add_pdf(const std::string& scope, const MediaKey& key,
                                                              PdfContent content) {
  const std::int64_t num_bytes = content.num_bytes();
  auto added = add_content({Kind::kPdf, scope, key}, std::make_shared<const PdfContent>(std::move(content)), num_bytes);
  if (!added) return tl::make_unexpected(added.error());
  return std::static_pointer_cast<const PdfContent>(*std::move(added));
}

Result<std::shared_ptr<const std::string>> MediaStore::hold(std::string bytes) {
  const std::lock_guard lock(mutex_);
  const auto num_bytes = static_cast<std::int64_t>(bytes.size());
  if (!make_room(num_bytes)) return no_room();
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return std::shared_ptr<const std::string>(kept.get(), [kept, charged = charge(num_bytes)](const std::string*) {});
}

void MediaStore::remember(const std::string& scope, const std::string& name, const MediaFile& file) {
  const std::lock_guard lock(mutex_);
  const std::pair key(scope, name);
  std::list<Remembered> one(1, Remembered{key, file});
  const auto [place, is_new] = by_name_.try_emplace(key, one.begin());
  if (!is_new) names_.erase(std::exchange(place->second, one.begin()));
  names_.splice(names_.begin(), one);
  if (names_.size() <= kMostNames) return;
  by_name_.erase(names_.back().name);
  names_.pop_back();
}

std::optional<MediaFile> MediaStore::recall(const std::string& scope, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find({scope, name});
  if (found == by_name_.end()) return std::nullopt;
  names_.splice(names_.begin(), names_, found->second);
  return found->second->file;
}

MediaStore::Stats MediaStore::stats() const {
  Stats stats{num_pieces_, num_hits_, *used_, {}};
  for (std::size_t i = 0; i < kNumMediaRefusals; ++i)
    stats.num_refused[i] = num_refused_[i];
  return stats;
}

}  // namespace quire
