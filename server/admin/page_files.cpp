#include "server/admin/handlers.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <map>

#include "kernels/check.h"
#include "server/api/common/encodings.h"
#include "server/web/assets.h"
#include "server/wire/request_head.h"
#include "server/wire/response.h"

namespace quire {

namespace {

// Forbids loading from other sites, inline styles, inline scripts except the one with this hash, and frames on other
// sites. Connections are allowed to this server and to the origins in the page's cookie.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self' 'sha256-{}'; style-src 'self'; connect-src 'self'{}; img-src 'self' data:; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

constexpr std::string_view kCookie = "quire_connect=";
constexpr std::size_t kMostOrigins = 16;
constexpr std::size_t kLongestOrigin = 255;

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "font/woff2";
}

// Inflates gzipped content.
std::string whole_text(std::string_view bytes) {
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  QUIRE_CHECK(inflateInit2(&stream, MAX_WBITS + 16) == Z_OK, "zlib has memory for its window");
  std::string text;
  int status = Z_OK;
  while (status == Z_OK) {
    char piece[16384];
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof piece - stream.avail_out);
  }
  inflateEnd(&stream);
  QUIRE_CHECK(status == Z_STREAM_END, "an embedded file is whole");
  return text;
}

// Contents for clients that do not take gzip, unpacked once for all of them.
std::string_view unpacked(const web::Asset& asset) {
  static const std::map<std::string_view, std::string> kTexts = [] {
    std::map<std::string_view, std::string> texts;
    for (const web::Asset& each : web::all_assets())
      if (each.compressed) texts.emplace(each.name, whole_text(each.bytes));
    return texts;
  }();
  return kTexts.at(asset.name);
}

// Hash of the page's inline script: SHA-256 in base64.
std::string script_hash(std::string_view page) {
  constexpr std::string_view kBegin = "<script>";
  const std::size_t begin = page.find(kBegin);
  const std::size_t end = page.find("</script>", begin);
  QUIRE_CHECK(begin != std::string_view::npos && end != std::string_view::npos, "the page has its script");
  const Sha256 hash = sha256(page.substr(begin + kBegin.size(), end - begin - kBegin.size()));
  return encode_base64({reinterpret_cast<const char*>(hash.data()), hash.size()});
}

std::string page_script_hash() {
  const auto page = web::find_asset("index.html");
  QUIRE_CHECK(page, "the page is embedded");
  return script_hash(page->compressed ? whole_text(page->bytes) : std::string(page->bytes));
}

// A scheme, a host and perhaps a port; nothing that could add to a policy.
bool is_origin(std::string_view text) {
  const auto is_of_host = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view(".-:[]").find(c) != std::string_view::npos;
  };
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!text.starts_with(scheme)) continue;
    const std::string_view host = text.substr(scheme.size());
    return !host.empty() && text.size() <= kLongestOrigin && std::all_of(host.begin(), host.end(), is_of_host);
  }
  return false;
}

// Origins of the tool servers that the page's user added, from its cookie ("a|b"), each behind a space.
std::string added_origins(std::string_view cookies) {
  std::string origins;
  const std::size_t at = cookies.find(kCookie);
  if (at == std::string_view::npos) return origins;
  std::string_view rest = cookies.substr(at + kCookie.size());
  rest = rest.substr(0, rest.find(';'));
  for (std::size_t count = 0; !rest.empty() && count < kMostOrigins; ++count) {
    const std::string_view origin = rest.substr(0, rest.find('|'));
    if (is_origin(origin)) origins += ' ' + std::string(origin);
    rest.remove_prefix(std::min(rest.size(), origin.size() + 1));
  }
  return origins;
}

}  // namespace

Response page_file(const RequestHead& head) {
  constexpr std::string_view kFolder = "/ui/";
  const std::string_view path = head.path;
  const auto asset = web::find_asset(path == "/" ? "index.html" : path.substr(kFolder.size()));
  if (!asset) return error_response(404, "not_found", "The page has no file of this name");
  static const std::string kHash = page_script_hash();
  Response response{200, std::string(content_type(asset->name)), ""};
  response.fields = {
      {"Content-Security-Policy", fmt::format(kContentPolicy, kHash, added_origins(head.field("cookie")))},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-cache"},
      {"Vary", "Accept-Encoding, Cookie"},
      {"ETag", std::string(asset->etag)}};
  if (head.field("if-none-match").find(asset->etag) != std::string_view::npos) {
    response.status = 304;
    return response;
  }
  const bool takes_gzip = head.field("accept-encoding").find("gzip") != std::string_view::npos;
  if (asset->compressed && takes_gzip) response.fields.push_back({"Content-Encoding", "gzip"});
  response.document = asset->compressed && !takes_gzip ? unpacked(*asset) : asset->bytes;
  return response;
}

}  // namespace quire
