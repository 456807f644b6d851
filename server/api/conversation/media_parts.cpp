#include "server/api/conversation/media_parts.h"

#include <fmt/core.h>

namespace quire {

namespace {

constexpr std::size_t kMostUuid = 256;

MediaPart part_of(FieldReader& part, std::string type) {
  return MediaPart{part.own_path(), part.path("type"), std::move(type)};
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
    if (!media.can_see()) return;
    return take_source(part, "image_url", media.open_url(given->get_ref<const std::string&>()), read);
  }
  if (!part.is_object("image_url", *given)) return;
  FieldReader inner(*given, part.path("image_url."));
  const auto url = inner.string("url");
  if (!url && read.uuid.empty()) inner.missing("url");
  read.settings.detail = read_detail(inner);
  if (url && media.can_see()) take_source(inner, "url", media.open_url(*url), read);
  take_error(part, inner);
}

void read_file_id(FieldReader& owner, MediaPart& part) {
  if (auto id = owner.short_string("file_id", kMostUuid))
    part.source = {MediaSource::Kind::kStored, nullptr, *std::move(id)};
}

bool has_source(const MediaPart& part) {
  return part.source.bytes != nullptr || !part.source.name.empty();
}

// Reads the source of an Anthropic block.
void read_block_source(FieldReader& source, MediaList& media, const char* kinds, MediaPart& read) {
  const auto kind = source.string("type").value_or("");
  if (kind == "base64") {
    source.string("media_type");
    const Json* const data = source.find("data");
    if (data == nullptr || !data->is_string()) return source.missing("data");
    take_source(source, "data", media.open_data(data->get_ref<const std::string&>()), read);
  } else if (kind == "url") {
    const auto url = source.string("url");
    if (!url) return source.missing("url");
    take_source(source, "url", media.open_url(*url), read);
  } else if (kind == "file") {
    read_file_id(source, read);
    if (!has_source(read)) source.missing("file_id");
  } else {
    source.fail("type", fmt::format("'{}' must be one of {}", source.path("type"), kinds));
  }
}

}  // namespace

std::optional<std::string> read_picture_part(FieldReader& part, const std::string& type, MediaList& media) {
  if (type != "image_url" && type != "input_image") return std::nullopt;
  MediaPart read = part_of(part, type);
  read.uuid = part.short_string("uuid", kMostUuid).value_or("");
  read_url(part, media, read);
  if (type == "input_image") read_file_id(part, read);
  if (!part.error() && media.can_see() && !has_source(read) && read.uuid.empty()) part.missing("image_url");
  if (part.error()) return "";
  return media.add(part, std::move(read));
}

std::optional<std::string> read_file_part(FieldReader& part, const std::string& type, MediaList* media) {
  if (type != "file" && type != "input_file") return std::nullopt;
  const Json* const file = type == "file" ? part.object("file") : nullptr;
  if (type == "file" && file == nullptr) {
    part.missing("file");
    return "";
  }
  const Json none = Json::object();
  FieldReader inner(file != nullptr ? *file : none, part.path("file."));
  FieldReader& owner = file != nullptr ? inner : part;
  MediaList texts(nullptr, nullptr, 0);
  MediaList& list = media != nullptr ? *media : texts;
  MediaPart read = part_of(part, type);
  const auto name = owner.string("filename").value_or("");
  if (const auto url = owner.string("file_url")) take_source(owner, "file_url", list.open_url(*url), read);
  read_file_id(owner, read);
  if (const Json* const data = owner.find("file_data"); data != nullptr && data->is_string()) {
    take_source(owner, "file_data", list.open_data(data->get_ref<const std::string&>()), read);
    read.path = owner.path("file_data");
  } else if (!has_source(read)) {
    owner.missing("file_data");
  }
  std::string text = owner.error() ? std::string() : list.add_file(owner, std::move(read));
  if (!texts.empty()) owner.fail("file_data", "files of text are read here, and no others", "unsupported_content");
  if (file != nullptr) take_error(part, inner);
  return name.empty() ? text : name + ":\n" + text;
}

std::string read_image_block(FieldReader& block, MediaList& media) {
  MediaPart read = part_of(block, "image");
  const Json* const given = block.object("source");
  if (given == nullptr && media.can_see()) block.missing("source");
  if (given == nullptr || block.error()) return block.error() ? "" : media.add(block, std::move(read));
  FieldReader source(*given, block.path("source."));
  if (media.can_see()) read_block_source(source, media, "base64, url, file", read);
  take_error(block, source);
  return block.error() ? "" : media.add(block, std::move(read));
}

std::string read_document_file(FieldReader& block, FieldReader& source, MediaList* media) {
  MediaList texts(nullptr, nullptr, 0);
  MediaList& list = media != nullptr ? *media : texts;
  MediaPart read = part_of(block, "document");
  read_block_source(source, list, "text, content, base64, url, file", read);
  std::string text = source.error() ? std::string() : list.add_file(source, std::move(read));
  if (!texts.empty()) source.fail("type", "documents of text are read here, and no others", "unsupported_content");
  return text;
}

std::vector<std::string> read_base64_pictures(FieldReader& owner, FieldName field, MediaList& media) {
  std::vector<std::string> marks;
  const Json* const list = owner.array(field);
  for (std::size_t i = 0; list != nullptr && i < list->size() && !owner.error(); ++i) {
    const std::string name = fmt::format("{}[{}]", std::string_view(field), i);
    const Json& each = (*list)[i];
    if (!each.is_string()) {
      owner.fail(name, fmt::format("'{}' must be an image in base64", owner.path(name)), "invalid_type");
      break;
    }
    MediaPart read{owner.path(name), owner.path(field), "images"};
    if (media.can_see()) take_source(owner, name.c_str(), media.open_data(each.get_ref<const std::string&>()), read);
    if (!owner.error()) marks.push_back(media.add(owner, std::move(read)));
  }
  return marks;
}

}  // namespace quire
