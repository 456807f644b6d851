#include "core/text/chat_template_capabilities.h"

#include <catch2/catch.hpp>
#include <string>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"
#include "tests/support/material.h"

namespace quire {
namespace {

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
  CHECK(found.thinking == nullptr);
}

TEST_CASE("what a template refuses or ignores is found out") {
  const TemplateCapabilities found = probe(
      "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('users only') }}{% endif %}"
      "{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
      "{% if enable_thinking %}<think>{% endif %}");
  CHECK_FALSE(found.string_content);
  CHECK(found.parts_content);
  CHECK_FALSE(found.system_role);
  CHECK(found.thinking->name == "enable_thinking");
}

TEST_CASE("real templates are probed rightly") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  const auto of = [&folder](const char* name) { return probe(test::read_file(folder / name)); };
  const auto qwen3 = of("Qwen-Qwen3-0.6B.jinja");
  CHECK(qwen3.tools);
  CHECK(qwen3.tool_calls);
  CHECK(qwen3.tool_results);
  CHECK(qwen3.thinking->name == "enable_thinking");
  CHECK(qwen3.reasoning_history);
  CHECK(qwen3.object_arguments);
  CHECK_FALSE(qwen3.parts_content);
  CHECK(qwen3.tool_format.name == "hermes");
  CHECK(of("Qwen3.5-4B.jinja").object_arguments);
  CHECK_FALSE(of("google-gemma-2-2b-it.jinja").system_role);
  CHECK(of("ibm-granite-granite-3.3-2B-Instruct.jinja").thinking->name == "thinking");
  CHECK(of("Cohere2MoE.jinja").thinking->name == "reasoning");
  CHECK(of("ByteDance-Seed-OSS.jinja").thinking->name == "thinking_budget");
  CHECK_FALSE(of("Qwen3.5-4B.jinja").later_system);
  CHECK_FALSE(of("meta-llama-Llama-3.1-8B-Instruct.jinja").parallel_calls);
  CHECK(of("mistralai-Mistral-Nemo-Instruct-2407.jinja").nine_letter_ids);
  CHECK(of("openai-gpt-oss-120b.jinja").developer_role);
  CHECK(of("openai-gpt-oss-120b.jinja").tool_format.name == "harmony");
  CHECK(of("meta-llama-Llama-3.1-8B-Instruct.jinja").tool_format.name == "llama3_json");
}

}  // namespace
}  // namespace quire
