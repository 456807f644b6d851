#include "server/run/media_service.h"

#include <atomic>
#include <exception>

#include "core/base/log.h"
#include "server/media/media_fetch.h"
#include "server/modules/modules.h"
#include "server/run/batch_service.h"

namespace quire {

namespace {

// Runs work that may throw; whatever it throws becomes the piece's error.
template <class T>
Result<T> guarded_piece(const std::function<Result<T>()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return failure(ErrorKind::kUnavailable, "There is no memory for this image or file", "server_overloaded");
  } catch (const std::exception& failed) {
    log::error("an image or file could not be read: {}", failed.what());
    return failure(ErrorKind::kInternal, "The image or file could not be read", "internal_error");
  }
}

}  // namespace

MediaService::MediaService(const MediaOptions& options, BatchService* batches)
    : options_(options), batches_(batches), store_(std::make_shared<MediaStore>(options.memory)), pool_(options) {}

Result<MediaBytes> MediaService::load(CallMedia& media, const MediaSource& source) {
  auto bytes = source.kind == MediaSource::Kind::kFile ? read_media_file(source.name, options_)
                                                       : fetch_media(source.name, options_, pool_.cut());
  if (!bytes) return tl::make_unexpected(bytes.error());
  return media.store().hold(*std::move(bytes));
}

// On the batch thread, which alone touches stored files.
void MediaService::load_stored(const std::shared_ptr<CallMedia>& media, const std::string& id,
                               std::function<void()> done) {
  if constexpr (is_built(Module::kBatches)) {
    if (batches_ != nullptr) {
      return batches_->post([this, media, id, done = std::move(done)] {
        const auto read = [&]() -> Result<MediaBytes> {
          BatchStore* const store = batches_->store();
          const StoredFile* const file = store != nullptr ? store->files().find(id, media->key_name()) : nullptr;
          if (file == nullptr) return failure(ErrorKind::kNotFound, "No such File object: " + id, "file_not_found");
          if (file->bytes > options_.max_file_bytes)
            return invalid(
                "the file has more than " + std::to_string(options_.max_file_bytes) + " bytes (media.max_file_bytes)",
                "", "image_too_large");
          auto opened = store->files().open(*file);
          if (!opened) return tl::make_unexpected(opened.error());
          auto bytes = opened->read(0, static_cast<std::size_t>(file->bytes));
          if (!bytes) return tl::make_unexpected(bytes.error());
          return media->store().hold(*std::move(bytes));
        };
        media->set_loaded(id, guarded_piece<MediaBytes>(read));
        done();
      });
    }
  }
  media->set_loaded(id, failure(ErrorKind::kNotFound, "No such File object: " + id, "file_not_found"));
  done();
}

void MediaService::work(const std::shared_ptr<CallMedia>& media, Done done) {
  CallMedia::Work work = media->take_work();
  // The last piece calls back.
  const auto left = std::make_shared<std::atomic<std::size_t>>(work.size());
  const std::function<void()> one_less = [left, done] {
    if (--*left == 0) done(std::nullopt);
  };
  std::vector<TextSchedule::Job> jobs;
  std::vector<std::string> stored;
  for (MediaSource& source : work.loads) {
    if (source.kind == MediaSource::Kind::kStored) {
      stored.push_back(source.name);
      continue;
    }
    jobs.push_back([this, media, source = std::move(source), one_less] {
      if (!media->is_abandoned())
        media->set_loaded(source.name, guarded_piece<MediaBytes>([&] { return load(*media, source); }));
      one_less();
    });
  }
  for (CallMedia::PdfReading& wanted : work.pdfs) {
    jobs.push_back([this, media, wanted = std::move(wanted), one_less] {
      const auto is_cut = [this] { return pool_.cut().stop_requested(); };
      if (!media->is_abandoned())
        media->set_pdf(wanted.key, guarded_piece<MediaPdf>([&] { return read_pdf_file(*media, wanted, is_cut); }));
      one_less();
    });
  }
  for (CallMedia::Preparation& wanted : work.preparations) {
    jobs.push_back([media, wanted = std::move(wanted), one_less] {
      if (!media->is_abandoned())
        media->set_prepared(wanted.key, guarded_piece<MediaPiece>([&] { return prepare_piece(*media, wanted); }));
      one_less();
    });
  }
  if (const auto posted = pool_.post(media->client(), std::move(jobs)); !posted) {
    count_refusal(*store_, posted.error());
    return done(posted.error());
  }
  for (const std::string& id : stored)
    load_stored(media, id, one_less);
}

}  // namespace quire
