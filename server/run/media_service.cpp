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

// Calls back once for a call's pieces: when the last one is done, or when memory ran out for one.
class Pieces {
 public:
  Pieces(std::size_t num_pieces, MediaService::Done done)
      : num_left_(num_pieces), done_(std::move(done)), no_memory_(out_of_memory()) {}

  void finish(const std::function<void()>& piece) noexcept {
    try {
      piece();
    } catch (...) {
      if (!has_failed_.exchange(true)) done_(std::move(no_memory_));
    }
    if (--num_left_ == 0 && !has_failed_) done_(std::nullopt);
  }

 private:
  std::atomic<std::size_t> num_left_;
  std::atomic<bool> has_failed_{false};
  const MediaService::Done done_;
  std::optional<Error> no_memory_;  // made in advance, while there is memory
};

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
Result<MediaBytes> MediaService::load_stored(CallMedia& media, const std::string& id) {
  if constexpr (is_built(Module::kBatches)) {
    BatchStore* const store = batches_ != nullptr ? batches_->store() : nullptr;
    const StoredFile* const file = store != nullptr ? store->files().find(id, media.key_name()) : nullptr;
    if (file == nullptr) return failure(ErrorKind::kNotFound, "No such File object: " + id, "file_not_found");
    if (file->bytes > options_.max_file_bytes) {
      return invalid(
          "the file has more than " + std::to_string(options_.max_file_bytes) + " bytes (media.max_file_bytes)", "",
          "image_too_large");
    }
    auto opened = store->files().open(*file);
    if (!opened) return tl::make_unexpected(opened.error());
    auto bytes = opened->read(0, static_cast<std::size_t>(file->bytes));
    if (!bytes) return tl::make_unexpected(bytes.error());
    return media.store().hold(*std::move(bytes));
  }
  return failure(ErrorKind::kNotFound, "No such File object: " + id, "file_not_found");
}

void MediaService::post_stored(std::function<void()> job) {
  if constexpr (is_built(Module::kBatches)) {
    if (batches_ != nullptr) return batches_->post(std::move(job));
  }
  job();
}

void MediaService::work(const std::shared_ptr<CallMedia>& media, Done done) {
  CallMedia::Work work = media->take_work();
  const auto pieces = std::make_shared<Pieces>(work.size(), done);
  std::vector<TextSchedule::Job> jobs;
  std::vector<TextSchedule::Job> stored;
  const auto add = [&](std::vector<TextSchedule::Job>& to, std::function<void()> piece) {
    to.push_back([media, pieces, piece = std::move(piece)] {
      pieces->finish([&] {
        if (!media->is_abandoned()) piece();
      });
    });
  };
  for (const MediaSource& source : work.loads) {
    const bool is_stored = source.kind == MediaSource::Kind::kStored;
    add(is_stored ? stored : jobs, [this, media, source, is_stored] {
      const auto read = [&] { return is_stored ? load_stored(*media, source.name) : load(*media, source); };
      media->set_loaded(source.name, guarded_piece<MediaBytes>(read));
    });
  }
  for (const CallMedia::PdfReading& wanted : work.pdfs) {
    add(jobs, [this, media, wanted] {
      const auto is_cut = [this] { return pool_.cut().stop_requested(); };
      media->set_pdf(wanted.key, guarded_piece<MediaPdf>([&] { return read_pdf_file(*media, wanted, is_cut); }));
    });
  }
  for (const CallMedia::Preparation& wanted : work.preparations) {
    add(jobs, [media, wanted] {
      media->set_prepared(wanted.key, guarded_piece<MediaPiece>([&] { return prepare_piece(*media, wanted); }));
    });
  }
  if (const auto posted = pool_.post(media->client(), std::move(jobs)); !posted) {
    count_refusal(*store_, posted.error());
    return done(posted.error());
  }
  for (TextSchedule::Job& job : stored)
    post_stored(std::move(job));
}

}  // namespace quire
