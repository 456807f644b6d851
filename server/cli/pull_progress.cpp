#include "server/cli/downloads.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "server/hub/pull.h"

namespace quire::cli {

namespace {

using PullClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kLogged{5'000};
constexpr int kBarWidth = 24;

double seconds_since(PullClock::time_point then) {
  return std::chrono::duration<double>(PullClock::now() - then).count();
}

// Shows a pull's progress at intervals that suit stderr: a terminal or a log.
class ProgressShow {
 public:
  explicit ProgressShow(std::string model) : model_(std::move(model)) {}

  void update(const hub::PullProgress& progress) {
    if (progress.phase == hub::PullProgress::Phase::kDownloading && !began_) {
      began_ = PullClock::now();
      bytes_at_begin_ = progress.num_bytes;
    }
    if (PullClock::now() - shown_at_ < (is_terminal_ ? kRedraw : kLogged)) return;
    shown_at_ = PullClock::now();
    const std::string text = model_ + ": " + progress_text(progress, rate(progress));
    if (is_terminal_) return show_progress_line(text, false);
    log::info("{}", text);
  }

  void end(const hub::PullProgress& progress) {
    if (!began_) return;  // nothing had to be downloaded
    const std::string text = fmt::format("{}: downloaded {} in {:.0f} s", model_,
                                         hub::size_text(progress.num_bytes - bytes_at_begin_), seconds_since(*began_));
    if (is_terminal_) return show_progress_line(text, true);
    log::info("{}", text);
  }

  void clear() const { show_progress_line("", false); }

 private:
  double rate(const hub::PullProgress& progress) const {
    const double seconds = began_ ? seconds_since(*began_) : 0.0;
    return seconds > 0.5 ? static_cast<double>(progress.num_bytes - bytes_at_begin_) / seconds : 0.0;
  }

  const std::string model_;
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::optional<PullClock::time_point> began_;
  std::int64_t bytes_at_begin_ = 0;
  PullClock::time_point shown_at_{};
};

}  // namespace

std::string progress_text(const hub::PullProgress& progress, double bytes_per_second) {
  using Phase = hub::PullProgress::Phase;
  if (progress.phase == Phase::kListing) return "looking for its files";
  const std::string name = printable(std::filesystem::path(progress.file).filename().string());
  if (progress.phase == Phase::kWaiting) return fmt::format("{}: another process downloads it", name);
  const double share =
      progress.size > 0 ? static_cast<double>(progress.num_bytes) / static_cast<double>(progress.size) : 1.0;
  const auto filled = static_cast<int>(share * kBarWidth);
  std::string text =
      fmt::format("{} {}/{} [{}{}] {:.0f}% {} of {}", progress.phase == Phase::kChecking ? "checking" : "downloading",
                  progress.file_number, progress.num_files, std::string(static_cast<std::size_t>(filled), '#'),
                  std::string(static_cast<std::size_t>(kBarWidth - filled), '.'), 100.0 * share,
                  hub::size_text(progress.num_bytes), hub::size_text(progress.size));
  if (bytes_per_second <= 0.0) return text;
  const auto left =
      static_cast<std::int64_t>(static_cast<double>(progress.size - progress.num_bytes) / bytes_per_second);
  return text + fmt::format(", {}/s, {}:{:02} left", hub::size_text(static_cast<std::int64_t>(bytes_per_second)),
                            left / 60, left % 60);
}

hub::CachedModel pull_with_progress(const std::string& reference) {
  const auto model = hub::parse_reference(reference);
  if (!model) throw StartupError(model.error().message);
  hub::Pull pull(hub::read_environment(), *model, 0, {});
  ProgressShow show(model->text());
  show.update(pull.progress());
  while (true) {
    const auto done = pull.step();
    if (!done) {
      show.clear();
      throw StartupError(done.error().message);
    }
    if (*done) break;
    show.update(pull.progress());
  }
  show.end(pull.progress());
  return pull.result();
}

}  // namespace quire::cli
