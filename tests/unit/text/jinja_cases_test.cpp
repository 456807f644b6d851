// The language of chat templates, one line of jinja_cases.jsonl per feature: what Python's Jinja2 3.1.6 renders in
// transformers' setting, or null where it raises. The first line holds the variables of all.
#include <catch2/catch.hpp>
#include <string>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"
#include "tests/support/material.h"

namespace quire {
namespace {

constexpr auto kCasesClock = std::chrono::sys_days(std::chrono::year(2025) / 7 / 10) + std::chrono::hours(12);

Json render_case(const std::string& source, const Json& context) {
  const auto chat_template = ChatTemplate::parse(source);
  if (!chat_template) return nullptr;
  const auto pieces = chat_template->render(context, {}, kCasesClock);
  if (!pieces) return nullptr;
  std::string text;
  for (const auto& piece : *pieces)
    text += piece.text;
  return text;
}

TEST_CASE("every feature of the template language does what it does in Jinja2") {
  const auto lines = test::read_lines(test::source_folder() / "tests/unit/text/jinja_cases.jsonl");
  REQUIRE(lines.size() > 400);
  const Json context = Json::parse(lines.front()).at("context");
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    INFO(line.at("template"));
    CHECK(render_case(line.at("template").get<std::string>(), context) == line.at("text"));
  }
}

}  // namespace
}  // namespace quire
