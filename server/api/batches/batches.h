// /v1/files and /v1/batches: the requests, the JSON of files and batches, and the form of an upload. Batch thread only.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "server/api/common/operation.h"
#include "server/batch/batch_store.h"

namespace quire {

// Bounds of a file's expires_after, in seconds.
inline constexpr std::int64_t kLeastFileKeep = 3600;
inline constexpr std::int64_t kMostFileKeep = 2'592'000;

// An endpoint's answer: JSON, or the content of a file.
struct StoredAnswer {
  std::string body;
  std::optional<DiskFile> content;
  std::int64_t num_bytes = 0;  // length of the content
};

// The fields of an uploaded form beside the file itself, and the file's name where there is a file.
struct UploadForm {
  std::map<std::string, std::string> fields;
  std::optional<std::string> filename;
};
// The file to store, without id, owner and size.
Result<StoredFile> read_upload_form(const UploadForm& form, const BatchOptions& options, std::int64_t now);
std::string file_json(const StoredFile& file);

Result<StoredAnswer> list_files(BatchStore& store, const Call& call);
// /v1/files/{id} and /v1/files/{id}/content.
Result<StoredAnswer> get_file(BatchStore& store, const Call& call);
Result<StoredAnswer> delete_file(BatchStore& store, const Call& call);

Result<StoredAnswer> create_batch(BatchStore& store, const Call& call);
Result<StoredAnswer> list_batches(BatchStore& store, const Call& call);
Result<StoredAnswer> get_batch(BatchStore& store, const Call& call);
// POST /v1/batches/{id}/cancel.
Result<StoredAnswer> cancel_batch(BatchStore& store, const Call& call);

}  // namespace quire
