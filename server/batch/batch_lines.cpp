#include "server/batch/batch_lines.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

#include "server/api/common/operation.h"

namespace quire {

namespace {

constexpr std::size_t kMaxCustomId = 512;
constexpr std::size_t kCheckDigits = 16;

tl::unexpected<BatchError> bad_line(std::string code, std::string message, std::string param = {}) {
  return tl::make_unexpected(BatchError{std::move(code), std::move(message), std::move(param), std::nullopt});
}

// A text member, or the error in it.
tl::expected<std::string, BatchError> text_member(const Json& line, const char* name) {
  const auto member = line.find(name);
  if (member == line.end() || member->is_null()) {
    return bad_line("missing_required_parameter", fmt::format("Missing required parameter: '{}'.", name), name);
  }
  if (!member->is_string()) return bad_line("invalid_type", fmt::format("'{}' must be a string.", name), name);
  return member->get<std::string>();
}

std::uint64_t check_of(const std::string& batch_id, std::string_view payload) {
  const std::uint64_t seed = XXH3_64bits(batch_id.data(), batch_id.size());
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

std::int64_t number_in(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_number_integer() ? member->get<std::int64_t>() : 0;
}

std::int64_t number_in(const Json& object, const char* name, const char* inner) {
  const auto member = object.find(name);
  return member != object.end() && member->is_object() ? number_in(*member, inner) : 0;
}

}  // namespace

TokenUsage& TokenUsage::operator+=(const TokenUsage& other) {
  input += other.input;
  cached += other.cached;
  output += other.output;
  reasoning += other.reasoning;
  return *this;
}

tl::expected<BatchRequest, BatchError> read_batch_request(std::string_view line, std::string_view endpoint) {
  const auto parsed = parse_json(line);
  if (!parsed || !parsed->is_object()) {
    return bad_line("invalid_json_line", "This line is not parseable as a valid JSON object.");
  }
  auto custom_id = text_member(*parsed, "custom_id");
  if (!custom_id) return tl::make_unexpected(custom_id.error());
  if (custom_id->empty() || custom_id->size() > kMaxCustomId) {
    return bad_line("invalid_value", fmt::format("'custom_id' must have 1 to {} bytes.", kMaxCustomId), "custom_id");
  }
  const auto method = text_member(*parsed, "method");
  if (!method) return tl::make_unexpected(method.error());
  if (*method != "POST") return bad_line("invalid_method", "The method of a batch's request must be POST.", "method");
  auto url = text_member(*parsed, "url");
  if (!url) return tl::make_unexpected(url.error());
  if (*url != endpoint) {
    return bad_line("invalid_url", "The URL provided for this request does not match the batch endpoint.", "url");
  }
  const auto body = parsed->find("body");
  if (body == parsed->end() || body->is_null()) {
    return bad_line("missing_required_parameter", "Missing required parameter: 'body'.", "body");
  }
  if (!body->is_object()) return bad_line("invalid_type", "'body' must be an object.", "body");
  return BatchRequest{std::move(*custom_id), std::move(*url), dump_json(*body)};
}

TokenUsage usage_of_body(std::string_view body) {
  const auto parsed = parse_json(body);
  if (!parsed || !parsed->is_object()) return {};
  const auto usage = parsed->find("usage");
  if (usage == parsed->end() || !usage->is_object()) return {};
  return {number_in(*usage, "prompt_tokens") + number_in(*usage, "input_tokens"),
          number_in(*usage, "prompt_tokens_details", "cached_tokens") +
              number_in(*usage, "input_tokens_details", "cached_tokens"),
          number_in(*usage, "completion_tokens") + number_in(*usage, "output_tokens"),
          number_in(*usage, "completion_tokens_details", "reasoning_tokens") +
              number_in(*usage, "output_tokens_details", "reasoning_tokens")};
}

std::string answer_line(const std::string& custom_id, const std::string& request_id, int status,
                        std::string_view body) {
  std::string line = R"({"id":)";
  append_json_string(line, make_id("batch_req_"));
  line += R"(,"custom_id":)";
  append_json_string(line, custom_id);
  line += fmt::format(R"(,"response":{{"status_code":{},"request_id":)", status);
  append_json_string(line, request_id);
  line += R"(,"body":)";
  if (body.find('\n') == std::string_view::npos) {
    line += body;
  } else {
    const auto parsed = parse_json(body);
    line += parsed ? dump_json(*parsed) : "null";
  }
  line += R"(},"error":null})";
  return line;
}

std::string unanswered_line(const std::string& custom_id, const std::string& code, const std::string& message) {
  return dump_json(Json{{"id", make_id("batch_req_")},
                        {"custom_id", custom_id},
                        {"response", nullptr},
                        {"error", {{"code", code}, {"message", message}}}});
}

std::string encode_record(const std::string& batch_id, const AnswerRecord& record) {
  const TokenUsage& usage = record.usage;
  std::string payload = fmt::format("{} {} {} {} {} {} ", record.number, record.failed ? 'e' : 'o', usage.input,
                                    usage.cached, usage.output, usage.reasoning);
  payload += record.text;
  return fmt::format("{:016x} {}\n", check_of(batch_id, payload), payload);
}

std::optional<AnswerRecord> decode_record(const std::string& batch_id, std::string_view line) {
  if (line.size() <= kCheckDigits || line[kCheckDigits] != ' ') return std::nullopt;
  std::uint64_t check = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + kCheckDigits, check, 16);
  if (error != std::errc() || end != line.data() + kCheckDigits) return std::nullopt;
  line.remove_prefix(kCheckDigits + 1);
  if (check_of(batch_id, line) != check) return std::nullopt;
  AnswerRecord record;
  const auto take_word = [&line] {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    return word;
  };
  const auto take_number = [&](std::int64_t& number) {
    const std::string_view word = take_word();
    return std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc();
  };
  if (!take_number(record.number) || record.number < 0) return std::nullopt;
  record.failed = take_word() == "e";
  TokenUsage& usage = record.usage;
  if (!take_number(usage.input) || !take_number(usage.cached)) return std::nullopt;
  if (!take_number(usage.output) || !take_number(usage.reasoning)) return std::nullopt;
  record.text = line;
  return record;
}

}  // namespace quire
