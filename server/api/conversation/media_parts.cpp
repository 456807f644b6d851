#include "server/api/conversation/media_parts.h"

#include <fmt/core.h>

#include "core/text/unicode.h"
#include "server/media/data_url.h"

namespace quire {

namespace {

constexpr std::size_t kMostUuid = 256;
constexpr std::int64_t kMostFileText = std::int64_t{16} << 20;

std::string without_dot(const std::string& path) {
  return path.ends_with('.') ? path.substr(0, path.size() - 1) : path;
}

MediaPart part_of(FieldReader& part, std::string type) {
  return MediaPart{without_dot(part.path("")), part.path("type"), std::move(type)};
}

PictureSettings::Detail read_detail(FieldReader& owner) {
  const auto word = owner.word("detail", {"auto", "low", "high", "original"});
  if (word == "low") return PictureSettings::Detail::kLow;
  if (word == "high") return PictureSettings::Detail::kHigh;
  return word == "original" ? PictureSettings::Detail::kOriginal : PictureSettings::Detail::kAuto;
}

void take_source(FieldReader& owner, const char* name, Result<MediaSource> source, MediaPart& part) {
  if (source) {
    part.source = *std::move(source);
  } else {
    owner.fail(name, source.error().message, source.error().code);
  }
}

// The URL of a member that is a string or an object with one.
void read_url(FieldReader& part, MediaList& media, MediaPart& read) {
  const Json* const given = part.find("image_url");
  if (given == nullptr) return;
  if (given->is_string()) {
    read.settings.detail = read_detail(part);
    return take_source(part, "image_url", media.open_url(given->get_ref<const std::string&>(), part.path("image_url")),
                       read);
  }
  if (!part.is_object("image_url", *given)) return;
  FieldReader inner(*given, part.path("image_url."));
  const auto url = inner.string("url");
  if (!url && read.uuid.empty()) inner.missing("url");
  read.settings.detail = read_detail(inner);
  if (url) take_source(inner, "url", media.open_url(*url, inner.path("url")), read);
  take_error(part, inner);
}

void read_file_id(FieldReader& owner, MediaPart& part) {
  if (auto id = owner.short_string("file_id", kMostUuid))
    part.source = {MediaSource::Kind::kStored, nullptr, *std::move(id)};
}

bool is_pdf(std::string_view bytes) {
  return bytes.starts_with("%PDF");
}

// The text of a file's bytes; formats that are no text are refused.
std::string text_of_file(FieldReader& owner, const char* name, const Result<std::string>& bytes) {
  if (!bytes) {
    owner.fail(name, bytes.error().message, bytes.error().code);
  } else if (is_pdf(*bytes)) {
    owner.fail(name, "PDF files are not read: send their text, or images of their pages", "unsupported_content");
  } else if (bytes->find('\0') != std::string::npos || !unicode::is_valid(*bytes)) {
    owner.fail(name, "the file is no text in UTF-8: text formats (plain text, Markdown, JSON, CSV, code) are read",
               "unsupported_content");
  } else {
    return *bytes;
  }
  return {};
}

}  // namespace

std::optional<std::string> read_picture_part(FieldReader& part, const std::string& type, MediaList& media) {
  if (type != "image_url" && type != "input_image") return std::nullopt;
  MediaPart read = part_of(part, type);
  read.uuid = part.short_string("uuid", kMostUuid).value_or("");
  read_url(part, media, read);
  if (type == "input_image") read_file_id(part, read);
  const bool is_empty = read.source.bytes == nullptr && read.source.name.empty() && read.uuid.empty();
  if (!part.error() && media.can_see() && is_empty) part.missing("image_url");
  if (part.error()) return "";
  return media.add(part, std::move(read));
}

std::optional<std::string> read_file_part(FieldReader& part, const std::string& type) {
  if (type != "file" && type != "input_file") return std::nullopt;
  const Json* const file = type == "file" ? part.object("file") : nullptr;
  if (type == "file" && file == nullptr) {
    part.missing("file");
    return "";
  }
  const Json none = Json::object();
  FieldReader inner(file != nullptr ? *file : none, part.path("file."));
  FieldReader& owner = file != nullptr ? inner : part;
  for (const char* name : {"file_id", "file_url"})
    owner.refuse(name, "files are read from 'file_data' only");
  const auto name = owner.string("filename").value_or("");
  const auto data = owner.string("file_data");
  if (!data) owner.missing("file_data");
  std::string text;
  if (!owner.error()) {
    auto bytes = decode_base64(*data, kMostFileText);
    if (is_data_url(*data)) {
      auto url = decode_data_url(*data, kMostFileText);
      bytes = url ? Result<std::string>(std::move(url->bytes)) : tl::make_unexpected(url.error());
    }
    text = text_of_file(owner, "file_data", bytes);
  }
  if (file != nullptr) take_error(part, inner);
  return name.empty() ? text : name + ":\n" + text;
}

std::string read_image_block(FieldReader& block, MediaList& media) {
  MediaPart read = part_of(block, "image");
  const Json* const given = block.object("source");
  if (given == nullptr && media.can_see()) block.missing("source");
  if (given == nullptr || block.error()) return block.error() ? "" : media.add(block, std::move(read));
  FieldReader source(*given, block.path("source."));
  const auto kind = source.string("type").value_or("");
  if (kind == "base64") {
    source.string("media_type");
    const Json* const data = source.find("data");
    if (data == nullptr || !data->is_string()) {
      source.missing("data");
    } else {
      take_source(source, "data", media.open_base64(data->get_ref<const std::string&>(), source.path("data")), read);
    }
  } else if (kind == "url") {
    const auto url = source.string("url");
    if (!url) source.missing("url");
    if (url) take_source(source, "url", media.open_url(*url, source.path("url")), read);
  } else if (kind == "file") {
    read_file_id(source, read);
    if (read.source.name.empty()) source.missing("file_id");
  } else if (media.can_see()) {
    source.fail("type", "An image's source must be of type 'base64', 'url' or 'file'");
  }
  take_error(block, source);
  return block.error() ? "" : media.add(block, std::move(read));
}

std::vector<std::string> read_base64_pictures(FieldReader& owner, const char* field, MediaList& media) {
  std::vector<std::string> marks;
  const Json* const list = owner.array(field);
  for (std::size_t i = 0; list != nullptr && i < list->size() && !owner.error(); ++i) {
    const std::string name = fmt::format("{}[{}]", field, i);
    const Json& each = (*list)[i];
    if (!each.is_string()) {
      owner.fail(name, fmt::format("'{}' must be an image in base64", owner.path(name)), "invalid_type");
      break;
    }
    MediaPart read{owner.path(name), owner.path(field), "images"};
    take_source(owner, name.c_str(), media.open_base64(each.get_ref<const std::string&>(), owner.path(name)), read);
    if (!owner.error()) marks.push_back(media.add(owner, std::move(read)));
  }
  return marks;
}

}  // namespace quire
