#include "server/api/conversation/media_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/base/ascii.h"
#include "core/text/unicode.h"
#include "server/api/fields/generation.h"
#include "server/media/data_url.h"
#include "server/media/decode/picture_file.h"
#include "server/media/media_fetch.h"
#include "server/media/media_sight.h"
#include "server/modules/modules.h"

namespace quire {

namespace {

constexpr std::string_view kMarkEnd = "e";
constexpr std::int64_t kMostKwargPixels = std::int64_t{1} << 40;
constexpr const char* kSubstitute = "[an image was left out: this model reads text only]";
constexpr const char* kGone = "[a file was left out: it was deleted or has expired]";

// Pictures in the last message of a user belong to the present question.
bool is_current(const Json& messages, std::string_view mark) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if ((*message)["role"] != "user") continue;
    const Json& content = (*message)["content"];
    return content.is_string() && content.get_ref<const std::string&>().find(mark) != std::string::npos;
  }
  return true;
}

void refuse_others(FieldReader& owner, const Json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) == known.end())
      owner.fail(name, fmt::format("'{}' is not supported: there are {}", owner.path(name), fmt::join(known, ", ")),
                 "unsupported_parameter");
  }
}

}  // namespace

MediaList::MediaList(std::shared_ptr<const MediaSight> sight, std::shared_ptr<CallMedia> call, std::int64_t most_rows)
    : sight_(std::move(sight)), call_(std::move(call)), most_rows_(most_rows), prefix_(make_id("QuireMedia") + "x") {}

std::string MediaList::mark(std::size_t index) const {
  return prefix_ + std::to_string(index) + std::string(kMarkEnd);
}

std::string MediaList::add(FieldReader& reader, MediaPart part) {
  if (call_ != nullptr && std::cmp_greater_equal(parts_.size(), call_->options().max_per_request)) {
    // vLLM's text, which routers recognise.
    reader.fail(Error{ErrorKind::kInvalidRequest,
                      fmt::format("At most {} image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` "
                                  "(media.max_per_request) to increase this limit.",
                                  call_->options().max_per_request),
                      "too_many_images", part.path, std::nullopt});
  }
  parts_.push_back(std::move(part));
  return mark(parts_.size() - 1);
}

void MediaList::append(std::string& text, std::string_view more) const {
  const std::size_t last = text.rfind(prefix_);
  const bool after_mark =
      last != std::string::npos && find_mark(text, last) && find_mark(text, last)->end == text.size();
  if (!text.empty() && !more.empty() && !after_mark && !more.starts_with(prefix_)) text += '\n';
  text += more;
}

std::optional<MediaList::Mark> MediaList::find_mark(std::string_view text, std::size_t from) const {
  for (std::size_t at = text.find(prefix_, from); at != std::string_view::npos; at = text.find(prefix_, at + 1)) {
    const std::size_t digits = at + prefix_.size();
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(text.data() + digits, text.data() + text.size(), index);
    const auto after = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || index >= parts_.size() || text.substr(after, kMarkEnd.size()) != kMarkEnd) continue;
    return Mark{at, after + kMarkEnd.size(), index};
  }
  return std::nullopt;
}

Result<MediaSource> MediaList::open_url(std::string_view url) const {
  constexpr std::string_view kSpace = " \t\r\n";
  url.remove_prefix(std::min(url.find_first_not_of(kSpace), url.size()));
  url = url.substr(0, url.find_last_not_of(kSpace) + 1);
  if (is_data_url(url)) return open_data(url);
  // A scheme has no case, and a fragment is not sent.
  MediaSource source{.name = std::string(url)};
  std::string& name = source.name;
  const std::size_t scheme_end = std::min(name.find(':'), name.size());
  name.replace(0, scheme_end, lowered(url.substr(0, scheme_end)));
  if (name.starts_with("http://") || name.starts_with("https://")) {
    source.kind = MediaSource::Kind::kUrl;
    name.resize(std::min(name.find('#'), name.size()));
  } else if (name.starts_with("file://")) {
    source.kind = MediaSource::Kind::kFile;
  } else {
    return counted(
        invalid("a file's URL must begin with data:, https://, http:// or file://", "", "invalid_url").value());
  }
  return source;
}

Result<MediaSource> MediaList::open_data(std::string_view text) const {
  MediaBytes own;
  MediaBytes& bytes = call_ != nullptr ? call_->decoded(text) : own;
  if (bytes == nullptr) {
    const auto most = call_ != nullptr ? call_->options().max_file_bytes : std::numeric_limits<std::int64_t>::max();
    auto decoded = decode_data(text, most);
    if (!decoded) return counted(decoded.error());
    bytes = std::make_shared<const std::string>(*std::move(decoded));
  }
  MediaSource source;
  source.bytes = bytes;
  return source;
}

tl::unexpected<Error> MediaList::counted(const Error& error) const {
  if (call_ != nullptr) count_refusal(call_->store(), error);
  return tl::make_unexpected(error);
}

void MediaList::read_settings(FieldReader& reader) {
  const Json* kwargs = reader.object(fields::kPictureSettings);
  if (kwargs == nullptr) return;
  FieldReader inner(*kwargs, reader.path("mm_processor_kwargs."));
  read_pixels(inner, "min_pixels", "max_pixels");
  if (const Json* const given = inner.object("size")) {
    FieldReader size(*given, inner.path("size."));
    read_pixels(size, "shortest_edge", "longest_edge");
    read_sides(size);
    refuse_others(size, *given, {"shortest_edge", "longest_edge", "height", "width"});
    take_error(inner, size);
  }
  if (settings_.min_pixels && settings_.max_pixels && *settings_.min_pixels > *settings_.max_pixels)
    inner.fail("min_pixels", "the least number of pixels must not be more than the largest");
  refuse_others(inner, *kwargs, {"min_pixels", "max_pixels", "size"});
  if ((settings_.min_pixels || settings_.max_pixels) && sight_ != nullptr && sight_->own_side > 0)
    inner.warn("mm_processor_kwargs: limits of pixels have no effect: this model reads images at sizes of its own");
  take_error(reader, inner);
}

// Limits of pixels under two names, which must agree with those that were read before.
void MediaList::read_pixels(FieldReader& owner, const char* least, const char* most) {
  const std::int64_t bound = call_ != nullptr ? call_->options().max_pixels : kMostKwargPixels;
  const auto take = [&](std::optional<std::int64_t>& setting, const char* name, std::int64_t high) {
    auto value = owner.integer(name, 1, high);
    if (!value) return;
    value = std::min(*value, bound);  // no picture has more
    if (setting && *setting != *value)
      owner.fail(name, fmt::format("'{}' contradicts the other limit of pixels", owner.path(name)));
    setting = value;
  };
  take(settings_.min_pixels, least, bound);
  take(settings_.max_pixels, most, kMostKwargPixels);
}

// Accepts a size only if it is the model's own.
void MediaList::read_sides(FieldReader& size) const {
  for (const char* const name : {"height", "width"}) {
    const auto side = size.integer(name, 1, kMostPictureSide);
    if (!side || sight_ == nullptr || *side == sight_->own_side) continue;
    const std::string why = sight_->own_side > 0
                                ? fmt::format("must be {}, the only one that this model reads", sight_->own_side)
                                : "is not taken: this model reads images of many sizes within 'shortest_edge' and "
                                  "'longest_edge', which count pixels";
    size.fail(name, fmt::format("'{}' {}", size.path(name), why), "unsupported_parameter");
  }
}

void MediaList::refuse(FieldReader& reader, const MediaPart& part, const Error& error) {
  count_refusal(call_->store(), error);
  Error named = error;
  if (named.param.empty()) named.param = part.path;
  reader.fail(std::move(named));
}

// The bytes of a part that has a source. nullopt: an error, or they must be loaded first.
std::optional<MediaBytes> MediaList::bytes_of(FieldReader& reader, const MediaPart& part) {
  if (part.source.bytes != nullptr) return part.source.bytes;
  const bool is_stored = part.source.kind == MediaSource::Kind::kStored;
  const auto allowed = is_stored ? Result<void>() : check_media_url(part.source.name, call_->options());
  const Result<MediaBytes>* const loaded = allowed ? call_->loaded(part.source) : nullptr;
  if (!allowed) {
    refuse(reader, part, allowed.error());
  } else if (loaded != nullptr && !*loaded) {
    refuse(reader, part, loaded->error());
  }
  return loaded != nullptr && *loaded ? std::optional(**loaded) : std::nullopt;
}

std::string MediaList::add_file(FieldReader& reader, MediaPart part) {
  // Without a call the list only checks: a part that is not text stays unchanged.
  const bool is_known = part.source.bytes != nullptr && !is_pdf(*part.source.bytes);
  if (call_ == nullptr && !is_known) return add(reader, std::move(part));
  if (is_gone(part)) return add(reader, std::move(part));
  const auto bytes = bytes_of(reader, part);
  if (!bytes) {
    awaits_files_ = true;
    return {};
  }
  if (is_pdf(**bytes)) return add_pdf(reader, part, *bytes);
  if ((*bytes)->find('\0') == std::string::npos && unicode::is_valid(**bytes)) return **bytes;
  reader.fail(invalid("the file is no text in UTF-8: text formats (plain text, Markdown, JSON, CSV, code) and PDF are "
                      "read",
                      part.path, "unsupported_content")
                  .value());
  return {};
}

std::string MediaList::add_pdf(FieldReader& reader, const MediaPart& part, const MediaBytes& bytes) {
  const auto is_possible = check_pdf(call_->options().pdf, can_see());
  if (!is_possible) refuse(reader, part, is_possible.error());
  const Result<MediaPdf>* const read = is_possible ? call_->pdf(bytes, can_see()) : nullptr;
  awaits_files_ = awaits_files_ || read == nullptr;
  if (read != nullptr && !*read) refuse(reader, part, read->error());
  if (read == nullptr || !*read) return {};
  const PdfContent& pdf = ***read;
  std::string text = pdf.text;
  for (const MediaBytes& page : pdf.pages) {
    MediaPart picture = part;
    picture.source = {MediaSource::Kind::kBytes, page, {}};
    text += add(reader, std::move(picture));
  }
  if (!text.empty()) return text;
  MediaPart scan = part;
  scan.text_only = "its pages have no text, and this model reads text only";
  return add(reader, std::move(scan));
}

// The file's hash and size, and its bytes if they are needed. nullopt: an error, or the file must be loaded first.
std::optional<MediaFile> MediaList::file_of(FieldReader& reader, const MediaPart& part, MediaBytes& bytes) {
  bytes = part.source.bytes;
  if (bytes == nullptr && part.source.name.empty()) {
    auto known = call_->store().recall(call_->name_scope(), part.uuid);
    if (!known)
      refuse(reader, part,
             invalid("no image of this 'uuid' is remembered: send it again", "", "image_not_remembered").value());
    return known;
  }
  const auto found = bytes_of(reader, part);
  if (!found) return std::nullopt;
  bytes = *found;
  const auto head = read_picture_head(*bytes, sight_ != nullptr && sight_->reads_as_stored);
  auto fits = head ? check_picture_size(*head, call_->options().max_pixels) : Result<void>();
  if (!head || !fits) {
    refuse(reader, part, head ? fits.error() : head.error());
    return std::nullopt;
  }
  const MediaFile file{hash_media(*bytes), head->width, head->height};
  if (!part.uuid.empty()) call_->store().remember(call_->name_scope(), part.uuid, file);
  return file;
}

std::optional<MediaRead> MediaList::read_part(FieldReader& reader, const MediaPart& part) {
  MediaBytes bytes;
  const auto file = file_of(reader, part, bytes);
  if (!file) return std::nullopt;
  PictureSettings settings = settings_;
  settings.detail = part.settings.detail;
  MediaRead read{media_key(file->hash, settings), sight_->layout(file->width, file->height, settings), nullptr, ""};
  if (!call_->computes()) return read;
  if (read.layout.num_rows > most_rows_) {
    refuse(reader, part,
           invalid(fmt::format("the image takes {} tokens, and this model's maximum context length is {}: send a "
                               "smaller one, or fewer 'max_pixels' in 'mm_processor_kwargs'",
                               read.layout.num_rows, most_rows_),
                   "", "context_length_exceeded")
               .value());
    return std::nullopt;
  }
  const Result<MediaPiece>* const prepared = call_->prepared(read.key, bytes, settings, sight_);
  if (prepared == nullptr) return std::nullopt;
  if (!*prepared) {
    refuse(reader, part, prepared->error());
    return std::nullopt;
  }
  read.piece = **prepared;
  return read;
}

std::optional<MediaRead> MediaList::leave_out(FieldReader& reader, const Json& messages, std::size_t index) {
  const MediaPart& part = parts_[index];
  const bool is_asked = is_current(messages, mark(index));
  if (is_gone(part)) {
    const Error error = *call_->gone(part.source);
    if (is_asked) {
      refuse(reader, part, error);
      return std::nullopt;
    }
    reader.warn(fmt::format("{}: a file is left out: {}", part.path, error.message));
    return MediaRead{{}, {}, nullptr, kGone};
  }
  if (is_asked) {
    reader.fail(Error{ErrorKind::kInvalidRequest,
                      fmt::format("'{}': content parts of type '{}' are not supported: {}", part.type_path, part.type,
                                  is_built(Module::kImages) ? std::string(part.text_only)
                                                            : "reading images " + left_out(Module::kImages)),
                      "unsupported_content", part.type_path, std::nullopt});
    return std::nullopt;
  }
  reader.warn(fmt::format("{}: an image is left out: {}", part.path, part.text_only));
  return MediaRead{{}, {}, nullptr, kSubstitute};
}

bool MediaList::read_all(FieldReader& reader, const Json& messages) {
  if (!awaits_files_ && read_.size() == parts_.size()) return true;
  std::vector<MediaRead> read;
  for (std::size_t i = 0; i < parts_.size() && !reader.error(); ++i) {
    if (reader.limit().reached()) reader.fail(interrupted().value());
    const bool is_read = can_see() && !is_gone(parts_[i]);
    auto each = is_read ? read_part(reader, parts_[i]) : leave_out(reader, messages, i);
    if (each) read.push_back(*std::move(each));
  }
  if (reader.error()) return false;
  if (awaits_files_ || read.size() < parts_.size()) {
    reader.fail(media_wanted());
    return false;
  }
  read_ = std::move(read);
  return true;
}

bool MediaList::has_marks(const Json& messages) const {
  for (const Json& message : messages) {
    const Json& content = message["content"];
    if (content.is_string() && find_mark(content.get_ref<const std::string&>(), 0)) return true;
  }
  return false;
}

std::string MediaList::written(std::string_view text, std::string_view marker) const {
  std::string out;
  std::size_t from = 0;
  while (const auto mark = find_mark(text, from)) {
    out += text.substr(from, mark->begin - from);
    out += marker;
    from = mark->end;
  }
  return out += text.substr(from);
}

std::shared_ptr<MediaList> media_list(const ServedModel& model, const Call& call) {
  return std::make_shared<MediaList>(model.sight, call.media, model.max_model_len);
}

}  // namespace quire
