#include "core/model/architectures/hf_config.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/model/formats/hf/json_file.h"
#include "tests/fuzz/refusal.h"

// Uses the same text as each JSON file of a model's directory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto with_object = [&](const auto& read) {
    quire::fuzz::expect_value_or_line([&] { read(quire::parse_json_object(text, "fuzz.json", 64)); });
  };
  with_object([](const nlohmann::json& object) {
    quire::StoredTensor embedding;
    embedding.name = "model.embed_tokens.weight";
    embedding.shape = {8, 8};
    quire::TensorTable tensors("fuzz", {embedding});
    for (const quire::RopeConfig& rope : quire::read_hf_spec(object, "fuzz.json", tensors).ropes)
      quire::rope_frequencies(rope);
  });
  with_object([](const nlohmann::json& object) {
    quire::TensorTable tensors("fuzz", {});
    quire::read_hf_generation(object, "fuzz.json", tensors);
  });
  with_object([](const nlohmann::json& object) { quire::read_hf_chat_template(object, "fuzz.json"); });
  return 0;
}
