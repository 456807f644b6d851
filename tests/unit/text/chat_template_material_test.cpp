// Renders the public cases of material/chat-templates: each must come out as Python's Jinja2 renders it, or fail where
// it fails.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"
#include "tests/support/material.h"

namespace quire {
namespace {

// 2025-07-10T12:00:00, the clock of the recorded cases.
constexpr auto kClock = std::chrono::sys_days(std::chrono::year(2025) / 7 / 10) + std::chrono::hours(12);

std::optional<std::string> render(const std::string& source, const Json& context, const TemplateOptions& options = {}) {
  const auto chat_template = ChatTemplate::parse(source, options);
  if (!chat_template) return std::nullopt;
  const auto pieces = chat_template->render(context, {}, kClock);
  if (!pieces) return std::nullopt;
  std::string text;
  for (const auto& piece : *pieces)
    text += piece.text;
  return text;
}

std::optional<std::string> expected(const Json& line, const char* key) {
  if (line.at(key).is_null()) return std::nullopt;
  return line.at(key).get<std::string>();
}

void check_file(const std::filesystem::path& path, const char* key, const std::set<std::string>& excluded = {}) {
  for (const auto& text : test::read_lines(path)) {
    const Json line = Json::parse(text);
    const auto id = line.at("id").get<std::string>();
    if (excluded.contains(id)) continue;
    // Cases that llama.cpp renders in its own way also record Python's output, which is the reference here.
    const bool own_way = !line.value("python_jinja2_agrees", true);
    const TemplateOptions options{line.value("trim_blocks", true), line.value("lstrip_blocks", true)};
    INFO(id);
    CHECK(render(line.at("template").get<std::string>(), line.at("context"), options) ==
          expected(line, own_way ? "python_jinja2_output" : key));
  }
}

TEST_CASE("language cases render as Python's Jinja2 does") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates");
  check_file(folder / "hfjs-syntax.jsonl", "expected_python");
  check_file(folder / "hfjs-whitespace.jsonl", "expected");
  // These three were recorded after the list in their context had been changed, which the immutable sandbox refuses
  // anyway.
  check_file(folder / "llamacpp-jinja-unit.jsonl", "expected",
             {"llamacpp-jinja/221", "llamacpp-jinja/222", "llamacpp-jinja/223"});
}

TEST_CASE("handwritten conversations render exactly") {
  QUIRE_REQUIRE_MATERIAL(file, "chat-templates/llamacpp-templates-handwritten.jsonl");
  check_file(file, "expected");
}

TEST_CASE("every template renders every conversation of the matrix exactly") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates");
  const Json matrix = Json::parse(test::read_file(folder / "render-matrix-contexts.json"));
  std::map<std::string, std::string> sources;
  for (const auto& text : test::read_lines(folder / "render-matrix-templates.jsonl.gz")) {
    const Json line = Json::parse(text);
    sources[line.at("ref").get<std::string>()] = line.at("template").get<std::string>();
  }
  std::size_t num_cases = 0;
  for (const auto& text : test::read_lines(folder / "render-matrix.dev.jsonl.gz")) {
    const Json line = Json::parse(text);
    Json context = matrix.at("contexts").at(line.at("case").get<std::string>());
    context["bos_token"] = matrix.at("bos_token");
    context["eos_token"] = matrix.at("eos_token");
    INFO(line.at("id"));
    CHECK(render(sources.at(line.at("template_ref").get<std::string>()), context) == expected(line, "expected"));
    ++num_cases;
  }
  CHECK(num_cases > 1000);
}

}  // namespace
}  // namespace quire
