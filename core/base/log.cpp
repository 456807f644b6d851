#include "core/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/log_buffer.h"

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

// Escapes the characters that would break a JSON string or forge a second log line.
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

// Colour of the level's name on a terminal.
std::string_view colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace: return "\033[37m";
    case spdlog::level::debug: return "\033[36m";
    case spdlog::level::info: return "\033[32m";
    case spdlog::level::warn: return "\033[33m\033[1m";
    default: return "\033[31m\033[1m";
  }
}

// Formats lines, and writes them or gives them to the buffer.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::shared_ptr<LogBuffer> buffer() {
    const std::lock_guard lock(mutex_);
    return buffer_;
  }
  // null: lines are written at once
  void set_buffer(std::shared_ptr<LogBuffer> buffer) {
    const std::lock_guard lock(mutex_);
    buffer_.swap(buffer);
  }
  // Drops all lines from now on.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  std::uint64_t num_dropped() {
    const std::lock_guard lock(mutex_);
    return buffer_ == nullptr ? 0 : buffer_->num_dropped();
  }
  std::unique_ptr<spdlog::formatter> formatter() {
    const std::lock_guard lock(mutex_);
    return formatter_->clone();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (is_closed_) return;
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::string_view rest(text.data(), text.size());
    std::string coloured;
    if (is_terminal_ && message.color_range_end > message.color_range_start) {
      coloured = rest;
      coloured.insert(message.color_range_end, "\033[m").insert(message.color_range_start, colour_of(message.level));
      rest = coloured;
    }
    if (buffer_ != nullptr) return buffer_->append(rest);
    while (!rest.empty()) {
      const ssize_t count = ::write(STDERR_FILENO, rest.data(), rest.size());
      if (count < 0 && errno != EINTR) return;
      if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void flush_() override {}

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::shared_ptr<LogBuffer> buffer_;  // null: none
  bool is_closed_ = false;
};

// Null if the logger was made by another program than Quire.
std::shared_ptr<Sink> current_sink() {
  const auto& sinks = spdlog::default_logger_raw()->sinks();
  return sinks.empty() ? nullptr : std::dynamic_pointer_cast<Sink>(sinks.front());
}

constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})";
constexpr const char* kJsonLogger = "json";
constexpr const char* kTextLogger = "text";
// Time for the last log lines to reach the reader.
constexpr std::chrono::milliseconds kLastWait{1000};

}  // namespace

void configure(const LogOptions& options) {
  const bool json = options.format == "json";
  auto logger = std::make_shared<spdlog::logger>(json ? kJsonLogger : kTextLogger, std::make_shared<Sink>());
  logger->set_pattern(json ? kJsonPattern : kTextPattern);
  logger->set_level(spdlog::level::from_str(options.level));
  spdlog::set_default_logger(std::move(logger));
}

Buffered::Buffered() {
  const auto sink = current_sink();
  if (sink == nullptr) return;
  const bool json = spdlog::default_logger_raw()->name() == kJsonLogger;
  const std::shared_ptr<spdlog::formatter> formatter = sink->formatter();
  LogBuffer::Options options;
  options.last_wait = std::chrono::milliseconds(0);  // the destructor below has waited
  options.announce = [json, formatter](std::uint64_t num_dropped) {
    const std::string message =
        fmt::format("lines of the log dropped, because its reader was too slow: {}", num_dropped);
    const std::string text = json ? fmt::format("\"message\":\"{}\"", message) : message;
    spdlog::memory_buf_t line;
    formatter->format(spdlog::details::log_msg(json ? kJsonLogger : kTextLogger, spdlog::level::warn, text), line);
    return std::string(line.data(), line.size());
  };
  sink->set_buffer(std::make_shared<LogBuffer>(std::move(options)));
}

Buffered::~Buffered() {
  const auto sink = current_sink();
  if (sink == nullptr) return;
  // A reader that still does not drain would delay all later log lines.
  if (const auto buffer = sink->buffer(); buffer != nullptr && !buffer->flush(kLastWait)) sink->close();
  sink->set_buffer(nullptr);
}

std::uint64_t num_dropped() {
  const auto sink = current_sink();
  return sink == nullptr ? 0 : sink->num_dropped();
}

void flush(std::chrono::milliseconds longest) {
  const auto sink = current_sink();
  const auto buffer = sink == nullptr ? nullptr : sink->buffer();
  if (buffer != nullptr) buffer->flush(longest);
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
