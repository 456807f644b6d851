#include "server/api/batches/batches.h"

#include <fmt/format.h>

#include <charconv>

#include "server/api/common/store/item_pages.h"
#include "server/api/fields/batches.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

namespace {

constexpr std::int64_t kMostWindow = 2'592'000;  // seconds: 30 days
constexpr PageLimits kBatchPages{20, 100};
constexpr std::size_t kMaxWindowText = 8;

Json time_json(std::int64_t seconds) {
  return seconds == 0 ? Json(nullptr) : Json(seconds);
}

Json errors_json(const std::vector<BatchError>& errors) {
  if (errors.empty()) return nullptr;
  Json data = Json::array();
  for (const BatchError& error : errors) {
    data.push_back({{"code", error.code},
                    {"line", error.line ? Json(*error.line) : Json(nullptr)},
                    {"message", error.message},
                    {"param", error.param.empty() ? Json(nullptr) : Json(error.param)}});
  }
  return Json{{"object", "list"}, {"data", std::move(data)}};
}

Json batch_usage_json(const TokenUsage& usage) {
  return Json{{"input_tokens", usage.input},
              {"input_tokens_details", {{"cached_tokens", usage.cached}}},
              {"output_tokens", usage.output},
              {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
              {"total_tokens", usage.input + usage.output}};
}

// The id of a batch's result file, which exists from the batch's end until it expires.
Json file_id_json(const BatchStore& store, const BatchRecord& batch, const std::string& id) {
  const bool is_there = batch.has_ended() && store.files().find(id, batch.owner) != nullptr;
  return is_there ? Json(id) : Json(nullptr);
}

Json batch_object(const BatchStore& store, const BatchRecord& batch) {
  Json json{{"id", batch.id},
            {"object", "batch"},
            {"endpoint", batch.endpoint},
            {"errors", errors_json(batch.errors)},
            {"input_file_id", batch.input_file_id},
            {"completion_window", batch.completion_window},
            {"status", batch_status_name(batch.status)},
            {"output_file_id", file_id_json(store, batch, batch.output_file_id)},
            {"error_file_id", file_id_json(store, batch, batch.error_file_id)},
            {"created_at", batch.created_at}};
  json["in_progress_at"] = time_json(batch.in_progress_at);
  json["expires_at"] = time_json(batch.expires_at);
  json["finalizing_at"] = time_json(batch.finalizing_at);
  json["completed_at"] = time_json(batch.completed_at);
  json["failed_at"] = time_json(batch.failed_at);
  json["expired_at"] = time_json(batch.expired_at);
  json["cancelling_at"] = time_json(batch.cancelling_at);
  json["cancelled_at"] = time_json(batch.cancelled_at);
  json["request_counts"] = {
      {"total", batch.num_requests}, {"completed", batch.num_completed}, {"failed", batch.num_failed}};
  json["usage"] = batch_usage_json(batch.usage);
  json["metadata"] = batch.metadata;
  return json;
}

// OpenAI allows "24h" only; minutes, hours and days are read here.
std::optional<std::int64_t> read_window(const std::string& text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (text.size() > kMaxWindowText || error != std::errc() || end + 1 != text.data() + text.size() || count < 1 ||
      count > kMostWindow) {
    return std::nullopt;
  }
  const std::int64_t unit = *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86'400 : 0;
  if (unit == 0 || count * unit > kMostWindow) return std::nullopt;
  return count * unit;
}

std::int64_t read_output_keep(FieldReader& reader) {
  const Json* const object = reader.object(fields::batches::kOutputExpiresAfter);
  if (object == nullptr) return 0;
  FieldReader inner(*object, "output_expires_after.");
  inner.word("anchor", {"created_at"});
  const auto seconds = inner.integer("seconds", kLeastFileKeep, kMostFileKeep);
  if (!seconds && !inner.error()) inner.missing("seconds");
  take_error(reader, inner);
  return seconds.value_or(0);
}

std::string required_text(FieldReader& reader, const fields::Field& name) {
  auto text = reader.string(name);
  if (!text && !reader.error()) reader.missing(name);
  return text.value_or("");
}

Error no_batch(const std::string& id) {
  return Error{ErrorKind::kNotFound, "No batch found with id '" + id + "'.", "batch_not_found", "batch_id",
               std::nullopt};
}

}  // namespace

Result<StoredAnswer> create_batch(BatchStore& store, const Call& call) {
  const auto body = parse_json_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  BatchRecord fields;
  fields.owner = call.key_name;
  fields.input_file_id = required_text(reader, fields::batches::kInputFileId);
  const auto endpoint = reader.word(fields::batches::kEndpoint);
  if (!endpoint && !reader.error()) reader.missing(fields::batches::kEndpoint);
  fields.endpoint = endpoint.value_or("");
  fields.completion_window = required_text(reader, fields::batches::kCompletionWindow);
  const auto window = read_window(fields.completion_window);
  if (!window && !reader.error()) {
    reader.fail(fields::batches::kCompletionWindow,
                "'completion_window' must be '24h', or another number of minutes, hours or days "
                "up to '30d'");
  }
  fields.metadata = read_metadata(reader);
  fields.output_keep_s = read_output_keep(reader);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  fields.expires_at = call.created + *window;
  const auto made = store.create(std::move(fields), call.created);
  if (!made) return tl::make_unexpected(made.error());
  return StoredAnswer{dump_json(batch_object(store, *made)), std::nullopt};
}

Result<StoredAnswer> list_batches(BatchStore& store, const Call& call) {
  Json items = Json::array();
  for (const BatchRecord* batch : store.of_owner(call.key_name))
    items.push_back(batch_object(store, *batch));
  const auto page = page_of_items(call.query, std::move(items), false, kBatchPages);
  if (!page) return tl::make_unexpected(page.error());
  return StoredAnswer{dump_json(*page), std::nullopt};
}

Result<StoredAnswer> get_batch(BatchStore& store, const Call& call) {
  const StoredPath path = split_stored_path(call.path, "/batches/");
  const BatchRecord* const batch = store.find(path.id, call.key_name);
  if (batch == nullptr || !path.rest.empty()) return tl::make_unexpected(no_batch(path.id));
  return StoredAnswer{dump_json(batch_object(store, *batch)), std::nullopt};
}

Result<StoredAnswer> cancel_batch(BatchStore& store, const Call& call) {
  const StoredPath path = split_stored_path(call.path, "/batches/");
  if (path.rest != "/cancel") return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
  const auto cancelled = store.cancel(path.id, call.key_name, call.created);
  if (!cancelled) return tl::make_unexpected(cancelled.error());
  return StoredAnswer{dump_json(batch_object(store, *cancelled)), std::nullopt};
}

}  // namespace quire
