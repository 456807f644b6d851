// `quire-dev api`: the API's reference, as an OpenAPI document or as the tables of the page server/API.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "server/admin/handlers.h"
#include "server/api/common/json.h"
#include "server/api/reference/pages.h"
#include "server/dev/commands.h"

namespace quire::dev {

namespace {

void print_page(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw StartupError("cannot read " + path);
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  fmt::print("{}", reference::with_tables(page));
}

}  // namespace

void add_api(CLI::App& app) {
  auto page = std::make_shared<std::string>();
  CLI::App* api = app.add_subcommand("api", "Print the API's reference as an OpenAPI 3.1 document");
  api->add_option("--page", *page, "Print this Markdown file instead, with its tables of fields generated again")
      ->type_name("FILE");
  api->callback([page] {
    if (!page->empty()) return print_page(*page);
    fmt::print("{}\n", served_openapi().dump(2));
  });
}

}  // namespace quire::dev
