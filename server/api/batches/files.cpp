#include "server/api/batches/batches.h"

#include <fmt/format.h>

#include <charconv>

#include "server/api/common/store/item_pages.h"

namespace quire {

namespace {

constexpr PageLimits kFilePages{10'000, 10'000};
constexpr std::size_t kMaxFilename = 512;

Json file_object(const StoredFile& file) {
  return Json{{"id", file.id},
              {"object", "file"},
              {"bytes", file.bytes},
              {"created_at", file.created_at},
              {"expires_at", file.expires_at},
              {"filename", file.filename},
              {"purpose", file.purpose},
              {"status", "processed"},
              {"status_details", nullptr}};
}

tl::unexpected<Error> no_file(const std::string& id) {
  return tl::make_unexpected(
      Error{ErrorKind::kNotFound, "No such File object: " + id, "file_not_found", "file_id", std::nullopt});
}

// Valid UTF-8 without control characters, whatever a form had.
std::string clean_name(const std::string& name) {
  std::string clean;
  for (const char c : name.substr(0, kMaxFilename))
    clean += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  return Json::parse(dump_json(Json(clean))).get<std::string>();
}

// OpenAI's clients send the members of an object as fields of their own.
Result<std::int64_t> read_keep(const UploadForm& form, const BatchOptions& options) {
  const std::int64_t most = std::chrono::duration_cast<std::chrono::seconds>(options.keep).count();
  const auto seconds = form.fields.find("expires_after[seconds]");
  const auto anchor = form.fields.find("expires_after[anchor]");
  if (anchor != form.fields.end() && anchor->second != "created_at") {
    return invalid("'expires_after[anchor]' must be 'created_at'", "expires_after[anchor]");
  }
  if (seconds == form.fields.end()) return most;
  const std::string& digits = seconds->second;
  std::int64_t keep = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), keep);
  if (error != std::errc() || end != digits.data() + digits.size() || keep < kLeastFileKeep || keep > kMostFileKeep) {
    return invalid(
        fmt::format("'expires_after[seconds]' must be a number between {} and {}", kLeastFileKeep, kMostFileKeep),
        "expires_after[seconds]");
  }
  return std::min(keep, most);
}

}  // namespace

Result<StoredFile> read_upload_form(const UploadForm& form, const BatchOptions& options, std::int64_t now) {
  const auto purpose = form.fields.find("purpose");
  if (purpose == form.fields.end()) {
    return invalid("Missing required parameter: 'purpose'.", "purpose", "missing_required_parameter");
  }
  const bool is_known = purpose->second == "batch" || purpose->second == "vision" || purpose->second == "user_data";
  if (!is_known) return invalid("'purpose' must be 'batch', 'vision' or 'user_data'", "purpose");
  if (!form.filename) return invalid("Missing required parameter: 'file'.", "file", "missing_required_parameter");
  const auto keep = read_keep(form, options);
  if (!keep) return tl::make_unexpected(keep.error());
  StoredFile file;
  file.filename =
      form.filename->empty() ? (purpose->second == "batch" ? "upload.jsonl" : "upload") : clean_name(*form.filename);
  file.purpose = purpose->second;
  file.created_at = now;
  file.expires_at = now + *keep;
  return file;
}

std::string file_json(const StoredFile& file) {
  return dump_json(file_object(file));
}

Result<StoredAnswer> list_files(BatchStore& store, const Call& call) {
  const auto query = read_query(call.query);
  const auto purpose = query.find("purpose");
  Json items = Json::array();
  for (const StoredFile* file : store.files().of_owner(call.key_name)) {
    if (purpose == query.end() || file->purpose == purpose->second) items.push_back(file_object(*file));
  }
  const auto page = page_of_items(call.query, std::move(items), false, kFilePages);
  if (!page) return tl::make_unexpected(page.error());
  return StoredAnswer{dump_json(*page), std::nullopt};
}

Result<StoredAnswer> get_file(BatchStore& store, const Call& call) {
  const StoredPath path = split_stored_path(call.path, "/files/");
  const StoredFile* const file = store.files().find(path.id, call.key_name);
  if (file == nullptr) return no_file(path.id);
  if (path.rest.empty()) return StoredAnswer{file_json(*file), std::nullopt};
  if (path.rest != "/content") return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
  auto opened = store.files().open(*file);
  if (!opened) return tl::make_unexpected(opened.error());
  return StoredAnswer{"", *std::move(opened), file->bytes};
}

Result<StoredAnswer> delete_file(BatchStore& store, const Call& call) {
  const StoredPath path = split_stored_path(call.path, "/files/");
  if (!path.rest.empty()) return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
  if (auto removed = store.remove_file(path.id, call.key_name); !removed) return tl::make_unexpected(removed.error());
  return StoredAnswer{dump_json(Json{{"id", path.id}, {"object", "file"}, {"deleted", true}}), std::nullopt};
}

}  // namespace quire
