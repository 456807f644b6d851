#include "server/http/admin_pages.h"

#include <charconv>

namespace quire {

namespace {

constexpr int kLongestTrace = 60;  // seconds

Error not_here() {
  return Error{ErrorKind::kUnavailable, "The server has nothing to do this with yet", "model_loading", "",
               std::chrono::seconds(1)};
}

}  // namespace

Result<AdminTask> admin_reload(ServerState& state, const Call&) {
  if (!state.admin.reload) return tl::make_unexpected(not_here());
  return AdminTask{.finish = state.admin.reload};
}

Result<AdminTask> admin_trace(ServerState& state, const Call& call) {
  constexpr std::string_view kName = "seconds=";
  const std::string_view query = call.query;
  int seconds = 0;
  const std::string_view digits = query.substr(query.starts_with(kName) ? kName.size() : query.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  if (error != std::errc() || end != digits.data() + digits.size() || seconds < 1 || seconds > kLongestTrace) {
    return invalid("'seconds' must be an integer from 1 to " + std::to_string(kLongestTrace), "seconds");
  }
  if (!state.admin.trace) return tl::make_unexpected(not_here());
  return state.admin.trace("", std::chrono::seconds(seconds));
}

}  // namespace quire
