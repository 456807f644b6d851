// The Asio members of a WebClient, kept out of its header. Any thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "server/client/web_client.h"

namespace quire {

using Tcp = boost::asio::ip::tcp;

struct WebClient::Tls {
  // Any thread may call SSL_new() on a context that is no longer changed.
  mutable boost::asio::ssl::context context{boost::asio::ssl::context::tls_client};
};

struct WebClient::Addresses {
  Tcp::resolver::results_type list;
};

}  // namespace quire
