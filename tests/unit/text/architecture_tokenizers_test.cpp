// Every model of the material's architectures, as a GGUF file and as a Hugging Face directory: the ids of its texts
// equal those that were recorded from another engine.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/read_tokenizer.h"
#include "tests/support/material.h"
#include "tests/unit/text/tokenizer_material.h"

namespace quire::test {
namespace {

using nlohmann::json;

std::vector<std::filesystem::path> model_directories(const std::string& set) {
  std::vector<std::filesystem::path> directories;
  const auto folder = material("architectures/" + set);
  if (!folder) {
    WARN("skipped: architectures/" << set << " is absent from the test material (QUIRE_TEST_MATERIAL)");
    return directories;
  }
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (std::filesystem::exists(entry.path() / "reference.json")) directories.push_back(entry.path());
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

std::shared_ptr<const Tokenizer> tokenizer_in(const std::filesystem::path& directory) {
  const auto file = directory / "model.gguf";
  if (!std::filesystem::exists(file)) return read_hf_tokenizer(directory);
  return read_gguf_tokenizer(*GgufFile::open(file), file.string());
}

std::vector<std::int32_t> values(const std::vector<TokenId>& ids) {
  std::vector<std::int32_t> out;
  for (const TokenId id : ids)
    out.push_back(id.value);
  return out;
}

}  // namespace

TEST_CASE("each architecture's tokenizer gives the recorded ids", "[tokenizer]") {
  const auto set = GENERATE(as<std::string>{}, "given", "extra", "hf");
  for (const auto& directory : model_directories(set)) {
    INFO(set << '/' << directory.filename().string());
    const auto tokenizer = tokenizer_in(directory);
    const json reference = json::parse(read_file(directory / "reference.json"));
    for (const json& each : reference.at("tokenize")) {
      const auto text = each.at("text").get<std::string>();
      INFO(json(text).dump());
      CHECK(values(tokenizer->encode(text, true, false)) == each.at("ids").get<std::vector<std::int32_t>>());
    }
  }
}

TEST_CASE("BERT's ids equal Hugging Face's for llama.cpp's test texts", "[tokenizer]") {
  const std::string base = "tokenizers/llamacpp-vocab/ggml-vocab-bert-bge.gguf";
  const auto inputs = material(base + ".inp");
  const auto outputs = material(base + ".out");
  const auto tokenizer = gguf_vocabulary("bert-bge");
  if (!inputs || !outputs || !tokenizer) {
    WARN("skipped: " << base << " is absent from the test material (QUIRE_TEST_MATERIAL)");
    return;
  }
  const std::string texts = read_file(*inputs);
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::size_t begin = 0;
  std::istringstream lines(read_file(*outputs));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = texts.find(kSeparator, begin);
    if (end == std::string::npos) break;
    const std::string text = texts.substr(begin, end - begin);
    begin = end + kSeparator.size();
    std::string ids;
    for (const TokenId id : tokenizer->encode(text, false, false))
      ids += " " + std::to_string(id.value);
    INFO(json(text).dump());
    CHECK(ids == line);
  }
}

}  // namespace quire::test
