// Session: answers to admin requests.
#include <boost/asio/steady_timer.hpp>

#include "server/session/session.h"
#include "server/threads/run_by.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

asio::awaitable<bool> Session::call_admin(AdminHandler handler) {
  auto body = co_await read_body();
  if (!body) co_return false;
  Call call = call_of_head();
  call.body = std::move(*body);
  const auto begin = guarded<AdminTask>(request_id_, [&] { return handler(state_, call); });
  auto task = co_await run_by<Result<AdminTask>>(state_.post_admin, begin);
  if constexpr (is_built(Module::kHub)) {
    if (task && task->pull) co_return co_await answer_pull(*task->pull);
  }
  Response response;
  if (task) {
    response = co_await finish_admin(*task);
  } else {
    response = error_response(task.error());
  }
  co_return co_await respond(std::move(response));
}

asio::awaitable<Response> Session::finish_admin(const AdminTask& task) {
  if (task.until) {
    const std::optional<std::chrono::milliseconds> unbounded;
    WaitResult waited = co_await wait_for_callback(state_, *transport_, task.until, unbounded);
    if (waited.error) co_return error_response(*waited.error);
  }
  if (task.wait.count() > 0) {
    asio::steady_timer timer(transport_->executor(), task.wait);
    co_await timer.async_wait(kUseTuple);
  }
  const auto finish = guarded<std::string>(request_id_, task.finish);
  auto done = co_await run_by<Result<std::string>>(state_.post_admin, finish);
  if (!done) co_return error_response(done.error());
  Response response;
  response.status = task.status;
  response.content_type = task.content_type;
  response.body = std::move(*done);
  co_return response;
}

}  // namespace quire
