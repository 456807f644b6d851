// The lines of a batch's files: requests as clients upload them, answers as they download them, and the records in
// which answers are kept until the batch ends. A record names its request's line and carries a checksum, so that a torn
// or damaged one is not taken for an answer. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/common/json.h"

namespace quire {

// Reason for refusing a batch's input.
struct BatchError {
  std::string code;
  std::string message;
  std::string param;                 // may be empty
  std::optional<std::int64_t> line;  // counted from 1
};

struct BatchRequest {
  std::string custom_id;
  std::string url;
  std::string body;  // JSON
};
// Errors name the field but not the line's number. `endpoint`: the batch's endpoint, which the line's url must equal.
tl::expected<BatchRequest, BatchError> read_batch_request(std::string_view line, std::string_view endpoint);

struct TokenUsage {
  std::int64_t input = 0;
  std::int64_t cached = 0;
  std::int64_t output = 0;
  std::int64_t reasoning = 0;

  TokenUsage& operator+=(const TokenUsage& other);
};
// Usage in the body of a completion or a response; nothing if it has none.
TokenUsage usage_of_body(std::string_view body);

// The line of an answer in the output file (status 200) or the error file.
std::string answer_line(const std::string& custom_id, const std::string& request_id, int status, std::string_view body);
// The line of a request without an answer in the error file: "batch_expired", "batch_cancelled".
std::string unanswered_line(const std::string& custom_id, const std::string& code, const std::string& message);

struct AnswerRecord {
  std::int64_t number = 0;  // the request's place among the lines, from 0
  bool failed = false;      // goes into the error file
  TokenUsage usage;
  std::string text;  // the answer's line, without its end
};
// Encodes with a line end. `batch_id` enters the check.
std::string encode_record(const std::string& batch_id, const AnswerRecord& record);
// Returns nothing unless the line is a whole record of that batch.
std::optional<AnswerRecord> decode_record(const std::string& batch_id, std::string_view line);

}  // namespace quire
