// A mailbox whose reader is destroyed before its writers, as when a server is cut while its engine still computes.
#include "server/wire/mailbox.h"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

using namespace quire;

TEST_CASE("what is put once the reader and its event loop are gone is dropped") {
  std::shared_ptr<OutputSink> sink;
  std::shared_ptr<Mailbox> mailbox;
  {
    boost::asio::io_context context;
    const MailboxReader reader(context.get_executor());
    mailbox = reader.mailbox();
    sink = Mailbox::sink(mailbox, 0);
  }
  sink->send({});
  mailbox->nudge();
  mailbox->interrupt(std::nullopt);
  CHECK(mailbox->interrupted());
}
