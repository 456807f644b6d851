#include "core/model/formats/gguf/gguf.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/base/result.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "tests/support/temporary_folder.h"

using Catch::Contains;
using namespace quire;
using namespace quire::test;

namespace {

struct ShardOptions {
  std::uint32_t number = 0;  // value of the key, counted from zero
  std::uint32_t count = 3;
  std::uint32_t total = 3;
  std::string tensor;
};

void write_shard(const std::filesystem::path& path, const ShardOptions& options) {
  GgufWriter writer(path);
  writer.set("general.architecture", "llama");
  writer.set("split.no", options.number);
  writer.set("split.count", options.count);
  writer.set("split.tensors.count", options.total);
  const std::int64_t shape[] = {4};
  writer.declare(options.tensor, shape, DType::kF32);
  writer.begin_data();
  const std::vector<float> values(4, static_cast<float>(options.number));
  writer.append(std::as_bytes(std::span(values)));
  writer.finish();
}

std::filesystem::path shard_path(const TemporaryFolder& folder, int number) {
  return folder / ("m-0000" + std::to_string(number) + "-of-00003.gguf");
}

void write_all(const TemporaryFolder& folder) {
  for (std::uint32_t i = 0; i < 3; ++i)
    write_shard(shard_path(folder, static_cast<int>(i) + 1), {.number = i, .tensor = "t" + std::to_string(i)});
}

}  // namespace

TEST_CASE("The shards of a GGUF model are one file", "[gguf]") {
  const TemporaryFolder folder;
  write_all(folder);
  const auto file = open_gguf(shard_path(folder, 1));
  CHECK(file->tensors().size() == 3);
  CHECK(file->get_string("general.architecture") == "llama");
  for (int i = 0; i < 3; ++i) {
    const GgufTensor* tensor = file->find_tensor("t" + std::to_string(i));
    REQUIRE(tensor != nullptr);
    float value = -1.0F;
    dequantize(DType::kF32, tensor->data.data(), 1, &value);
    CHECK(value == static_cast<float>(i));
    file->release(tensor->data);
    dequantize(DType::kF32, tensor->data.data(), 1, &value);
    CHECK(value == static_cast<float>(i));
  }
  CHECK(file->find_tensor("t3") == nullptr);
}

TEST_CASE("A shard that is missing or not the first is named", "[gguf]") {
  const TemporaryFolder folder;
  write_all(folder);
  CHECK_THROWS_WITH(open_gguf(shard_path(folder, 2)),
                    Contains("it is shard 2 of 3; give the path of the first") && Contains("m-00001-of-00003.gguf"));
  std::filesystem::remove(shard_path(folder, 3));
  CHECK_THROWS_WITH(open_gguf(shard_path(folder, 1)),
                    Contains("m-00003-of-00003.gguf: is missing: it is shard 3 of the 3"));
  write_shard(shard_path(folder, 3), {.number = 1, .tensor = "t2"});
  CHECK_THROWS_WITH(open_gguf(shard_path(folder, 1)), Contains("it says that it is shard 2 of 3"));
  write_shard(shard_path(folder, 3), {.number = 2, .tensor = "t1"});
  CHECK_THROWS_WITH(open_gguf(shard_path(folder, 1)), Contains("the tensor 't1' is in two shards"));
  write_shard(shard_path(folder, 3), {.number = 2, .tensor = "t2"});
  write_shard(shard_path(folder, 1), {.number = 0, .total = 4, .tensor = "t0"});
  CHECK_THROWS_WITH(open_gguf(shard_path(folder, 1)), Contains("hold 3 tensors, and 'split.tensors.count' is 4"));
  std::filesystem::rename(shard_path(folder, 1), folder / "renamed.gguf");
  CHECK_THROWS_WITH(open_gguf(folder / "renamed.gguf"), Contains("its name does not end with"));
}
