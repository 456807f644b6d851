#include "server/media/media_fetch.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <filesystem>

#include "core/base/files/regular_file.h"
#include "core/base/percent.h"
#include "server/client/web_reader.h"

namespace quire {

namespace {

using boost::asio::ip::address;
using boost::asio::ip::address_v4;
using boost::asio::ip::address_v6;

constexpr int kMostRedirects = 3;
constexpr std::chrono::milliseconds kLookAround{100};

struct Network {
  std::uint32_t base;
  int bits;
};

constexpr std::array kInternal = {
    Network{0x00000000, 8},   // this network
    Network{0x0A000000, 8},   // private
    Network{0x64400000, 10},  // carrier-grade NAT
    Network{0x7F000000, 8},   // loopback
    Network{0xA9FE0000, 16},  // link-local, metadata services
    Network{0xAC100000, 12},  // private
    Network{0xC0000000, 24},  // protocol assignments
    Network{0xC0A80000, 16},  // private
    Network{0xC6120000, 15},  // benchmarks
    Network{0xE0000000, 4},   // multicast
    Network{0xF0000000, 4},   // reserved
};

bool is_internal(std::uint32_t v4) {
  return std::ranges::any_of(
      kInternal, [v4](const Network& network) { return ((v4 ^ network.base) >> (32 - network.bits)) == 0; });
}

std::uint32_t four_bytes(const address_v6::bytes_type& bytes, std::size_t at) {
  return (std::uint32_t{bytes[at]} << 24) | (std::uint32_t{bytes[at + 1]} << 16) | (std::uint32_t{bytes[at + 2]} << 8) |
         bytes[at + 3];
}

bool is_internal(const address_v6& v6) {
  const auto bytes = v6.to_bytes();
  const bool is_low = std::ranges::all_of(bytes.begin(), bytes.begin() + 10, [](auto byte) { return byte == 0; });
  if (v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_link_local()) return true;
  if ((bytes[0] & 0xFE) == 0xFC || (bytes[0] == 0xFE && (bytes[1] & 0xC0) == 0xC0)) return true;
  if (v6.is_v4_mapped() || is_low) return is_internal(four_bytes(bytes, 12));
  const std::uint32_t first = four_bytes(bytes, 0);
  if (first == 0x0064FF9B) return is_internal(four_bytes(bytes, 12));   // NAT64
  if (first >> 16 == 0x2002) return is_internal(four_bytes(bytes, 2));  // 6to4
  return first == 0x20010000;                                           // Teredo
}

tl::unexpected<Error> not_allowed(std::string message) {
  return tl::make_unexpected(
      Error{ErrorKind::kInvalidRequest, std::move(message), "image_url_not_allowed", "", std::nullopt});
}

tl::unexpected<Error> failed(std::string_view why) {
  return tl::make_unexpected(Error{ErrorKind::kInvalidRequest,
                                   fmt::format("the image's URL cannot be fetched: {}", why), "image_url_failed", "",
                                   std::nullopt});
}

std::string lower_host(std::string_view host) {
  std::string lower(host);
  for (char& c : lower)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  if (lower.ends_with('.')) lower.pop_back();
  return lower;
}

// "host" allows the schemes' own ports, "host:port" that one.
bool is_listed(const HttpUrl& url, const std::vector<std::string>& hosts) {
  HttpUrl named = url;
  named.host = lower_host(url.host);
  const bool has_own_port = url.port == (url.secure ? "443" : "80");
  return std::ranges::any_of(hosts, [&](const std::string& listed) {
    const std::string host = lower_host(listed);
    return host == named.authority() || (has_own_port && host == named.host);
  });
}

bool is_address(const std::string& host) {
  boost::system::error_code none;
  boost::asio::ip::make_address(host, none);
  return !none;
}

Result<HttpUrl> allowed_url(const std::string& text, const MediaOptions& options) {
  if (options.fetch.empty())
    return not_allowed("this server fetches no URLs (media.fetch is empty): send the image as a data URL");
  auto url = parse_http_url(text);
  if (!url) return not_allowed("the image's URL is no URL of http or https");
  if (!is_listed(*url, options.fetch))
    return not_allowed("the image's host is not among those that this server fetches from (media.fetch)");
  return *std::move(url);
}

Result<std::string> read_reply(WebReader& reader, const MediaOptions& options,
                               std::chrono::steady_clock::time_point deadline) {
  const auto most = static_cast<std::size_t>(options.max_file_bytes);
  std::size_t length = 0;
  const std::string_view field = reader.field("Content-Length");
  std::from_chars(field.data(), field.data() + field.size(), length);
  std::string bytes;
  while (length <= most) {
    const auto piece = reader.read_within(kLookAround);
    if (!piece) return failed(piece.error().message);
    if (std::chrono::steady_clock::now() > deadline) return failed("it takes longer than media.fetch_time");
    if (!*piece) continue;
    if ((*piece)->empty()) return bytes;
    if (bytes.size() + (*piece)->size() > most) break;
    bytes += **piece;
  }
  return failed(fmt::format("it has more than {} bytes (media.max_file_bytes)", most));
}

}  // namespace

bool is_internal_address(std::string_view text) {
  boost::system::error_code error;
  const address parsed = boost::asio::ip::make_address(std::string(text.substr(0, text.find('%'))), error);
  if (error) return true;
  return parsed.is_v4() ? is_internal(parsed.to_v4().to_uint()) : is_internal(parsed.to_v6());
}

Result<void> check_media_url(const std::string& url, const MediaOptions& options) {
  if (url.starts_with("file:")) {
    if (!options.root.empty()) return {};
    return not_allowed("this server reads no files of its own (media.root is empty): send the image as a data URL");
  }
  const auto allowed = allowed_url(url, options);
  if (!allowed) return tl::make_unexpected(allowed.error());
  return {};
}

Result<std::string> fetch_media(const std::string& url, const MediaOptions& options, std::stop_token stop) {
  const auto deadline = std::chrono::steady_clock::now() + options.fetch_time;
  const auto allowed = allowed_url(url, options);
  if (!allowed) return tl::make_unexpected(allowed.error());
  WebRequest request;
  request.url = *allowed;
  request.fields = {{"Accept", "image/*, application/pdf, */*;q=0.5"}, {"User-Agent", "quire/" QUIRE_VERSION}};
  request.max_redirects = kMostRedirects;
  request.stays_at_origin = true;
  // An operator who lists an address in digits allows it, even an internal one.
  const bool may_be_internal = is_address(request.url.host);
  request.accepts_address = [may_be_internal](const std::string& found) {
    return may_be_internal || !is_internal_address(found);
  };
  WebReader reader(std::move(stop), options.fetch_time);
  const auto status = reader.open(request);
  if (!status) return failed(status.error().message);
  if (*status != 200) return failed(fmt::format("its server answers {}", *status));
  return read_reply(reader, options, deadline);
}

Result<std::string> read_media_file(const std::string& url, const MediaOptions& options) {
  namespace fs = std::filesystem;
  if (const auto allowed = check_media_url(url, options); !allowed) return tl::make_unexpected(allowed.error());
  std::string_view path = std::string_view(url).substr(std::string_view("file://").size());
  if (path.starts_with("localhost/")) path.remove_prefix(std::string_view("localhost").size());
  std::error_code error;
  const fs::path root = fs::canonical(options.root, error);
  if (error) return not_allowed("media.root cannot be read");
  const fs::path file = fs::canonical(leniently_decoded(path), error);
  const auto [in_root, in_file] = std::ranges::mismatch(root, file);
  // The refusal does not reveal whether a file outside exists.
  if (error || in_root != root.end() || in_file == file.end())
    return not_allowed("the image's file is not below media.root, or is not there");
  auto bytes = read_regular_file(file, static_cast<std::size_t>(options.max_file_bytes));
  if (!bytes) return failed("the file " + bytes.error());
  return *std::move(bytes);
}

}  // namespace quire
