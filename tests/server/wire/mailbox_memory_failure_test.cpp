// A mailbox for whose events there is no memory any more: the engine thread continues, the operation ends with the
// error.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "server/wire/mailbox.h"
#include "tests/unit/engine/allocations.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("an event for which there is no memory ends the operation with that error", "[memory]") {
  boost::asio::io_context context;
  const auto mailbox = std::make_shared<Mailbox>(context.get_executor());
  const std::shared_ptr<OutputSink> sink = Mailbox::sink(mailbox, 0);
  std::optional<Mailbox::Batch> batch;
  const auto read = [](std::shared_ptr<Mailbox> from,
                       std::optional<Mailbox::Batch>& into) -> boost::asio::awaitable<void> {
    into = co_await from->take();
  };
  const bool is_waiting = GENERATE(false, true);
  if (is_waiting) {
    boost::asio::co_spawn(context, read(mailbox, batch), boost::asio::detached);
    context.poll();
  }
  OutputEvent event;
  event.tokens.push_back(TokenId{1});
  fail_next_allocation();
  sink->send(event);
  CHECK_FALSE(forget_failure());
  sink->send(event);  // comes too late
  if (!is_waiting) boost::asio::co_spawn(context, read(mailbox, batch), boost::asio::detached);
  context.poll();
  REQUIRE(batch);
  CHECK(batch->interrupted);
  CHECK(batch->mail.empty());
  REQUIRE(batch->error);
  CHECK(batch->error->code == "out_of_memory");
}
