#include "server/hub/hub_client.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "core/base/message_text.h"
#include "server/api/common/json.h"

namespace quire::hub {

namespace {

constexpr std::chrono::milliseconds kHubPatience{30'000};
constexpr std::size_t kLongestList = std::size_t{32} << 20;
constexpr std::size_t kMostFiles = 20'000;
constexpr std::chrono::seconds kLongestRetryAfter{60};

std::string escaped(std::string_view text, bool keeps_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~").find(c) != std::string_view::npos || (keeps_slashes && c == '/');
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

bool is_checksum(std::string_view text) {
  return (text.size() == 64 || text.size() == 40) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// An entity tag without its quotes.
std::string tag_of(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return std::string(text);
}

std::string member_text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t size_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::int64_t>() : -1;
}

// Reads an entry of `siblings`; nothing if its path is unusable.
std::optional<RemoteFile> file_of(const Json& entry) {
  if (!entry.is_object()) return std::nullopt;
  RemoteFile file{member_text(entry, "rfilename"), size_member(entry, "size"), member_text(entry, "blobId")};
  const auto large = entry.find("lfs");
  if (large != entry.end() && large->is_object()) {
    file.checksum = member_text(*large, "sha256");
    if (file.checksum.empty()) file.checksum = member_text(*large, "oid");
    if (const std::int64_t size = size_member(*large, "size"); size >= 0) file.size = size;
  }
  if (!is_checksum(file.checksum)) file.checksum.clear();
  return is_safe_path(file.path) ? std::optional(file) : std::nullopt;
}

tl::unexpected<Error> bad_answer(const std::string& endpoint, const char* what) {
  return failure(ErrorKind::kInternal,
                 fmt::format("{} does not answer as a model hub does: {}; check HF_ENDPOINT", endpoint, what),
                 "bad_hub_answer");
}

}  // namespace

bool is_transient(const Error& error) {
  return error.code == kTransientCode;
}

WebRequest HubClient::request_for(const std::string& path) const {
  WebRequest request;
  request.url = hub_.endpoint;
  while (request.url.path.ends_with('/'))
    request.url.path.pop_back();
  request.url.path += path;
  request.fields = {{"User-Agent", "quire/" QUIRE_VERSION}, {"Accept-Encoding", "identity"}};
  if (!hub_.token.empty()) request.authorization = "Bearer " + hub_.token;
  return request;
}

std::string HubClient::file_path(const ModelReference& model, const std::string& commit,
                                 const std::string& path) const {
  return fmt::format("/{}/resolve/{}/{}", model.repository, commit, escaped(path, true));
}

Error HubClient::unreachable(const Error& cause) const {
  const bool is_untrusted = cause.message.find("certificate") != std::string::npos;
  const bool is_passing = cause.kind == ErrorKind::kUnavailable && cause.code != "stopped" && !is_untrusted;
  return Error{cause.kind,
               fmt::format("{}: {}{}", hub_.endpoint_text, cause.message,
                           is_untrusted ? "; SSL_CERT_FILE names further authorities to trust" : ""),
               is_passing ? kTransientCode : cause.code, "", std::nullopt};
}

Error HubClient::error_of(int status, const WebReader& reader, const ModelReference& model) const {
  const std::string code(reader.field("X-Error-Code"));
  const std::string page = fmt::format("{}/{}", hub_.endpoint_text, model.repository);
  const auto refusal = [&](ErrorKind kind, const char* error_code, const std::string& message) {
    return Error{kind, message, error_code, "model", std::nullopt};
  };
  if (code == "GatedRepo") {
    return refusal(
        ErrorKind::kForbidden, "model_gated",
        fmt::format("'{}' is gated: accept its conditions at {}, then set HF_TOKEN to a token of that account{}",
                    model.repository, page,
                    hub_.token.empty() ? "" : " (the account of the present token has no access)"));
  }
  if (code == "RevisionNotFound") {
    return refusal(
        ErrorKind::kNotFound, "model_revision_not_found",
        fmt::format("'{}' has no revision '{}': {}/tree/main lists them", model.repository, model.revision, page));
  }
  if (code == "EntryNotFound") {
    return refusal(ErrorKind::kNotFound, "model_file_not_found",
                   fmt::format("a file of '{}' is not there any more: pull it again", model.repository));
  }
  if (status == 401 && !hub_.token.empty() && code != "RepoNotFound") {
    return refusal(ErrorKind::kUnauthorized, "hub_token_invalid",
                   fmt::format("{} refuses the token: set HF_TOKEN to a valid one ({}/settings/tokens), or unset it",
                               hub_.endpoint_text, hub_.endpoint_text));
  }
  if (status == 401 || status == 404) {
    return refusal(
        ErrorKind::kNotFound, "model_repository_not_found",
        fmt::format("{} has no '{}', or it is private: check the name{}", hub_.endpoint_text, model.repository,
                    hub_.token.empty() ? ", or set HF_TOKEN to a token that may read it"
                                       : "; the account of the present token may not read it"));
  }
  if (status == 403) {
    return refusal(ErrorKind::kForbidden, "hub_forbidden",
                   fmt::format("{} forbids reading '{}': the token needs the permission to read it, and gated "
                               "repositories that their conditions are accepted at {}",
                               hub_.endpoint_text, model.repository, page));
  }
  Error error{ErrorKind::kUnavailable, fmt::format("{} answers with status {}", hub_.endpoint_text, status),
              kTransientCode, "", std::nullopt};
  if (status < 500 && status != 408 && status != 429) error.code = "hub_refused";
  if (const auto wait = number_of(reader.field("Retry-After"))) {
    error.retry_after = std::min(std::chrono::seconds(*wait), kLongestRetryAfter);
  }
  return error;
}

Result<RemoteRevision> HubClient::list(const ModelReference& model) const {
  WebReader reader(stop_, kHubPatience);
  const auto status = reader.open(request_for(
      fmt::format("/api/models/{}/revision/{}?blobs=true", model.repository, escaped(model.revision, false))));
  if (!status) return tl::make_unexpected(unreachable(status.error()));
  if (*status != 200) return tl::make_unexpected(error_of(*status, reader, model));
  const auto text = reader.read_rest(kLongestList);
  if (!text) return tl::make_unexpected(unreachable(text.error()));
  const auto body = parse_json(*text);
  if (!body || !body->is_object()) return bad_answer(hub_.endpoint_text, "the list of files is no JSON object");
  RemoteRevision revision;
  revision.commit = member_text(*body, "sha");
  const auto files = body->find("siblings");
  if (!is_commit(revision.commit) || files == body->end() || !files->is_array() || files->size() > kMostFiles) {
    return bad_answer(hub_.endpoint_text, "the list of files has no commit ('sha') or no files ('siblings')");
  }
  for (const Json& entry : *files) {
    if (auto file = file_of(entry)) revision.files.push_back(*std::move(file));
  }
  return revision;
}

Result<RemoteFile> HubClient::describe(const ModelReference& model, const std::string& commit, RemoteFile file) const {
  if (file.size >= 0 && !file.checksum.empty()) return file;
  WebReader reader(stop_, kHubPatience);
  WebRequest request = request_for(file_path(model, commit, file.path));
  request.method = "HEAD";
  request.max_redirects = 0;  // the hub's own answer has the checksum; a redirect's target may not
  const auto status = reader.open(request);
  if (!status) return tl::make_unexpected(unreachable(status.error()));
  if (*status >= 400) return tl::make_unexpected(error_of(*status, reader, model));
  const bool is_linked = !reader.field("X-Linked-Etag").empty();
  file.checksum = tag_of(reader.field(is_linked ? "X-Linked-Etag" : "ETag"));
  const auto size = number_of(reader.field(is_linked ? "X-Linked-Size" : "Content-Length"));
  if (!is_checksum(file.checksum) || !size) {
    return bad_answer(hub_.endpoint_text, "a file has no size or no checksum (X-Linked-Size, X-Linked-Etag)");
  }
  file.size = *size;
  return file;
}

Result<OpenFile> HubClient::open(const ModelReference& model, const std::string& commit, const RemoteFile& file,
                                 std::int64_t offset) const {
  OpenFile opened{std::make_unique<WebReader>(stop_, kHubPatience)};
  WebRequest request = request_for(file_path(model, commit, file.path));
  if (offset > 0) request.fields.emplace_back("Range", fmt::format("bytes={}-", offset));
  const auto status = opened.reader->open(request);
  if (!status) return tl::make_unexpected(unreachable(status.error()));
  if (*status == 416) return failure(ErrorKind::kConflict, "the server has no such range", kRangeCode);
  if (*status != 200 && *status != 206) return tl::make_unexpected(error_of(*status, *opened.reader, model));
  if (*status == 200) return opened;
  const std::string expected = fmt::format("bytes {}-{}/{}", offset, file.size - 1, file.size);
  if (opened.reader->field("Content-Range") != expected) {
    return tl::make_unexpected(Error{ErrorKind::kUnavailable,
                                     fmt::format("{} sends another range than was asked for", hub_.endpoint_text),
                                     kTransientCode, "", std::nullopt});
  }
  opened.offset = offset;
  return opened;
}

}  // namespace quire::hub
