#include "core/text/chat_template_capabilities.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/material.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

TemplateCapabilities probe(std::string_view source) {
  const auto chat_template = ChatTemplate::parse(source);
  REQUIRE(chat_template.has_value());
  return probe_capabilities(*chat_template);
}

TEST_CASE("the default template takes strings, parts, a system role and no tools") {
  const TemplateCapabilities found = probe(kDefaultChatTemplate);
  CHECK(found.string_content);
  CHECK(found.parts_content);
  CHECK(found.system_role);
  CHECK(found.developer_role);
  CHECK_FALSE(found.tools);
  CHECK_FALSE(found.tool_calls);
  CHECK_FALSE(found.enable_thinking);
}

TEST_CASE("what a template refuses or ignores is found out") {
  const TemplateCapabilities found = probe(
      "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('users only') }}{% endif %}"
      "{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
      "{% if enable_thinking %}<think>{% endif %}");
  CHECK_FALSE(found.string_content);
  CHECK(found.parts_content);
  CHECK_FALSE(found.system_role);
  CHECK(found.enable_thinking);
}

TEST_CASE("real templates are probed rightly") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  const auto of = [&folder](const char* name) { return probe(test::read_file(folder / name)); };
  const auto qwen3 = of("Qwen-Qwen3-0.6B.jinja");
  CHECK(qwen3.tools);
  CHECK(qwen3.tool_calls);
  CHECK(qwen3.tool_results);
  CHECK(qwen3.enable_thinking);
  CHECK(qwen3.reasoning_history);
  CHECK_FALSE(qwen3.object_arguments);
  CHECK_FALSE(qwen3.parts_content);
  CHECK(qwen3.tool_format.name == "hermes");
  CHECK(of("Qwen3.5-4B.jinja").object_arguments);
  CHECK_FALSE(of("google-gemma-2-2b-it.jinja").system_role);
  CHECK(of("openai-gpt-oss-120b.jinja").developer_role);
  CHECK(of("openai-gpt-oss-120b.jinja").tool_format.name == "harmony");
  CHECK(of("meta-llama-Llama-3.1-8B-Instruct.jinja").tool_format.name == "llama3_json");
}

TEST_CASE("messages are fitted to what the template takes") {
  TemplateCapabilities plain;
  plain.system_role = true;
  const Json messages = Json::parse(R"([
    {"role": "developer", "content": "Be terse."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}])");
  auto fitted = fit_messages(messages, plain);
  REQUIRE(fitted.has_value());
  CHECK((*fitted)[0]["role"] == "system");
  CHECK((*fitted)[1]["content"] == "ab");
  CHECK((*fitted)[2]["content"] == "");
  CHECK((*fitted)[2]["tool_calls"][0]["function"]["arguments"] == "{\"x\":1}");

  TemplateCapabilities rich;
  rich.string_content = false;
  rich.parts_content = true;
  rich.null_content = true;
  rich.developer_role = true;
  rich.system_role = true;
  rich.object_arguments = true;
  fitted = fit_messages(messages, rich);
  REQUIRE(fitted.has_value());
  CHECK((*fitted)[0]["role"] == "developer");
  CHECK((*fitted)[0]["content"] == Json::parse(R"([{"type": "text", "text": "Be terse."}])"));
  CHECK((*fitted)[2]["content"].is_null());
  CHECK((*fitted)[2]["tool_calls"][0]["function"]["arguments"] == Json{{"x", 1}});
}

TEST_CASE("without a system role its text goes before the first user message") {
  const Json messages = Json::parse(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])");
  const auto fitted = fit_messages(messages, TemplateCapabilities{});
  REQUIRE(fitted.has_value());
  CHECK(*fitted == Json::parse(R"([{"role": "user", "content": "S\nU"}])"));
}

TEST_CASE("parts that are not text are refused by name where the template takes text only") {
  const Json messages =
      Json::parse(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  const auto fitted = fit_messages(messages, TemplateCapabilities{});
  REQUIRE_FALSE(fitted.has_value());
  CHECK(fitted.error().param == "messages[0].content");
  CHECK(fitted.error().message.find("image_url") != std::string::npos);
}

}  // namespace
}  // namespace quire
