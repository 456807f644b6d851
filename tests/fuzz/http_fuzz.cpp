#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/check.h"
#include "server/http/body_decoder.h"
#include "server/http/characters.h"
#include "server/http/head_parser.h"
#include "server/http/router.h"
#include "server/ops/trace_context.h"

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

// Feeds `reader` pieces of the text until it takes no more; what it left is removed from nothing but the text.
template <class Feed>
void feed(std::string_view& text, std::size_t piece, const Feed& feed_piece) {
  while (!text.empty()) {
    const std::size_t given = std::min(piece, text.size());
    const std::size_t taken = feed_piece(text.substr(0, given));
    QUIRE_CHECK(taken <= given, "a reader takes what it is given");
    text.remove_prefix(taken);
    if (taken < given) return;
  }
}

void show(const quire::HttpRefusal& refusal, std::string& shown) {
  QUIRE_CHECK(refusal.status >= 400 && !refusal.message.empty(), "a refusal says why");
  shown += "refused " + std::to_string(refusal.status) + " " + refusal.code + "\n";
}

// What a connection that brings these bytes is understood to ask, request after request.
std::string understood(std::string_view text, std::size_t piece) {
  std::string shown;
  while (!text.empty()) {
    quire::HeadParser parser(kMaxHead);
    feed(text, piece, [&](std::string_view part) { return parser.feed(part); });
    if (parser.refused()) return show(*parser.refused(), shown), shown;
    if (!parser.done()) return shown + "waits for a head\n";
    const quire::RequestHead head = parser.take();
    check_head(head);
    shown += head.method + ' ' + head.target + (head.keep_alive ? " keep\n" : " close\n");
    for (const auto& field : head.fields)
      shown += field.name + ':' + field.value + '\n';
    quire::BodyDecoder decoder(head, kMaxBody);
    std::string body;
    feed(text, piece, [&](std::string_view part) { return decoder.feed(part, body); });
    QUIRE_CHECK(body.size() <= kMaxBody, "a body keeps to its bound");
    if (decoder.refused()) return show(*decoder.refused(), shown), shown;
    if (!decoder.done()) return shown + "waits for a body\n";
    shown += body + "\n";
  }
  return shown;
}

}  // namespace

// Any bytes on a connection: what they are taken for does not depend on how they arrive.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = understood(text, text.size());
  QUIRE_CHECK(understood(text, 1) == whole, "bytes one by one mean the same");
  QUIRE_CHECK(understood(text, 7) == whole, "bytes in pieces mean the same");
  return 0;
}
