#include "core/model/architectures/hf_config.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/model/formats/json_file.h"
#include "tests/fuzz/refusal.h"

// The same text as each JSON file of a model's directory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto with_object = [&](const auto& read) {
    quire::fuzz::expect_value_or_line([&] { read(quire::parse_json_object(text, "fuzz.json", 64)); });
  };
  with_object([](const nlohmann::json& object) {
    const quire::ModelConfig config = quire::read_hf_config(object, "fuzz.json");
    quire::check_config(config, "fuzz.json");
    quire::rope_frequencies(config.rope);
  });
  with_object([](const nlohmann::json& object) { quire::read_hf_generation(object, "fuzz.json"); });
  with_object([](const nlohmann::json& object) { quire::read_hf_chat_template(object, "fuzz.json"); });
  return 0;
}
