#include "server/session/admin_answer.h"

#include <boost/asio/steady_timer.hpp>

#include "server/modules/modules.h"
#include "server/session/download_answer.h"
#include "server/state/callback_wait.h"
#include "server/threads/run_by.h"

namespace quire {

namespace asio = boost::asio;

asio::awaitable<bool> AdminAnswer::give() {
  auto body = co_await body_.read();
  if (!body) co_return false;
  Call call = exchange_.new_call();
  call.body = std::move(*body);
  ServerState& state = exchange_.state();
  const auto begin = guarded<AdminTask>(exchange_.request_id(), [&] { return handler_(state, call); });
  auto task = co_await run_by<Result<AdminTask>>(state.post_admin, begin);
  if (!task) co_return co_await exchange_.respond(task.error());
  if constexpr (is_built(Module::kHub)) {
    if (task->pull) {
      DownloadAnswer answer(exchange_, *task->pull);
      co_return co_await answer.give();
    }
  }
  Response response = co_await finish(*task);
  co_return co_await exchange_.respond(std::move(response));
}

asio::awaitable<Response> AdminAnswer::finish(const AdminTask& task) {
  Transport& transport = *exchange_.transport();
  if (task.until) {
    WaitResult waited = co_await wait_for_callback(exchange_.state(), transport, task.until, kUnlimitedWait);
    if (waited.error) co_return error_response(*waited.error);
  }
  if (task.wait.count() > 0) {
    asio::steady_timer timer(transport.executor(), task.wait);
    co_await timer.async_wait(kUseTuple);
  }
  const auto finish = guarded<std::string>(exchange_.request_id(), task.finish);
  auto done = co_await run_by<Result<std::string>>(exchange_.state().post_admin, finish);
  if (!done) co_return error_response(done.error());
  Response response;
  response.status = task.status;
  response.content_type = task.content_type;
  response.body = std::move(*done);
  co_return response;
}

}  // namespace quire
