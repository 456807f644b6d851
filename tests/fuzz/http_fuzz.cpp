#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/check.h"
#include "server/ops/reports/trace_context.h"
#include "server/router.h"
#include "server/wire/request_parser.h"
#include "server/wire/request_syntax.h"

namespace {

constexpr std::size_t kMaxHead = 4096;
constexpr std::size_t kMaxBody = 2048;

void check_head(const quire::RequestHead& head) {
  QUIRE_CHECK(!head.method.empty() && !head.target.empty(), "a head has a method and a target");
  QUIRE_CHECK(!head.chunked || !head.content_length, "a body has one length");
  QUIRE_CHECK(std::ranges::all_of(head.target, [](char c) { return c > ' ' && c < '\x7f'; }), "a target is printable");
  for (const auto& field : head.fields) {
    QUIRE_CHECK(
        std::ranges::all_of(field.name, [](char c) { return quire::is_token_char(c) && !(c >= 'A' && c <= 'Z'); }),
        "a field's name is a token in lower case");
    QUIRE_CHECK(std::ranges::all_of(field.value, quire::is_field_value_char), "a field's value holds no line end");
  }
  quire::find_route(head.method, head.path);
  quire::parse_traceparent(head.field("traceparent"));
}

// A connection that delivers a text in pieces of one size.
class Arriving {
 public:
  Arriving(std::string_view text, std::size_t piece) : text_(text), piece_(piece) {}

  // Passes unconsumed input to `feed`, and more each time, until `is_over`. False if the text ends first.
  template <class Feed, class IsOver>
  bool feed(const Feed& feed, const IsOver& is_over) {
    while (true) {
      const std::size_t taken = feed(text_.substr(0, arrived_));
      QUIRE_CHECK(taken <= arrived_, "a reader takes what it is given");
      text_.remove_prefix(taken);
      arrived_ -= taken;
      if (is_over()) return true;
      if (arrived_ == text_.size()) return false;
      arrived_ = std::min(arrived_ + piece_, text_.size());
    }
  }
  bool is_empty() const { return text_.empty(); }

 private:
  std::string_view text_;
  std::size_t piece_;
  std::size_t arrived_ = 0;
};

void show(const quire::HttpRefusal& refusal, std::string& shown) {
  QUIRE_CHECK(refusal.status >= 400 && !refusal.message.empty(), "a refusal says why");
  shown += "refused " + std::to_string(refusal.status) + " " + refusal.code + "\n";
}

// Describes the requests read from a connection with these bytes, one after another.
std::string understood(std::string_view text, std::size_t piece) {
  std::string shown;
  Arriving connection(text, piece);
  while (!connection.is_empty()) {
    quire::RequestParser parser(kMaxHead);
    const bool has_head = connection.feed([&](std::string_view input) { return parser.feed_head(input); },
                                          [&] { return parser.head_done() || parser.refused(); });
    if (parser.refused()) return show(*parser.refused(), shown), shown;
    if (!has_head) return shown + "waits for a head\n";
    const quire::RequestHead head = parser.take_head();
    check_head(head);
    shown += head.method + ' ' + head.target + (head.keep_alive ? " keep\n" : " close\n");
    for (const auto& field : head.fields)
      shown += field.name + ':' + field.value + '\n';
    parser.limit_body(kMaxBody);
    std::string body;
    const bool has_body = connection.feed([&](std::string_view input) { return parser.feed_body(input, body); },
                                          [&] { return parser.done() || parser.refused(); });
    QUIRE_CHECK(body.size() <= kMaxBody && body.size() == parser.num_decoded(), "a body keeps to its bound");
    if (parser.refused()) return show(*parser.refused(), shown), shown;
    if (!has_body) return shown + "waits for a body\n";
    shown += body + "\n";
  }
  return shown;
}

}  // namespace

// Reads any bytes on a connection: the result must not depend on how they arrive.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = understood(text, text.size());
  QUIRE_CHECK(understood(text, 1) == whole, "bytes one by one mean the same");
  QUIRE_CHECK(understood(text, 7) == whole, "bytes in pieces mean the same");
  return 0;
}
