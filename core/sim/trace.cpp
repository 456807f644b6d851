#include "core/sim/trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

namespace quire::sim {

namespace {

constexpr double kMostEncoderSeconds = 1e6;
constexpr std::int32_t kMaxTokens = 1 << 24;  // tokens of a prompt or an output; more is a damaged trace

class VectorSource : public TraceSource {
 public:
  explicit VectorSource(std::vector<TraceRequest> requests) : requests_(std::move(requests)) {}
  bool next(TraceRequest& request) override {
    if (position_ == requests_.size()) return false;
    request = requests_[position_++];
    return true;
  }

 private:
  std::vector<TraceRequest> requests_;
  std::size_t position_ = 0;
};

Result<std::string> read_text(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // plain files pass through unchanged
  if (file == nullptr) return invalid(fmt::format("{}: cannot be opened", path));
  std::string text;
  std::vector<char> buffer(1 << 20);
  int count = 0;
  while ((count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  gzclose(file);
  if (count < 0) return invalid(fmt::format("{}: cannot be read to its end", path));
  return text;
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

bool plausible(const TraceRequest& request) {
  std::int64_t end = 0;
  for (const TraceImage& image : request.images) {
    const bool is_image = image.num_tokens > 0 && image.seconds >= 0.0 && image.seconds <= kMostEncoderSeconds &&
                          image.id >= 0 && image.id <= kMostImageId && image.begin >= end;
    if (!is_image) return false;
    end = std::int64_t{image.begin} + image.num_tokens;
  }
  return request.num_prompt_tokens > 0 && request.num_prompt_tokens <= kMaxTokens && request.num_output_tokens > 0 &&
         request.num_output_tokens <= kMaxTokens && end <= request.num_prompt_tokens;
}

// Seconds of "2023-11-16 18:15:46.6805900" since its month began: only differences are used, and traces span hours.
std::optional<double> parse_timestamp(std::string_view text) {
  if (text.size() < 19) return std::nullopt;
  const auto day = parse_number<int>(text.substr(8, 2));
  const auto hour = parse_number<int>(text.substr(11, 2));
  const auto minute = parse_number<int>(text.substr(14, 2));
  const auto second = parse_number<double>(text.substr(17));
  if (!day || !hour || !minute || !second) return std::nullopt;
  return ((*day * 24.0 + *hour) * 60.0 + *minute) * 60.0 + *second;
}

std::optional<TraceRequest> parse_csv_line(std::string_view line) {
  const std::size_t first = line.find(',');
  const std::size_t second = first == std::string_view::npos ? first : line.find(',', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto time = parse_timestamp(line.substr(0, first));
  const auto prompt = parse_number<std::int32_t>(line.substr(first + 1, second - first - 1));
  const auto output = parse_number<std::int32_t>(line.substr(second + 1));
  if (!time || !prompt || !output) return std::nullopt;
  return TraceRequest{*time, *prompt, *output, {}, {}};
}

// The text after "name": in a flat JSON object.
std::optional<std::string_view> member(std::string_view line, std::string_view name) {
  const std::string quoted = fmt::format("\"{}\"", name);
  std::size_t at = line.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  at = line.find_first_not_of(" :", at + quoted.size());
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at);
}

// [[tokens, seconds, id], [tokens, seconds, id, first token], ...]: without a first token behind the image before it.
std::optional<std::vector<TraceImage>> parse_images(std::string_view text) {
  std::vector<TraceImage> images;
  if (!text.starts_with('[')) return std::nullopt;
  std::size_t at = text.find_first_not_of(" ,", 1);
  while (at != std::string_view::npos && text[at] == '[') {
    const std::size_t close = text.find(']', at);
    if (close == std::string_view::npos) return std::nullopt;
    std::vector<double> numbers;
    std::string_view rest = text.substr(at + 1, close - at - 1);
    while (!rest.empty()) {
      const auto number = parse_number<double>(rest);
      if (!number || !(std::abs(*number) <= kMostImageId)) return std::nullopt;
      numbers.push_back(*number);
      const std::size_t comma = rest.find(',');
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    if (numbers.size() != 3 && numbers.size() != 4) return std::nullopt;
    const std::int64_t behind = images.empty() ? 0 : std::int64_t{images.back().begin} + images.back().num_tokens;
    if (behind > kMaxTokens) return std::nullopt;
    images.push_back({static_cast<std::int32_t>(numbers[0]), numbers[1], static_cast<std::int32_t>(numbers[2]),
                      numbers.size() == 4 ? static_cast<std::int32_t>(numbers[3]) : static_cast<std::int32_t>(behind)});
    at = text.find_first_not_of(" ,", close + 1);
  }
  if (at == std::string_view::npos || text[at] != ']') return std::nullopt;
  return images;
}

std::optional<TraceRequest> parse_json_line(std::string_view line) {
  const auto time = member(line, "timestamp");
  const auto prompt = member(line, "input_length");
  const auto output = member(line, "output_length");
  if (!time || !prompt || !output) return std::nullopt;
  const auto milliseconds = parse_number<double>(*time);
  const auto num_prompt = parse_number<std::int32_t>(*prompt);
  const auto num_output = parse_number<std::int32_t>(*output);
  if (!milliseconds || !num_prompt || !num_output) return std::nullopt;
  TraceRequest request{*milliseconds / 1000.0, *num_prompt, *num_output, {}, {}};
  if (const auto given = member(line, "images")) {
    auto images = parse_images(*given);
    if (!images) return std::nullopt;
    request.images = *std::move(images);
  }
  const auto ids = member(line, "hash_ids");
  if (!ids) return request;
  if (ids->front() != '[') return std::nullopt;
  std::string_view rest = ids->substr(1, ids->find(']') - 1);
  while (!rest.empty()) {
    const auto id = parse_number<std::int32_t>(rest);
    if (!id) return std::nullopt;
    request.hash_ids.push_back(*id);
    const std::size_t comma = rest.find(',');
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return request;
}

}  // namespace

Result<std::unique_ptr<TraceSource>> open_trace(const std::string& path, double speed) {
  Result<std::string> text = read_text(path);
  if (!text) return tl::make_unexpected(std::move(text.error()));
  std::vector<TraceRequest> requests;
  std::string_view rest = *text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.starts_with("TIMESTAMP")) continue;
    std::optional<TraceRequest> request = line.front() == '{' ? parse_json_line(line) : parse_csv_line(line);
    if (!request || !plausible(*request)) {
      return invalid(fmt::format(
          "{}:{}: neither Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) nor Mooncake's JSON "
          "(timestamp, input_length, output_length, hash_ids), or its images are not [tokens, seconds, id] within "
          "the prompt",
          path, number));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return invalid(fmt::format("{}: holds no requests", path));
  const auto earlier = [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_s < b.arrival_s; };
  std::stable_sort(requests.begin(), requests.end(), earlier);
  const double begin = requests.front().arrival_s;
  for (TraceRequest& request : requests)
    request.arrival_s = (request.arrival_s - begin) / speed;
  return std::make_unique<VectorSource>(std::move(requests));
}

std::vector<TokenId> prompt_tokens(const TraceRequest& request, std::int64_t number) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(request.num_prompt_tokens));
  // Shared blocks have even ids, a request's own text odd ones, so they never coincide.
  const TokenId own{static_cast<std::int32_t>(number * 2 + 1)};
  for (std::int32_t i = 0; i < request.num_prompt_tokens; ++i) {
    const auto block = static_cast<std::size_t>(i / kHashBlockSize);
    tokens.push_back(block < request.hash_ids.size() ? TokenId{request.hash_ids[block] * 2} : own);
  }
  // Texts and outputs have no such ids.
  for (const TraceImage& image : request.images)
    std::fill_n(tokens.begin() + image.begin, image.num_tokens, TokenId{-(1 << 30) + image.id});
  return tokens;
}

}  // namespace quire::sim
