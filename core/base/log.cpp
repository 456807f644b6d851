#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <memory>
#include <string>

namespace quire::log {

namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace: return spdlog::level::trace;
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The few characters that would break a JSON string or forge a second log line.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})";
constexpr const char* kJsonLogger = "json";

}  // namespace

void configure(const LogOptions& options) {
  const bool json = options.format == "json";
  auto logger = std::make_shared<spdlog::logger>(json ? kJsonLogger : "text",
                                                 std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern(json ? kJsonPattern : kTextPattern);
  logger->set_level(spdlog::level::from_str(options.level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void set_level(const std::string& level) {
  spdlog::default_logger_raw()->set_level(spdlog::level::from_str(level));
}

bool enabled(Level level) {
  return spdlog::default_logger_raw()->should_log(to_spdlog(level));
}

void write(Level level, std::string_view message) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (logger->name() == kJsonLogger) {
    logger->log(to_spdlog(level), "\"message\":\"{}\"", escaped(message));
  } else {
    logger->log(to_spdlog(level), "{}", message);
  }
}

void write_formatted(Level level, fmt::string_view format, fmt::format_args args) noexcept {
  try {
    write(level, fmt::vformat(format, args));
  } catch (const std::exception&) {  // no memory for the line
  }
}

void event(Level level, std::string_view message, std::span<const Field> fields) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const bool json = logger->name() == kJsonLogger;
  std::string line = json ? fmt::format("\"message\":\"{}\"", escaped(message)) : std::string(message);
  for (const Field& field : fields) {
    line += json ? fmt::format(",\"{}\":", field.name) : fmt::format(" {}=", field.name);
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      line += json ? fmt::format("\"{}\"", escaped(*text)) : escaped(*text);
    } else if (const auto* count = std::get_if<std::int64_t>(&field.value)) {
      line += fmt::format("{}", *count);
    } else {
      line += fmt::format("{:.3f}", std::get<double>(field.value));
    }
  }
  logger->log(to_spdlog(level), "{}", line);
}

}  // namespace quire::log
