// MediaList: the media of a conversation, in the order of its messages, and the marks that stand for them in texts
// until the prompt is cut at them. A mark has a random part, so that no client can write one. One thread at a time;
// meant for text threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/common/field_reader.h"
#include "server/api/common/operation.h"
#include "server/api/common/served_model.h"
#include "server/media/call_media.h"

namespace quire {

struct MediaPart {
  std::string path;       // place in the body, for errors
  std::string type_path;  // path of the member that names its type
  std::string type;
  MediaSource source{};
  PictureSettings settings{};
  std::string uuid{};  // the client's name for it; empty: none
  // Reason of the refusal by a model that reads text only.
  const char* text_only = "this model reads text only";
};

// A part once its file's header was read.
struct MediaRead {
  MediaKey key;
  MediaLayout layout;
  MediaPiece piece;        // null where tokens are only counted
  std::string substitute;  // text in place of a removed piece; empty: not removed
};

class MediaList {
 public:
  // `sight` null: the model reads text only. `most_rows`: bound for each piece that is computed.
  MediaList(std::shared_ptr<const MediaSight> sight, std::shared_ptr<CallMedia> call, std::int64_t most_rows);

  bool can_see() const { return sight_ != nullptr && call_ != nullptr; }
  bool empty() const { return parts_.empty(); }
  std::size_t size() const { return parts_.size(); }
  // Adds the part and returns its mark. An error about the part if the request has too many.
  std::string add(FieldReader& reader, MediaPart part);
  // Joins texts by a line break, and puts marks beside them without one.
  void append(std::string& text, std::string_view more) const;

  // Adds a file that is not a picture and returns its text; in a PDF file's, marks of its pages follow if the model
  // reads pictures. Empty until the file is loaded: the call is read again. Errors stay in the reader.
  std::string add_file(FieldReader& reader, MediaPart part);

  // A URL's bytes or place: data URLs are decoded.
  Result<MediaSource> open_url(std::string_view url) const;
  // Base64 or a data URL.
  Result<MediaSource> open_data(std::string_view text) const;
  // mm_processor_kwargs: for all parts.
  void read_settings(FieldReader& reader);

  // Reads the header of each piece and finds it prepared, once. Pieces that a model cannot see, and stored files that
  // are gone, are left out of `messages`' history and of results of tools, with a warning, and refused elsewhere.
  // False: the error is in the reader; CallMedia::kWanted if the call is to be read again.
  bool read_all(FieldReader& reader, const Json& messages);
  const std::vector<MediaRead>& pieces() const { return read_; }
  bool has_marks(const Json& messages) const;
  // The text with this in place of each mark.
  std::string written(std::string_view text, std::string_view marker) const;

  struct Mark {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t index = 0;  // number of the part
  };
  // The first mark from `from` on; nullopt: none.
  std::optional<Mark> find_mark(std::string_view text, std::size_t from) const;

 private:
  std::optional<MediaRead> read_part(FieldReader& reader, const MediaPart& part);
  std::optional<MediaRead> leave_out(FieldReader& reader, const Json& messages, std::size_t index);
  // A stored file that does not exist.
  bool is_gone(const MediaPart& part) const { return call_ != nullptr && call_->gone(part.source).has_value(); }
  void read_pixels(FieldReader& owner, const char* least, const char* most);
  void read_sides(FieldReader& size) const;
  std::string add_pdf(FieldReader& reader, const MediaPart& part, const MediaBytes& bytes);
  std::optional<MediaBytes> bytes_of(FieldReader& reader, const MediaPart& part);
  std::optional<MediaFile> file_of(FieldReader& reader, const MediaPart& part, MediaBytes& bytes);
  tl::unexpected<Error> counted(const Error& error) const;
  void refuse(FieldReader& reader, const MediaPart& part, const Error& error);
  std::string mark(std::size_t index) const;

  const std::shared_ptr<const MediaSight> sight_;
  const std::shared_ptr<CallMedia> call_;  // null: the list only checks
  const std::int64_t most_rows_;
  const std::string prefix_;
  std::vector<MediaPart> parts_;
  std::vector<MediaRead> read_;
  bool awaits_files_ = false;  // a file's text is not there yet
  PictureSettings settings_;
};

// The list of a call to this model.
std::shared_ptr<MediaList> media_list(const ServedModel& model, const Call& call);

}  // namespace quire
