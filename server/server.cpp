#include "server/server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <list>
#include <map>
#include <unordered_set>

#include "core/base/log.h"
#include "server/admin/handlers.h"
#include "server/api/common/errors.h"
#include "server/metrics/metrics.h"
#include "server/modules/modules.h"
#include "server/ops/process.h"
#include "server/run/batch_service.h"
#include "server/run/media_service.h"
#include "server/session/session.h"
#include "server/state/live_operations.h"
#include "server/state/server_parts.h"
#include "server/state/settings.h"
#include "server/threads/event_threads.h"
#include "server/threads/text_pool.h"
#include "server/wire/listener.h"
#include "server/wire/transport.h"
#include "server/wire/wakeup.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// Interval between points of the status page's history.
constexpr std::chrono::milliseconds kSampleStatusEvery{1000};
// Interval at which a drain checks whether everything has ended.
constexpr std::chrono::milliseconds kDrainTick{10};
// Time for a cut operation to send its error.
constexpr std::chrono::milliseconds kCutGrace{500};
// Time for a connection accepted just before a handover to send its first request.
constexpr std::chrono::milliseconds kFreshGrace{1000};

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, std::vector<HandedSocket> handed)
      : parts_(options),
        handed_(std::move(handed)),
        batches_(open_batches(state_, options.batches)),
        io_("io", static_cast<std::size_t>(options.io_threads), false),
        text_(static_cast<std::size_t>(options.text_threads)),
        media_(options.media, batches_.get()),
        admin_("admin", 1, true),
        reports_("reports", 1, true),
        signals_(io_.first()),
        stopped_(io_.first().get_executor()),
        stopped_again_(io_.first().get_executor()) {
    state_.text = &text_;
    state_.media = &media_;
    state_.batches = batches_.get();
    state_.post_admin = [this](std::function<void()> job) { asio::post(admin_.first(), std::move(job)); };
    state_.post_report = [this](std::function<void()> job) { asio::post(reports_.first(), std::move(job)); };
  }

  ~Impl() {
    io_.stop();
    text_.stop();
    media_.stop();
    admin_.stop();
    reports_.stop();
    io_.join();
    text_.join();
    media_.join();
    admin_.join();
    reports_.join();
    with_batches([](BatchService& batches) { batches.join(); });
  }

  void start() {
    ignore_deadly_signals();
    listen();
    for (const auto& listener : listeners_) {
      log::info("{} {}", listener->is_admin ? "the admin listener is at" : "listening on", listener->name());
      if (!listener->is_adopted()) keep_running([this, &listener] { return accept_loop(*listener); });
    }
    repeat(kSampleStatusEvery, [this] { sample_status(state_); });
    keep_running([this] { return drain_once_stopped(); });
    io_.on_failure([this] { revive(); });
    io_.start();
    text_.start();
    media_.start();
    admin_.start();
    reports_.start();
    with_batches([](BatchService& batches) { batches.start(); });
  }

  void handle_signals(std::function<void()> on_hangup) {
    on_hangup_ = std::move(on_hangup);
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    signals_.add(SIGXCPU);  // the limit of CPU time: a few seconds are left
    if (on_hangup_) signals_.add(SIGHUP);
    keep_running([this] { return signal_loop(); });
  }

  void on_drain(std::function<void()> begun, std::function<void()> over) {
    on_drain_ = std::move(begun);
    on_drained_ = std::move(over);
  }

  void repeat(std::chrono::milliseconds period, std::function<void()> callback) {
    asio::post(io_.first(), [this, period, callback = std::move(callback)] {
      repeat_timers_.push_back(std::make_unique<asio::steady_timer>(io_.first()));
      keep_running(
          [this, &timer = *repeat_timers_.back(), period, callback] { return repeat_loop(timer, period, callback); });
    });
  }

  std::uint16_t port(bool admin) const {
    for (const auto& listener : listeners_) {
      if (listener->is_admin == admin && listener->is_tcp()) return listener->port();
    }
    return 0;
  }
  ServerState& state() { return state_; }
  bool stopping() const { return num_stops_.load() > 0; }

  void serve(std::shared_ptr<const ModelTable> models) {
    state_.set_models(std::move(models));
    auto starting = ServerPhase::kStarting;
    if (!state_.phase.compare_exchange_strong(starting, ServerPhase::kServing)) return;
    for (const auto& listener : listeners_) {
      if (!listener->is_adopted()) continue;
      asio::post(io_.first(),
                 [this, &listener] { keep_running([this, &listener] { return accept_loop(*listener); }); });
    }
    with_batches([](BatchService& batches) { batches.post([&batches] { batches.wake(); }); });
  }

  void stop() {
    const bool is_first = num_stops_.fetch_add(1) == 0;
    (is_first ? stopped_ : stopped_again_).signal();
  }

  std::size_t wait() {
    io_.join();
    text_.stop();
    text_.join();
    media_.stop();
    media_.join();
    admin_.stop();
    admin_.join();
    reports_.stop();
    reports_.join();
    with_batches([](BatchService& batches) { batches.join(); });
    return num_cut_;
  }

 private:
  static std::shared_ptr<BatchService> open_batches([[maybe_unused]] ServerState& state, const BatchOptions& options) {
    if constexpr (is_built(Module::kBatches)) {
      if (!options.directory.empty()) return std::make_shared<BatchService>(state, options);
    }
    return nullptr;
  }

  // Does nothing if the module is left out or no folder is configured.
  template <class Work>
  void with_batches([[maybe_unused]] const Work& work) {
    if constexpr (is_built(Module::kBatches)) {
      if (batches_) work(*batches_);
    }
  }

  void listen() {
    const auto settings = state_.settings();
    const ServerOptions& options = settings->options;
    for (const HandedSocket& handed : handed_) {
      listeners_.push_back(Listener::adopt(io_.first(), handed.descriptor));
      listeners_.back()->is_admin = handed.name == "admin";
    }
    if (handed_.empty()) {
      listeners_.push_back(Listener::tcp(io_.first(), options.host, options.port));
      if (!options.unix_socket.empty()) {
        listeners_.push_back(
            Listener::unix_path(io_.first(), "server.unix_socket", options.unix_socket, options.unix_socket_mode));
      }
    }
    if (options.admin_listen.empty()) return;
    listeners_.push_back(
        Listener::at(io_.first(), "server.admin_listen", options.admin_listen, options.admin_socket_mode));
    listeners_.back()->is_admin = true;
  }

  asio::awaitable<void> accept_loop(Listener& listener) {
    asio::steady_timer pause(io_.first());
    while (listener.acceptor().is_open()) {
      asio::io_context& home = io_.next();
      auto [error, socket] = co_await listener.acceptor().async_accept(home, kUseTuple);
      if (!error) {
        try {
          admit(home, std::move(socket), listener);
        } catch (const std::exception& failure) {
          log::warn("accept: {}", failure.what());
        }
        continue;
      }
      if (error == asio::error::operation_aborted || !listener.acceptor().is_open()) co_return;
      // Usually file descriptors ran out: open connections continue, new ones wait in the backlog.
      log::warn("accept: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kUseTuple);
    }
  }

  void admit(asio::io_context& home, Listener::Socket socket, const Listener& listener) {
    const auto settings = state_.settings();
    std::string peer = peer_address(socket);
    if (state_.num_connections.load() >= settings->options.max_connections) return state_.metrics.connection_refused();
    if (!count_address(peer, listener.is_tcp() ? settings->options.max_connections_per_address : 0)) {
      return state_.metrics.connection_refused();
    }
    OpenConnection counted(*this, std::move(peer));
    const bool uses_tls = settings->tls != nullptr && listener.is_tcp() && !listener.is_admin;
    auto tls = uses_tls ? settings->tls->open(socket.native_handle()) : nullptr;
    counted.transport = std::make_shared<Transport>(std::move(socket), counted.peer, std::move(tls));
    asio::co_spawn(home, serve_connection(std::move(counted), listener.is_admin), asio::detached);
  }

  // Returns false if the address has its maximum of connections; 0: no limit.
  bool count_address(const std::string& peer, std::int64_t bound) {
    const std::lock_guard lock(transports_mutex_);
    std::int64_t& count = num_by_address_[peer];
    if (bound > 0 && count >= bound) return false;
    ++count;
    return true;
  }

  // Counts a connection from its acceptance until its coroutine ends, however it ends.
  struct OpenConnection {
    OpenConnection(Impl& of, std::string address) : server(&of), peer(std::move(address)) {
      ++server->state_.num_connections;
      server->state_.metrics.connection_opened();
    }
    OpenConnection(OpenConnection&& other) noexcept
        : server(std::exchange(other.server, nullptr)),
          peer(std::move(other.peer)),
          transport(std::move(other.transport)) {}
    OpenConnection& operator=(OpenConnection&&) = delete;
    ~OpenConnection() {
      if (server == nullptr) return;
      if (transport) transport->close();
      server->forget(*this);
    }

    Impl* server;
    std::string peer;
    std::shared_ptr<Transport> transport;
  };

  void forget(const OpenConnection& connection) {
    {
      const std::lock_guard lock(transports_mutex_);
      transports_.erase(connection.transport);
      const auto address = num_by_address_.find(connection.peer);
      if (--address->second == 0) num_by_address_.erase(address);
    }
    --state_.num_connections;
    state_.metrics.connection_closed();
  }

  asio::awaitable<void> serve_connection(OpenConnection open, bool is_admin) {
    {
      const std::lock_guard lock(transports_mutex_);
      transports_.insert(open.transport);
    }
    try {
      Connection connection(state_, open.transport, is_admin);
      co_await connection.run();
    } catch (const std::exception& failure) {
      log::error("connection: {}", failure.what());
    }
  }

  // A coroutine of the first io thread that runs until the drain's end, and is restarted if it fails.
  struct LongLoop {
    std::function<asio::awaitable<void>()> run;
    bool is_running = false;
    bool has_ended = false;  // ended normally
  };
  struct Running {
    explicit Running(LongLoop& of) : loop(&of) { loop->is_running = true; }
    Running(Running&& other) noexcept : loop(std::exchange(other.loop, nullptr)) {}
    Running& operator=(Running&&) = delete;
    ~Running() {
      if (loop != nullptr) loop->is_running = false;
    }

    LongLoop* loop;
  };

  void keep_running(std::function<asio::awaitable<void>()> run) {
    loops_.push_back({std::move(run)});
    begin(loops_.back());
  }

  // An exception leaves the event loop, which then calls revive().
  void begin(LongLoop& loop) {
    asio::co_spawn(io_.first(), run_loop(Running(loop)), [](const std::exception_ptr& failure) {
      if (failure) std::rethrow_exception(failure);
    });
  }

  static asio::awaitable<void> run_loop(Running running) {
    co_await running.loop->run();
    running.loop->has_ended = true;
  }

  void revive() {
    for (LongLoop& loop : loops_) {
      if (!loop.is_running && !loop.has_ended) begin(loop);
    }
  }

  asio::awaitable<void> signal_loop() {
    while (true) {
      const auto [error, number] = co_await signals_.async_wait(kUseTuple);
      if (error) co_return;
      if (number == SIGHUP) {
        asio::post(admin_.first(), on_hangup_);
        continue;
      }
      log::info("signal {}: {}", number, stopping() ? "cutting what is left" : "draining");
      stop();
    }
  }

  // A second stop() ends the pause.
  asio::awaitable<void> pause(std::chrono::milliseconds duration) {
    if (num_stops_.load() < 2) co_await stopped_again_.wait(Clock::now() + duration);
  }

  asio::awaitable<void> drain_once_stopped() {
    while (num_stops_.load() == 0)
      co_await stopped_.wait();
    co_await drain();
  }

  asio::awaitable<void> drain() {
    const bool serving = state_.phase.exchange(ServerPhase::kDelaying) == ServerPhase::kServing;
    hand_back();
    if (on_drain_) on_drain_();
    if (serving) co_await pause(state_.settings()->options.drain.delay);
    state_.phase = ServerPhase::kRefusing;
    with_batches([](BatchService& batches) { batches.stop(); });
    state_.sockets.cut(shutting_down());
    const auto deadline = Clock::now() + state_.settings()->options.drain.deadline;
    const auto fresh_until = Clock::now() + (state_.handing_over.load() ? kFreshGrace : std::chrono::milliseconds(0));
    const auto is_busy = [&] {
      return state_.num_busy.load() > 0 || (state_.num_fresh.load() > 0 && Clock::now() < fresh_until);
    };
    while (is_busy() && num_stops_.load() < 2 && Clock::now() < deadline)
      co_await pause(kDrainTick);
    for (const auto& listener : listeners_)
      listener->close();
    signals_.cancel();
    num_cut_ = state_.live.cut(shutting_down());
    text_.interrupt();
    const auto grace = Clock::now() + kCutGrace;
    asio::steady_timer tick(io_.first());
    while (state_.num_busy.load() > 0 && Clock::now() < grace) {
      tick.expires_after(kDrainTick);
      co_await tick.async_wait(kUseTuple);
    }
    state_.phase = ServerPhase::kStopped;
    close_connections();
    for (const auto& timer : repeat_timers_)
      timer->cancel();
    if (on_drained_) on_drained_();
    io_.release();
  }

  // A handed-over socket belongs to the next process: new connections wait for it, and clients move over with their
  // next request.
  void hand_back() {
    for (const auto& listener : listeners_) {
      if (!listener->is_adopted()) continue;
      state_.handing_over = true;
      listener->close();
    }
  }

  asio::awaitable<void> repeat_loop(asio::steady_timer& timer, std::chrono::milliseconds period,
                                    std::function<void()> callback) {
    while (state_.phase.load() != ServerPhase::kStopped) {
      timer.expires_after(period);
      const auto [error] = co_await timer.async_wait(kUseTuple);
      if (error) co_return;
      callback();
    }
  }

  void close_connections() {
    const std::lock_guard lock(transports_mutex_);
    for (const auto& transport : transports_) {
      asio::post(transport->executor(), [transport] { transport->close(); });
    }
  }

  ServerParts parts_;
  ServerState& state_ = parts_.state;
  std::vector<HandedSocket> handed_;
  std::shared_ptr<BatchService> batches_;  // null: batches are off; ends after the sessions that use it
  // Coroutines use these members until they end, at the latest with their loops.
  std::list<LongLoop> loops_;  // used by the first io thread only, once it runs
  std::mutex transports_mutex_;
  std::map<std::string, std::int64_t> num_by_address_;  // guarded by transports_mutex_
  std::unordered_set<std::shared_ptr<Transport>> transports_;
  EventThreads io_;
  TextPool text_;
  MediaService media_;
  EventThreads admin_;    // /admin and reload: independent of requests
  EventThreads reports_;  // metrics, status and documents: independent of requests
  asio::signal_set signals_;
  Wakeup stopped_;
  Wakeup stopped_again_;
  std::vector<std::unique_ptr<asio::steady_timer>> repeat_timers_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // closed before the loops that they belong to
  std::function<void()> on_hangup_;
  std::function<void()> on_drain_;
  std::function<void()> on_drained_;
  std::atomic<int> num_stops_{0};
  std::size_t num_cut_ = 0;
};

Server::Server(const ServerOptions& options, std::vector<HandedSocket> handed)
    : impl_(std::make_unique<Impl>(options, std::move(handed))) {}
Server::~Server() = default;
void Server::start() {
  impl_->start();
}
void Server::handle_signals(std::function<void()> on_hangup) {
  impl_->handle_signals(std::move(on_hangup));
}
void Server::on_drain(std::function<void()> begun, std::function<void()> over) {
  impl_->on_drain(std::move(begun), std::move(over));
}
void Server::repeat(std::chrono::milliseconds period, std::function<void()> callback) {
  impl_->repeat(period, std::move(callback));
}
std::uint16_t Server::port() const {
  return impl_->port(false);
}
std::uint16_t Server::admin_port() const {
  return impl_->port(true);
}
void Server::serve(std::shared_ptr<const ModelTable> models) {
  impl_->serve(std::move(models));
}
void Server::stop() {
  impl_->stop();
}
bool Server::stopping() const {
  return impl_->stopping();
}
std::size_t Server::wait() {
  return impl_->wait();
}
ServerState& Server::state() {
  return impl_->state();
}

}  // namespace quire
