// Parts of messages that are no text: pictures and files, as each API writes them. Pure functions but for the
// list that they add to; any thread.
#pragma once

#include <optional>
#include <string>

#include "server/api/common/field_reader.h"
#include "server/api/conversation/media_list.h"

namespace quire {

// Reads a part of type image_url (OpenAI's chats) or input_image (Responses) through `part` and returns its mark.
// Errors stay in the reader. nullopt: the part has another type.
std::optional<std::string> read_picture_part(FieldReader& part, const std::string& type, MediaList& media);
// A part of type file (chats) or input_file (Responses): its text, with the marks of a PDF file's pages. nullopt: the
// type is another one. `media` null: files of text only.
std::optional<std::string> read_file_part(FieldReader& part, const std::string& type, MediaList* media);
// Anthropic's block of type image.
std::string read_image_block(FieldReader& block, MediaList& media);
// The file of its block of type document: the same as read_file_part().
std::string read_document_file(FieldReader& block, FieldReader& source, MediaList* media);
// Base64 in a list: Ollama's `images`, llama-server's `multimodal_data`. The marks, one for each.
std::vector<std::string> read_base64_pictures(FieldReader& owner, FieldName field, MediaList& media);

}  // namespace quire
