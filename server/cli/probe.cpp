#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "server/cli/commands.h"
#include "server/client/web_client.h"

namespace quire::cli {

namespace {

constexpr std::chrono::milliseconds kProbePatience{10'000};

struct ProbeArguments {
  std::string url;
  ClientTrust trust;
};

// The status of a GET. Throws StartupError for an invalid URL or an unreadable file of authorities.
Result<int> probed_status(const ProbeArguments& arguments) {
  const std::string& text = arguments.url;
  auto url = parse_http_url(text.find("://") == std::string::npos ? "http://" + text : text);
  if (!url) throw StartupError(fmt::format("'{}' must be http[s]://HOST[:PORT][/PATH]", text));
  ClientRequest request;
  if (!url->path.empty()) request.path = url->path;
  return WebClient(*std::move(url), arguments.trust).ask(request, kProbePatience);
}

}  // namespace

void add_probe(CLI::App& app) {
  auto arguments = std::make_shared<ProbeArguments>();
  CLI::App* probe =
      app.add_subcommand("probe", "Exit with 0 if a GET of the URL answers 200 (container health checks)");
  probe->add_option("url", arguments->url, "Such as http://127.0.0.1:8080/readyz")->required();
  probe->add_option("--ca", arguments->trust.ca, "PEM file of the authorities to trust; default: the system's");
  probe->add_flag("--insecure", arguments->trust.any, "Accept any certificate");
  probe->callback([arguments] {
    const auto status = probed_status(*arguments);
    if (status && *status == 200) return;
    fmt::print(stderr, "{}: {}\n", arguments->url,
               status ? "HTTP " + std::to_string(*status) : "no answer: " + status.error().message);
    throw CLI::RuntimeError(1);
  });
}

}  // namespace quire::cli
