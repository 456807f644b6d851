#include "server/media/call_media.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/content/picture.h"
#include "server/media/decode/picture_file.h"
#include "server/media/media_sight.h"

namespace quire {

MediaBytes& CallMedia::decoded(std::string_view text) {
  return decoded_[hash_media(text)];
}

const Result<MediaBytes>* CallMedia::loaded(const MediaSource& source) {
  const std::lock_guard lock(mutex_);
  if (const auto found = loaded_.find(source.name); found != loaded_.end()) return &found->second;
  if (std::ranges::find(work_.loads, source.name, &MediaSource::name) == work_.loads.end())
    work_.loads.push_back(source);
  return nullptr;
}

std::optional<Error> CallMedia::gone(const MediaSource& source) const {
  const std::lock_guard lock(mutex_);
  const auto found = loaded_.find(source.name);
  const bool is_gone = source.kind == MediaSource::Kind::kStored && found != loaded_.end() && !found->second &&
                       found->second.error().kind == ErrorKind::kNotFound;
  return is_gone ? std::optional(found->second.error()) : std::nullopt;
}

const Result<MediaPiece>* CallMedia::prepared(const MediaKey& key, const MediaBytes& bytes,
                                              const PictureSettings& settings,
                                              const std::shared_ptr<const MediaSight>& sight) {
  const std::lock_guard lock(mutex_);
  if (const auto found = prepared_.find(key); found != prepared_.end()) return &found->second;
  if (auto kept = store_->find(scope(*sight), key)) return &prepared_.emplace(key, std::move(kept)).first->second;
  if (std::ranges::find(work_.preparations, key, &Preparation::key) == work_.preparations.end())
    work_.preparations.push_back({key, bytes, settings, sight});
  return nullptr;
}

const Result<MediaPdf>* CallMedia::pdf(const MediaBytes& bytes, bool with_pages) {
  const MediaKey file = hash_media(*bytes);
  const MediaKey key = hash_media(fmt::format("{:016x}{:016x} pdf {}", file.high, file.low, with_pages));
  const std::lock_guard lock(mutex_);
  if (const auto found = pdfs_.find(key); found != pdfs_.end()) return &found->second;
  if (auto kept = store_->find_pdf(shared_scope(), key)) return &pdfs_.emplace(key, std::move(kept)).first->second;
  if (std::ranges::find(work_.pdfs, key, &PdfReading::key) == work_.pdfs.end())
    work_.pdfs.push_back({key, bytes, with_pages});
  return nullptr;
}

void CallMedia::set_loaded(const std::string& name, Result<MediaBytes> bytes) {
  const std::lock_guard lock(mutex_);
  loaded_.insert_or_assign(name, std::move(bytes));
}

void CallMedia::set_prepared(const MediaKey& key, Result<MediaPiece> piece) {
  const std::lock_guard lock(mutex_);
  prepared_.insert_or_assign(key, std::move(piece));
}

void CallMedia::set_pdf(const MediaKey& key, Result<MediaPdf> pdf) {
  const std::lock_guard lock(mutex_);
  pdfs_.insert_or_assign(key, std::move(pdf));
}

Error media_wanted() {
  return Error{ErrorKind::kInternal, "The request waits for its pictures", CallMedia::kWanted, "", std::nullopt};
}

Result<MediaPiece> prepare_piece(CallMedia& media, const CallMedia::Preparation& wanted) {
  const MediaOptions& options = media.options();
  const PictureLimits limits{options.max_pixels, std::chrono::steady_clock::now() + options.max_decode_time,
                             wanted.sight->reads_as_stored};
  if (wanted.bytes == nullptr)
    return invalid("the image is not remembered any more: send it again", "", "image_not_remembered");
  const auto picture = decode_picture(*wanted.bytes, limits);
  if (!picture) return tl::make_unexpected(picture.error());
  auto piece = wanted.sight->prepare(*picture, wanted.settings);
  const auto num_bytes = static_cast<std::int64_t>(piece != nullptr ? piece->num_bytes() : 0);
  auto kept = media.store().add(media.scope(*wanted.sight), wanted.key, std::move(piece), num_bytes);
  if (kept) media.store().count_piece();
  return kept;
}

Result<MediaPdf> read_pdf_file(CallMedia& media, const CallMedia::PdfReading& wanted,
                               const std::function<bool()>& is_cut) {
  const auto is_unwanted = [&] { return media.is_abandoned() || is_cut(); };
  auto content = read_pdf(*wanted.bytes, media.options().pdf, wanted.with_pages, is_unwanted);
  if (!content) return tl::make_unexpected(content.error());
  return media.store().add_pdf(media.shared_scope(), wanted.key, *std::move(content));
}

void count_refusal(MediaStore& store, const Error& error) {
  using Reason = std::pair<std::string_view, MediaRefusal>;
  constexpr std::array kReasons = {
      Reason{kUnknownFormat, MediaRefusal::kFormat},
      Reason{kTooLargePicture, MediaRefusal::kSize},
      Reason{kBrokenPicture, MediaRefusal::kBroken},
      Reason{kSlowPicture, MediaRefusal::kSlow},
      Reason{kBrokenPdf, MediaRefusal::kBroken},
      Reason{kTooLargePdf, MediaRefusal::kSize},
      Reason{kSlowPdf, MediaRefusal::kSlow},
      Reason{kPdfNotRead, MediaRefusal::kFormat},
      Reason{"invalid_base64", MediaRefusal::kBroken},
      Reason{"invalid_url", MediaRefusal::kBroken},
      Reason{"image_url_failed", MediaRefusal::kFetch},
      Reason{"image_url_not_allowed", MediaRefusal::kFetch},
      Reason{"server_overloaded", MediaRefusal::kOverload},
      Reason{"rate_limit_exceeded", MediaRefusal::kOverload},
  };
  const auto found = std::ranges::find(kReasons, error.code, &Reason::first);
  store.count_refusal(found != kReasons.end() ? found->second : MediaRefusal::kOther);
}

}  // namespace quire
