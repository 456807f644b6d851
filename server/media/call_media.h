// CallMedia: the pieces of media of one call while its body is read. Reading lists pieces that are not loaded yet; the
// call's session has them loaded and prepared on media threads, and then the body is read again. One thread at a time
// reads; any thread may set results. MediaSource: a piece's origin.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/media/media_options.h"
#include "server/media/media_sight.h"
#include "server/media/media_store.h"

namespace quire {

struct MediaSource {
  enum class Kind { kBytes, kUrl, kFile, kStored };
  Kind kind = Kind::kBytes;
  std::shared_ptr<const std::string> bytes{};  // kBytes
  std::string name{};                          // a URL, or a stored file's id
};

using MediaBytes = std::shared_ptr<const std::string>;
using MediaPiece = std::shared_ptr<const PreparedMedia>;
using MediaPdf = std::shared_ptr<const PdfContent>;

class CallMedia {
 public:
  // Error code of a call that must be read again once its media are loaded; it never leaves the server.
  static constexpr const char* kWanted = "media_wanted";

  // `client`: media are counted per client. `computes`: false for calls that only count tokens.
  CallMedia(std::shared_ptr<MediaStore> store, const MediaOptions& options, std::string key_name, std::string client,
            bool computes)
      : store_(std::move(store)),
        options_(options),
        key_name_(std::move(key_name)),
        client_(std::move(client)),
        computes_(computes) {}

  const MediaOptions& options() const { return options_; }
  MediaStore& store() { return *store_; }
  const std::string& client() const { return client_; }
  const std::string& key_name() const { return key_name_; }
  bool computes() const { return computes_; }
  // The scope in which pieces prepared for this model are found.
  std::string scope(const MediaSight& sight) const { return sight.name + '\n' + shared_scope(); }
  // The scope of content that does not depend on a model.
  std::string shared_scope() const { return options_.isolates_keys ? key_name_ : std::string(); }
  // The scope of names that clients give: always a key's own.
  std::string name_scope() const { return key_name_; }

  // Place of the bytes that a text of the body (base64, a data URL) was decoded to; null: none yet.
  MediaBytes& decoded(std::string_view text);

  // Null: not loaded yet; the piece is then listed as wanted.
  const Result<MediaBytes>* loaded(const MediaSource& source);
  // The error of a stored file that does not exist; nullopt: it does, or was not wanted yet.
  std::optional<Error> gone(const MediaSource& source) const;
  const Result<MediaPiece>* prepared(const MediaKey& key, const MediaBytes& bytes, const PictureSettings& settings,
                                     const std::shared_ptr<const MediaSight>& sight);
  // `with_pages`: renders its pages as pictures too.
  const Result<MediaPdf>* pdf(const MediaBytes& bytes, bool with_pages);

  struct PdfReading {
    MediaKey key;
    MediaBytes bytes;
    bool with_pages = false;
  };
  struct Preparation {
    MediaKey key;
    MediaBytes bytes;
    PictureSettings settings;
    std::shared_ptr<const MediaSight> sight;
  };
  struct Work {
    std::vector<MediaSource> loads;
    std::vector<PdfReading> pdfs;
    std::vector<Preparation> preparations;
    std::size_t size() const { return loads.size() + pdfs.size() + preparations.size(); }
  };
  bool wants() const { return work_.size() > 0; }
  Work take_work() { return std::exchange(work_, {}); }

  // The client has left: work that has not begun is dropped.
  void abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }

  void set_loaded(const std::string& name, Result<MediaBytes> bytes);
  void set_prepared(const MediaKey& key, Result<MediaPiece> piece);
  void set_pdf(const MediaKey& key, Result<MediaPdf> pdf);

 private:
  const std::shared_ptr<MediaStore> store_;
  const MediaOptions options_;
  const std::string key_name_;
  const std::string client_;
  const bool computes_;
  std::atomic<bool> is_abandoned_{false};
  std::map<MediaKey, MediaBytes> decoded_;  // keys: hashes of texts
  Work work_;
  mutable std::mutex mutex_;
  std::map<std::string, Result<MediaBytes>> loaded_;
  std::map<MediaKey, Result<MediaPiece>> prepared_;
  std::map<MediaKey, Result<MediaPdf>> pdfs_;
};

// The call must be read again.
Error media_wanted();

// Decodes and prepares one piece; on a media thread. Counts it.
Result<MediaPiece> prepare_piece(CallMedia& media, const CallMedia::Preparation& wanted);

// Reads one PDF file; on a media thread. `is_cut`: the server stops.
Result<MediaPdf> read_pdf_file(CallMedia& media, const CallMedia::PdfReading& wanted,
                               const std::function<bool()>& is_cut);

// Counts a refusal by its code.
void count_refusal(MediaStore& store, const Error& error);

}  // namespace quire
