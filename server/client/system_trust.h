// Certificate authorities that this system trusts for TLS, also on distributions other than the one that OpenSSL was
// compiled for.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <span>
#include <string>

namespace quire {

// OpenSSL's own places, which SSL_CERT_FILE and SSL_CERT_DIR replace, else the file of another distribution.
void trust_system(boost::asio::ssl::context& context, boost::system::error_code& failed);

// The first of the files that can be read; empty if there is none.
std::string first_readable(std::span<const std::string> files);

}  // namespace quire
