// The process log: a line per event to stderr, text or JSON. Any thread.
// This header hides spdlog, so that files that log do not compile it.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace quire {

struct LogOptions {
  std::string level = "info";   // trace, debug, info, warn, error, off
  std::string format = "text";  // text, json
};

}  // namespace quire

namespace quire::log {

enum class Level { kTrace, kDebug, kInfo, kWarn, kError };

void configure(const LogOptions& options);
// Changes the level from now on; `level` is one that configure() takes.
void set_level(const std::string& level);
bool enabled(Level level);
void write(Level level, std::string_view message);
// Formats the message; if there is no memory for it, the line is lost, and nothing is thrown.
void write_formatted(Level level, fmt::string_view format, fmt::format_args args) noexcept;

struct Field {
  std::string_view name;
  std::variant<std::string_view, std::int64_t, double> value;
};
// A line with named values: members of its JSON object, or name=value after the message.
void event(Level level, std::string_view message, std::span<const Field> fields);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write_formatted(Level::kDebug, format, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write_formatted(Level::kInfo, format, fmt::make_format_args(args...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write_formatted(Level::kWarn, format, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) write_formatted(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace quire::log
