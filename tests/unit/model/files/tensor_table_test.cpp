#include "core/model/formats/tensor_table.h"

#include <catch2/catch.hpp>
#include <span>

#include "core/model/formats/ggml_types.h"

using namespace quire;

namespace {

template <class T>
StoredTensor stored(const std::string& name, DType type, std::vector<std::int64_t> shape, const std::vector<T>& data) {
  return {.name = name,
          .type_name = std::string(dtype_info(type).name),
          .type = type,
          .shape = std::move(shape),
          .data = std::as_bytes(std::span(data))};
}

}  // namespace

TEST_CASE("A matrix takes the scale that lies beside it", "[gguf]") {
  const std::vector<std::uint8_t> blocks(2 * 36);
  const std::vector<float> scale{0.25F};
  const std::vector<float> vector{1.0F, 2.0F};
  TensorTable table(
      "test", {stored("a.weight", DType::kNVFP4, {2, 64}, blocks), stored("a.scale", DType::kF32, {1}, scale),
               stored("b.weight", DType::kNVFP4, {2, 64}, blocks), stored("c.weight", DType::kNVFP4, {2, 64}, blocks),
               stored("c.scale", DType::kF32, {2}, vector)});
  CHECK(table.take_matrix("a.weight", 2, 64).scale == 0.25F);
  CHECK(table.take_matrix("b.weight", 2, 64).scale == 1.0F);
  CHECK(table.take_matrix("c.weight", 2, 64).scale == 1.0F);  // vector of another role, left for that role
  CHECK(table.take_vector("c.scale", 2) == vector);
  table.refuse_unused("test");
}

TEST_CASE("Every block type of GGUF has its number there and back, others have none", "[gguf]") {
  for (int i = 0; i <= static_cast<int>(DType::kQ2_0); ++i) {
    const auto type = static_cast<DType>(i);
    CHECK(dtype_of_ggml_type(ggml_type_number(type)) == type);
  }
  for (const DType type : {DType::kI4G32, DType::kI4G128, DType::kF8})
    CHECK_FALSE(dtype_of_ggml_type(ggml_type_number(type)));
  CHECK_FALSE(dtype_of_ggml_type(15));
}
