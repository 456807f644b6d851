#include "server/fleet/redis_link.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <random>
#include <utility>

#include "core/base/files/regular_file.h"
#include "core/base/log.h"
#include "core/base/result.h"
#include "server/client/system_trust.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// A connection that lasted this long resets the pause.
constexpr std::chrono::seconds kLongEnough{10};

std::string text_of_url(const RedisServer& server, const char* setting) {
  if (server.url_file.empty()) return server.url;
  if (!server.url.empty())
    throw StartupError(fmt::format("{0}.url and {0}.url_file: only one of them can be", setting));
  auto text = read_secret_file(server.url_file);
  if (!text) throw StartupError(fmt::format("{}.url_file: '{}' {}", setting, server.url_file, text.error()));
  return *std::move(text);
}

RedisUrl url_of(const RedisServer& server, const char* setting) {
  auto url = parse_redis_url(text_of_url(server, setting));
  if (!url) {
    throw StartupError(
        fmt::format("{}.{}: it is not redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], with special characters "
                    "of the password written as %XX",
                    setting, server.url_file.empty() ? "url" : "url_file"));
  }
  return *std::move(url);
}

std::optional<asio::ssl::context> tls_of(const RedisServer& server, const RedisUrl& url, const char* setting) {
  if (!url.secure) return std::nullopt;
  asio::ssl::context context(asio::ssl::context::tls_client);
  ::SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_verify_mode(asio::ssl::verify_peer);
  boost::system::error_code failed;
  if (server.ca.empty()) {
    trust_system(context, failed);
  } else {
    const auto pem = read_regular_file(server.ca, kMostPemBytes);
    if (!pem) throw StartupError(fmt::format("{}.ca: '{}' {}", setting, server.ca, pem.error()));
    context.add_certificate_authority(asio::buffer(*pem), failed);
  }
  if (failed) throw StartupError(fmt::format("{}.ca: '{}': {}", setting, server.ca, failed.message()));
  return context;
}

}  // namespace

std::string random_daemon_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

void check_redis_server(const RedisServer& server, const char* setting) {
  tls_of(server, url_of(server, setting), setting);
}

RedisLink::RedisLink(const RedisServer& server, const Options& options, Events events)
    : server_(server),
      options_(options),
      url_(url_of(server, options.setting)),
      events_(std::move(events)),
      tls_(tls_of(server, url_, options.setting)),
      again_(context_),
      beat_(context_),
      seeds_{{url_.host, url_.port}},
      pause_(server.first_pause) {
  asio::post(context_, [this] { connect(); });
  thread_ = std::thread([this] { run(); });
}

RedisLink::~RedisLink() {
  context_.stop();
  thread_.join();
}

void RedisLink::run() {
  pthread_setname_np(pthread_self(), options_.thread);
  const auto keeps_running = asio::make_work_guard(context_);
  while (!context_.stopped()) {
    try {
      context_.run();
    } catch (const std::exception& error) {  // no memory, or no thread for resolving a name
      if (router_ != nullptr) std::exchange(router_, nullptr)->close();
      try {
        note_failed(error.what());
      } catch (const std::exception&) {  // stays disconnected; requests are answered as not found
      }
    }
  }
  if (router_ != nullptr) std::exchange(router_, nullptr)->close();
}

void RedisLink::post(std::function<void()> work) noexcept {
  try {
    asio::post(context_, std::move(work));
  } catch (const std::exception&) {
  }
}

void RedisLink::connect() {
  router_ = std::make_shared<RedisRouter>(
      context_,
      RedisRouter::Options{.setting = options_.setting,
                           .url = url_,
                           .tls = tls_ ? &*tls_ : nullptr,
                           .server = server_,
                           .max_reply_bytes = options_.max_reply_bytes,
                           .home = options_.home},
      seeds_,
      RedisConnection::Events{.up = [this] { note_up(); },
                              .failed = [this](const std::string& why) { note_failed(why); }});
  router_->start();
}

void RedisLink::call(const std::string& key, RedisCommand command, RedisConnection::Done done) {
  if (router_ == nullptr) return done(nullptr);
  router_->call(key, std::move(command), std::move(done));
}

void RedisLink::give_up(const std::string& why) {
  if (router_ == nullptr) return;
  std::exchange(router_, nullptr)->close();
  note_failed(why);
}

void RedisLink::note_up() {
  up_at_ = Clock::now();
  is_up_.store(true, std::memory_order_relaxed);
  said_down_ = false;
  log::info("{}: {} answers; {}", options_.setting, url_.place(), options_.use);
  events_.up();
  if (options_.beat.count() > 0) beat();
}

void RedisLink::beat() {
  beat_.expires_after(options_.beat);
  beat_.async_wait([this](const boost::system::error_code& error) {
    if (error || !is_up()) return;
    events_.beat();
    beat();
  });
}

void RedisLink::note_failed(const std::string& why) {
  router_ = nullptr;
  const bool was_up = is_up_.exchange(false, std::memory_order_relaxed);
  if (was_up && Clock::now() - up_at_ >= kLongEnough) pause_ = server_.first_pause;
  if (!std::exchange(said_down_, true)) {
    log::warn("{}: {} is not used: {}; {}, and it is tried again from time to time", options_.setting, url_.place(),
              why, options_.consequence);
  }
  events_.failed();
  again_.expires_after(pause_);
  pause_ = std::min(2 * pause_, server_.longest_pause);
  again_.async_wait([this](const boost::system::error_code& error) {
    if (!error) connect();
  });
}

}  // namespace quire
