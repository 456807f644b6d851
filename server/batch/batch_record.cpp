#include "server/batch/batch_record.h"

#include <array>

namespace quire {

namespace {

constexpr std::array<const char*, 8> kStatusNames = {"validating", "failed",  "in_progress", "finalizing",
                                                     "completed",  "expired", "cancelling",  "cancelled"};

// Visits the record's numbers and texts by name, for writing and for reading.
template <class Record, class Visit>
void visit_members(Record& record, Visit visit) {
  visit("id", record.id);
  visit("owner", record.owner);
  visit("endpoint", record.endpoint);
  visit("input_file_id", record.input_file_id);
  visit("completion_window", record.completion_window);
  visit("created_at", record.created_at);
  visit("in_progress_at", record.in_progress_at);
  visit("expires_at", record.expires_at);
  visit("finalizing_at", record.finalizing_at);
  visit("completed_at", record.completed_at);
  visit("failed_at", record.failed_at);
  visit("expired_at", record.expired_at);
  visit("cancelling_at", record.cancelling_at);
  visit("cancelled_at", record.cancelled_at);
  visit("output_keep_s", record.output_keep_s);
  visit("output_file_id", record.output_file_id);
  visit("error_file_id", record.error_file_id);
  visit("num_requests", record.num_requests);
  visit("num_completed", record.num_completed);
  visit("num_failed", record.num_failed);
  visit("input_tokens", record.usage.input);
  visit("cached_tokens", record.usage.cached);
  visit("output_tokens", record.usage.output);
  visit("reasoning_tokens", record.usage.reasoning);
}

}  // namespace

const char* batch_status_name(BatchStatus status) {
  return kStatusNames[static_cast<std::size_t>(status)];
}

std::string encode_batch(const BatchRecord& record) {
  Json json{{"status", batch_status_name(record.status)}, {"metadata", record.metadata}};
  visit_members(record, [&json](const char* name, const auto& value) { json[name] = value; });
  json["errors"] = Json::array();
  for (const BatchError& error : record.errors) {
    json["errors"].push_back({{"code", error.code},
                              {"message", error.message},
                              {"param", error.param},
                              {"line", error.line ? Json(*error.line) : Json(nullptr)}});
  }
  return dump_json(json);
}

std::optional<BatchRecord> decode_batch(const std::string& text) {
  const auto json = parse_json_object(text);
  if (!json) return std::nullopt;
  try {
    BatchRecord record;
    visit_members(record, [&json](const char* name, auto& value) {
      value = json->at(name).get<std::remove_reference_t<decltype(value)>>();
    });
    const auto status = json->at("status").get<std::string>();
    const auto place = std::find(kStatusNames.begin(), kStatusNames.end(), status);
    if (place == kStatusNames.end()) return std::nullopt;
    record.status = static_cast<BatchStatus>(place - kStatusNames.begin());
    record.metadata = json->at("metadata");
    for (const Json& each : json->at("errors")) {
      const Json& line = each.at("line");
      record.errors.push_back({each.at("code"), each.at("message"), each.at("param"),
                               line.is_null() ? std::nullopt : std::optional(line.get<std::int64_t>())});
    }
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace quire
