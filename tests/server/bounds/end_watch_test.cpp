#include "server/ops/end_watch.h"

#include <pthread.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <future>

#include "server/ops/process.h"

using namespace quire;

TEST_CASE("an end that does not come in time is reported once, with the threads that are there") {
  std::promise<void> release;
  std::promise<void> named;
  std::thread hung([&named, released = release.get_future()] {
    pthread_setname_np(pthread_self(), "hung-one");
    named.set_value();
    released.wait();
  });
  named.get_future().wait();
  std::promise<std::string> reported;
  {
    EndWatch watch([&] { reported.set_value(names_of_threads()); });
    watch.expect_within(std::chrono::hours(1));
    watch.expect_within(std::chrono::milliseconds(0));
    const std::string names = reported.get_future().get();
    CHECK(names.find("hung-one") != std::string::npos);
    CHECK(names.find("main") != std::string::npos);
    CHECK(names.find("end-watch") == std::string::npos);
  }
  release.set_value();
  hung.join();
}

TEST_CASE("an end that comes in time is not reported") {
  bool reported = false;
  {
    EndWatch watch([&] { reported = true; });
    watch.expect_within(std::chrono::hours(1));
  }
  {
    const EndWatch unused([&] { reported = true; });
  }
  CHECK_FALSE(reported);
}

TEST_CASE("signals whose default ends the process are ignored") {
  ignore_deadly_signals();
  for (const int number : {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR}) {
    CAPTURE(number);
    CHECK(::raise(number) == 0);
  }
}
