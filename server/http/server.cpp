#include "server/http/server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <unordered_set>

#include "core/base/log.h"
#include "server/http/event_threads.h"
#include "server/http/session.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// How often a drain looks whether everything has ended.
constexpr std::chrono::milliseconds kDrainTick{10};
// What a cut operation gets to write its last words.
constexpr std::chrono::milliseconds kCutGrace{500};

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options)
      : state_(options),
        io_("io", static_cast<std::size_t>(options.io_threads), false),
        text_("text", static_cast<std::size_t>(options.text_threads), true),
        acceptor_(io_.first()),
        signals_(io_.first()),
        drain_timer_(io_.first()) {
    state_.text_context = [this]() -> asio::io_context& { return text_.first(); };
  }

  ~Impl() {
    io_.stop();
    text_.stop();
    io_.join();
    text_.join();
  }

  void start() {
    listen();
    asio::co_spawn(io_.first(), accept_loop(), asio::detached);
    io_.start();
    text_.start();
  }

  void handle_signals() {
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    asio::co_spawn(io_.first(), signal_loop(), asio::detached);
  }

  std::uint16_t port() const { return port_; }
  ServerState& state() { return state_; }
  bool stopping() const { return num_stops_.load() > 0; }

  void serve(std::shared_ptr<const Service> service) {
    state_.set_service(std::move(service));
    auto starting = ServerPhase::kStarting;
    state_.phase.compare_exchange_strong(starting, ServerPhase::kServing);
  }

  void stop() {
    if (num_stops_.fetch_add(1) == 0) {
      asio::co_spawn(io_.first(), drain(), asio::detached);
    } else {
      asio::post(io_.first(), [this] { drain_timer_.cancel(); });
    }
  }

  std::size_t wait() {
    io_.join();
    text_.stop();
    text_.join();
    return num_cut_;
  }

 private:
  void listen() {
    boost::system::error_code error;
    const auto settings = state_.settings();
    const ServerOptions& options = settings->options;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) throw StartupError("server.host: '" + options.host + "' is not an IP address");
    const asio::ip::tcp::endpoint endpoint(address, options.port);
    const auto check = [&](const char* what) {
      if (error) {
        throw StartupError("cannot " + std::string(what) + " " + options.host + ":" + std::to_string(options.port) +
                           ": " + error.message());
      }
    };
    acceptor_.open(endpoint.protocol(), error);
    check("open a socket for");
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    acceptor_.bind(endpoint, error);
    check("bind to");
    acceptor_.listen(4096, error);
    check("listen on");
    port_ = acceptor_.local_endpoint().port();
  }

  asio::awaitable<void> accept_loop() {
    asio::steady_timer pause(io_.first());
    while (acceptor_.is_open()) {
      asio::io_context& home = io_.next();
      auto [error, socket] = co_await acceptor_.async_accept(home, kUseTuple);
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
      if (error) {
        // Mostly out of file descriptors: those in use go on, new ones wait in the backlog.
        log::warn("accept: {}", error.message());
        pause.expires_after(std::chrono::milliseconds(100));
        co_await pause.async_wait(kUseTuple);
        continue;
      }
      if (state_.num_connections.load() >= state_.settings()->options.max_connections) continue;
      ++state_.num_connections;
      state_.metrics.connection_opened();
      asio::co_spawn(home, session(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> session(asio::ip::tcp::socket socket) {
    auto transport = std::make_shared<Transport>(std::move(socket));
    {
      const std::lock_guard lock(transports_mutex_);
      transports_.insert(transport);
    }
    try {
      Session session(state_, transport);
      co_await session.run();
    } catch (const std::exception& failure) {
      log::error("session: {}", failure.what());
      transport->close();
    }
    {
      const std::lock_guard lock(transports_mutex_);
      transports_.erase(transport);
    }
    --state_.num_connections;
    state_.metrics.connection_closed();
  }

  asio::awaitable<void> signal_loop() {
    while (true) {
      const auto [error, number] = co_await signals_.async_wait(kUseTuple);
      if (error) co_return;
      log::info("signal {}: {}", number, stopping() ? "cutting what is left" : "draining");
      stop();
    }
  }

  // True where the wait came to its end, false where a second stop() cut it short.
  asio::awaitable<bool> pause(std::chrono::milliseconds duration) {
    if (num_stops_.load() > 1) co_return false;
    drain_timer_.expires_after(duration);
    const auto [error] = co_await drain_timer_.async_wait(kUseTuple);
    co_return !error;
  }

  asio::awaitable<void> drain() {
    const bool serving = state_.phase.exchange(ServerPhase::kDelaying) == ServerPhase::kServing;
    if (serving) co_await pause(state_.settings()->options.drain.delay);
    state_.phase = ServerPhase::kRefusing;
    const auto deadline = Clock::now() + state_.settings()->options.drain.deadline;
    while (state_.num_busy.load() > 0 && num_stops_.load() < 2 && Clock::now() < deadline)
      co_await pause(kDrainTick);
    acceptor_.close();
    signals_.cancel();
    num_cut_ = state_.live.cut(
        Error{ErrorKind::kUnavailable, "The server is shutting down", "server_draining", "", std::chrono::seconds(5)});
    const auto grace = Clock::now() + kCutGrace;
    asio::steady_timer tick(io_.first());
    while (state_.num_busy.load() > 0 && Clock::now() < grace) {
      tick.expires_after(kDrainTick);
      co_await tick.async_wait(kUseTuple);
    }
    state_.phase = ServerPhase::kStopped;
    close_connections();
    io_.release();
  }

  void close_connections() {
    const std::lock_guard lock(transports_mutex_);
    for (const auto& transport : transports_) {
      asio::post(transport->executor(), [transport] { transport->close(); });
    }
  }

  ServerState state_;
  EventThreads io_;
  EventThreads text_;
  asio::ip::tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer drain_timer_;
  std::uint16_t port_ = 0;
  std::atomic<int> num_stops_{0};
  std::size_t num_cut_ = 0;
  std::mutex transports_mutex_;
  std::unordered_set<std::shared_ptr<Transport>> transports_;
};

Server::Server(const ServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Server::~Server() = default;
void Server::start() {
  impl_->start();
}
void Server::handle_signals() {
  impl_->handle_signals();
}
std::uint16_t Server::port() const {
  return impl_->port();
}
void Server::serve(std::shared_ptr<const Service> service) {
  impl_->serve(std::move(service));
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
