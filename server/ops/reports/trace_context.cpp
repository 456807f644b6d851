#include "server/ops/reports/trace_context.h"

#include <algorithm>
#include <random>

namespace quire {

namespace {

constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr std::size_t kHeaderSize = 55;  // version, trace, parent and flags with their dashes

// Only lower case is allowed by the standard.
bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

int digit_value(char c) {
  return c <= '9' ? c - '0' : c - 'a' + 10;
}

}  // namespace

std::string random_hex(std::size_t num_digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id;
  while (id.size() < num_digits || id.find_first_not_of('0') == std::string::npos) {
    if (id.size() >= num_digits) id.clear();
    id += kDigits[generator() & 15U];
  }
  return id;
}

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < kHeaderSize || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  const std::string_view trace = header.substr(3, kTraceDigits);
  const std::string_view parent = header.substr(36, kSpanDigits);
  const std::string_view flags = header.substr(53, 2);
  if (!is_hex(version) || version == "ff" || !is_id(trace) || !is_id(parent) || !is_hex(flags)) return std::nullopt;
  // Later versions may add text after a dash; this one may not.
  if (header.size() > kHeaderSize && (version == "00" || header[kHeaderSize] != '-')) return std::nullopt;
  return TraceContext{std::string(trace), std::string(parent), random_hex(kSpanDigits),
                      (digit_value(flags[1]) & 1) != 0};
}

TraceContext new_trace(bool sampled) {
  return TraceContext{random_hex(kTraceDigits), "", random_hex(kSpanDigits), sampled};
}

}  // namespace quire
