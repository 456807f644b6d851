#include "server/wire/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <limits>

#include "core/base/ascii.h"
#include "server/wire/request_syntax.h"

namespace quire {

namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

// The shortest chunked body.
constexpr std::size_t kShortestChunks = std::string_view("0\r\n\r\n").size();

struct BeastRefusal {
  http::error error;
  int status;
  const char* code;
  const char* message;
};

constexpr BeastRefusal kHeadRefusals[] = {
    {http::error::bad_method, 400, "invalid_method", "Malformed request method"},
    {http::error::bad_target, 400, "invalid_target", "The request target must be a path or an absolute URI"},
    {http::error::bad_version, 505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served"},
    {http::error::bad_content_length, 400, "invalid_content_length", "Content-Length is not a number"},
    {http::error::bad_field, 400, "invalid_header", "Invalid character in a header field's name"},
    {http::error::bad_value, 400, "invalid_header", "Invalid character in a header field's value"},
};

HttpRefusal head_refusal(const error_code& error) {
  for (const BeastRefusal& refusal : kHeadRefusals) {
    if (error == refusal.error) return HttpRefusal{refusal.status, refusal.code, refusal.message};
  }
  return HttpRefusal{400, "invalid_request", "Malformed request"};
}

HttpRefusal body_refusal(const error_code& error) {
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension ||
      error == http::error::bad_line_ending) {
    return HttpRefusal{400, "invalid_chunk", "Malformed chunk size or chunk extension"};
  }
  return HttpRefusal{400, "invalid_trailer", "Malformed trailer field, or one that frames or routes a request"};
}

HttpRefusal too_large(std::size_t max_bytes) {
  return HttpRefusal{413, "request_too_large", "The body is longer than " + std::to_string(max_bytes) + " bytes"};
}

std::string own_text(BeastView view) {
  return std::string(view.data(), view.size());
}

}  // namespace

class RequestParser::Beast final : public http::basic_parser<true> {
 public:
  explicit Beast(RequestHead& head) : head_(head) {
    // The caller limits both, and answers each violation.
    header_limit(std::numeric_limits<std::uint32_t>::max());
    body_limit(boost::none);
  }

  bool knows_method() const { return verb_ != http::verb::unknown && verb_ != http::verb::connect; }
  bool says_close() const { return says_close_; }

  void limit(std::size_t max_bytes) { max_bytes_ = max_bytes; }
  std::size_t read_body(std::string_view input, std::string& out, error_code& error) {
    out_ = &out;
    eager(true);
    return put(boost::asio::buffer(input), error);
  }
  std::uint64_t num_decoded() const { return num_decoded_; }
  // Beast's parser fails an assertion if it is called twice for the first chunk with less than the shortest chunked
  // body.
  std::size_t fewest_bytes() const { return chunked() && !has_chunk_ ? kShortestChunks : 1; }
  std::optional<HttpRefusal> take_refusal() { return std::exchange(refusal_, std::nullopt); }

 private:
  void on_request_impl(http::verb verb, BeastView method, BeastView target, int version, error_code&) override {
    verb_ = verb;
    head_.method = own_text(method);
    head_.target = own_text(target);
    head_.minor_version = version % 10;
  }
  void on_response_impl(int, BeastView, int, error_code&) override {}

  void on_field_impl(http::field field, BeastView name, BeastView value, error_code& error) override {
    if (in_body_) {
      if (field == http::field::host) error = http::error::bad_field;
      return count_overhead(name.size() + value.size(), error);
    }
    if (field == http::field::connection) says_close_ = says_close_ || http::token_list(value).exists("close");
    head_.fields.push_back(HeaderField{lowered(std::string_view(name.data(), name.size())), own_text(value)});
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override { in_body_ = true; }

  std::size_t on_body_impl(BeastView data, error_code&) override {
    out_->append(data.data(), data.size());
    num_decoded_ += data.size();
    return data.size();
  }

  void on_chunk_header_impl(std::uint64_t size, BeastView extensions, error_code& error) override {
    has_chunk_ = true;
    // Some readers take a line end within quotes as one.
    if (!std::all_of(extensions.begin(), extensions.end(), is_field_value_char)) {
      error = http::error::bad_chunk_extension;
    } else if (size > max_bytes_ - num_decoded_) {
      refusal_ = too_large(max_bytes_);
      error = http::error::body_limit;
    } else {
      count_overhead(extensions.size(), error);
    }
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView data, error_code& error) override {
    return on_body_impl(data, error);
  }
  void on_finish_impl(error_code&) override {}

  void count_overhead(std::size_t num_bytes, error_code& error) {
    overhead_ += num_bytes;
    if (overhead_ <= kMaxOverhead) return;
    refusal_ = HttpRefusal{431, "headers_too_large", "Too many chunk extensions or trailers"};
    error = http::error::header_limit;
  }

  RequestHead& head_;
  http::verb verb_ = http::verb::unknown;
  bool says_close_ = false;
  bool in_body_ = false;
  bool has_chunk_ = false;
  std::size_t max_bytes_ = 0;
  std::uint64_t num_decoded_ = 0;
  std::size_t overhead_ = 0;  // bytes of extensions and trailers
  std::string* out_ = nullptr;
  std::optional<HttpRefusal> refusal_;  // the reason why a callback stopped the parser
};

RequestParser::RequestParser(std::size_t max_head_bytes) : max_head_bytes_(max_head_bytes) {}
RequestParser::~RequestParser() = default;

void RequestParser::refuse(int status, const char* code, std::string message) {
  refusal_ = HttpRefusal{status, code, std::move(message)};
}

std::size_t RequestParser::feed_head(std::string_view input) {
  std::size_t empty_lines = 0;
  while (scanned_ == 0 && input.starts_with("\r\n")) {
    input.remove_prefix(2);
    empty_lines += 2;
  }
  if (scanned_ == 0 && input == "\r") return empty_lines;
  while (scanned_ < input.size() && !refusal_) {
    if (!take_byte(input)) continue;
    parse_head(input.substr(0, scanned_));
    return empty_lines + scanned_;
  }
  return empty_lines;
}

// Returns true at the head's last byte. Bytes that are not text are refused at once, because there may be no end.
bool RequestParser::take_byte(std::string_view input) {
  const char c = input[scanned_];
  const bool after_cr = scanned_ > 0 && input[scanned_ - 1] == '\r';
  ++scanned_;
  const bool in_request_line = line_begin_ == 0;
  if (after_cr != (c == '\n')) {
    refuse(400, "invalid_line_ending", "A line of the request's head does not end with CRLF");
  } else if (c != '\r' && c != '\n' && !is_field_value_char(c)) {
    refuse(400, in_request_line ? "invalid_request" : "invalid_header", "Control character in the request's head");
  } else if (scanned_ > max_head_bytes_) {
    refuse(in_request_line ? 414 : 431, in_request_line ? "uri_too_long" : "headers_too_large",
           "The request's head is longer than " + std::to_string(max_head_bytes_) + " bytes");
  } else if (c == '\n') {
    return scanned_ - std::exchange(line_begin_, scanned_) == 2;
  }
  return false;
}

void RequestParser::parse_head(std::string_view head) {
  refusal_ = check_raw_head(head);
  if (refusal_) return;
  auto beast = std::make_unique<Beast>(head_);
  error_code error;
  const std::size_t taken = beast->put(boost::asio::buffer(head), error);
  if (error || taken != head.size() || !beast->is_header_done()) {
    refusal_ = head_refusal(error);
    return;
  }
  beast_ = std::move(beast);
  finish_head();
}

void RequestParser::finish_head() {
  if (!beast_->knows_method()) {
    return refuse(501, "method_not_implemented", "The method " + head_.method + " is not served here");
  }
  if (!split_target(head_)) {
    return refuse(400, "invalid_target", "The request target must be a path or an absolute URI");
  }
  head_.chunked = beast_->chunked();
  if (const auto length = beast_->content_length()) head_.content_length = *length;
  head_.keep_alive = beast_->keep_alive() && !beast_->says_close();
  head_.names_host = head_.names_host || std::any_of(head_.fields.begin(), head_.fields.end(),
                                                     [](const HeaderField& field) { return field.name == "host"; });
  const std::string expected = lowered(head_.field("expect"));
  if (!expected.empty() && expected != "100-continue") {
    return refuse(417, "expectation_failed", "Unknown expectation");
  }
  head_.expects_continue = !expected.empty();
  // An offer of h2c may be ignored, and common Java clients always make it; with any other protocol the client will
  // expect to speak it.
  const std::string protocol = lowered(head_.field("upgrade"));
  head_.asks_socket = beast_->upgrade() && protocol == "websocket" && head_.method == "GET" && !head_.has_body();
  if (!head_.asks_socket && beast_->upgrade() && !protocol.empty() && protocol != "h2c") {
    refuse(400, "upgrade_unsupported", "No protocol upgrade is served");
  }
}

void RequestParser::limit_body(std::size_t max_bytes) {
  beast_->limit(max_bytes);
  if (beast_->content_length().value_or(0) > max_bytes) refusal_ = too_large(max_bytes);
}

std::size_t RequestParser::feed_body(std::string_view input, std::string& out) {
  if (done() || refusal_ || input.size() < beast_->fewest_bytes()) return 0;
  error_code error;
  const std::size_t taken = beast_->read_body(input, out, error);
  if (error == http::error::need_more) {
    if (input.size() - taken > kMaxOverhead) refuse(431, "headers_too_large", "Too many chunk extensions or trailers");
  } else if (error) {
    refusal_ = beast_->take_refusal();
    if (!refusal_) refusal_ = body_refusal(error);
  }
  return taken;
}

std::uint64_t RequestParser::num_decoded() const {
  return beast_ ? beast_->num_decoded() : 0;
}

bool RequestParser::done() const {
  return beast_ && beast_->is_done();
}

}  // namespace quire
