// Files of pictures that a request names: by a URL of a host that the operator allows, or below a folder. Any thread
// that may wait: both block. Invariants: a name is looked up once and its addresses are used for all that follows; no
// private address is reached unless it is itself listed; bytes and time are bounded.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "server/media/media_options.h"

namespace quire {

// Whether the address (digits, as text) is not on the public internet: loopback, private, link-local with the metadata
// services of clouds, carrier-grade NAT, multicast, and IPv6 addresses that contain such ones.
bool is_internal_address(std::string_view address);

// 400 if the URL's host is not allowed. Call before anything is fetched.
Result<void> check_media_url(const std::string& url, const MediaOptions& options);

Result<std::string> fetch_media(const std::string& url, const MediaOptions& options, std::stop_token stop);
Result<std::string> read_media_file(const std::string& url, const MediaOptions& options);

}  // namespace quire
