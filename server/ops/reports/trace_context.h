// TraceContext: a request's place in a caller's distributed trace (W3C Trace Context, level 1). Plain value and
// pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits; "": the request is not traced
  std::string parent_id;  // the caller's span: 16 digits, or "" where the trace begins here
  std::string span_id;    // this request's span
  bool sampled = false;
};

// Reads a traceparent header and adds a span of our own under it; nothing if the header is malformed, as the standard
// requires.
std::optional<TraceContext> parse_traceparent(std::string_view header);
// A trace that begins here.
TraceContext new_trace(bool sampled);
// A fresh id of that many hexadecimal digits, not all zero.
std::string random_hex(std::size_t num_digits);

}  // namespace quire
