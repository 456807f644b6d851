// Modules after the transformer in a sentence-transformers directory are computed or refused, never skipped.
#include "core/model/formats/hf/directory_tensors.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/result.h"
#include "tests/support/temporary_folder.h"

using Catch::Contains;
using namespace quire;
using nlohmann::json;

namespace {

void write_json(const std::filesystem::path& path, const json& value) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << value;
}

void write_matrix(const std::filesystem::path& path, std::int64_t rows, std::int64_t cols) {
  const auto bytes = static_cast<std::size_t>(rows * cols) * sizeof(float);
  const json header = {{"linear.weight", {{"dtype", "F32"}, {"shape", {rows, cols}}, {"data_offsets", {0, bytes}}}}};
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length) << text << std::string(bytes, '\0');
}

json module_of(const std::string& path, const std::string& kind) {
  return {{"idx", 0}, {"name", "0"}, {"path", path}, {"type", "sentence_transformers.models." + kind}};
}

json dense_config(bool bias, const std::string& activation) {
  return {{"in_features", 8}, {"out_features", 12}, {"bias", bias}, {"activation_function", activation}};
}

const std::string kIdentity = "torch.nn.modules.linear.Identity";

}  // namespace

TEST_CASE("Dense modules of a sentence-transformers directory become two matrices", "[model][hf]") {
  const test::TemporaryFolder folder;
  const std::filesystem::path directory = folder / "model";
  CHECK(open_dense_modules(directory).empty());
  write_json(directory / "modules.json",
             {module_of("", "Transformer"), module_of("1_Pooling", "Pooling"), module_of("2_Dense", "Dense"),
              module_of("3_Dense", "Dense"), module_of("4_Normalize", "Normalize")});
  for (const auto& [name, rows, cols] : {std::tuple{"2_Dense", 12, 8}, std::tuple{"3_Dense", 8, 12}}) {
    write_json(directory / name / "config.json", dense_config(false, kIdentity));
    write_matrix(directory / name / "model.safetensors", rows, cols);
  }
  const auto files = open_dense_modules(directory);
  const std::vector<StoredTensor> tensors = dense_tensors(files, directory);
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "dense_2.weight");
  CHECK(tensors[1].name == "dense_3.weight");
  CHECK(tensors[1].shape == std::vector<std::int64_t>{8, 12});
}

TEST_CASE("A module behind the transformer that is not computed is refused", "[model][hf]") {
  const test::TemporaryFolder folder;
  const std::filesystem::path directory = folder / "model";
  const auto refusal_of = [&](const json& modules, const json& config) {
    write_json(directory / "modules.json", modules);
    write_json(directory / "2_Dense" / "config.json", config);
    write_matrix(directory / "2_Dense" / "model.safetensors", 12, 8);
    try {
      open_dense_modules(directory);
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const json plain = dense_config(false, kIdentity);
  const json dense = module_of("2_Dense", "Dense");
  CHECK(refusal_of(json::array({dense}), plain).empty());
  CHECK_THAT(refusal_of(json::array({module_of("", "LayerNorm")}), plain),
             Contains("the module 'LayerNorm' is not supported"));
  CHECK_THAT(refusal_of(json::array({module_of("../2_Dense", "Dense")}), plain),
             Contains("is not in a folder beside the file"));
  CHECK_THAT(refusal_of(json::array({dense, dense, dense}), plain), Contains("more than two dense modules"));
  CHECK_THAT(refusal_of(json::array({dense}), dense_config(true, kIdentity)), Contains("with a bias"));
  CHECK_THAT(refusal_of(json::array({dense}), dense_config(false, "torch.nn.modules.activation.Tanh")),
             Contains("Tanh"));
  CHECK_THAT(refusal_of(json{{"modules", 1}}, plain), Contains("is no list of modules"));
  CHECK_THAT(refusal_of(json::array({3}), plain), Contains("holds a module that is no object"));
}
