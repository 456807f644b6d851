// Settings for embedding and judging texts are read from the places where a model's files keep them.
#include "core/model/formats/hf/text_tasks.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/result.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/text/tokenizer_data.h"
#include "tests/support/material.h"

namespace quire {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

std::shared_ptr<const Tokenizer> answering_tokenizer() {
  VocabularyData data;
  data.model = "gpt2";
  data.pre = "qwen2";
  data.tokens = {"a", "yes", "no", "<|im_start|>"};
  data.kinds = {TokenKind::kNormal, TokenKind::kNormal, TokenKind::kNormal, TokenKind::kControl};
  data.merges = {"y e"};
  return make_tokenizer(data);
}

struct Directory {
  std::filesystem::path path;
  explicit Directory(const std::string& name) : path(std::filesystem::temp_directory_path() / name) {
    std::filesystem::create_directories(path);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

}  // namespace

TEST_CASE("a directory's prompts and labels are read", "[text_tasks]") {
  const Directory directory("quire-text-tasks-plain");
  const auto tokenizer = answering_tokenizer();
  CHECK(read_text_tasks(directory.path, *tokenizer).prompts.empty());
  write(directory.path / "config.json",
        R"({"architectures":["BertForSequenceClassification"],"id2label":{"1":"bad","0":"good"}})");
  write(directory.path / "config_sentence_transformers.json", R"({"prompts":{"query":"Q: ","document":""}})");
  const TextTasks tasks = read_text_tasks(directory.path, *tokenizer);
  CHECK(tasks.labels == std::vector<std::string>{"good", "bad"});
  REQUIRE(tasks.prompts.size() == 2);
  CHECK(std::find(tasks.prompts.begin(), tasks.prompts.end(), std::pair<std::string, std::string>("query", "Q: ")) !=
        tasks.prompts.end());
  CHECK(!tasks.answers);
  write(directory.path / "config_sentence_transformers.json", R"({"prompts":{"query":7}})");
  CHECK_THROWS_AS(read_text_tasks(directory.path, *tokenizer), StartupError);
}

TEST_CASE("a generating model that is called a reranker answers yes or no", "[text_tasks]") {
  const auto tokenizer = answering_tokenizer();
  const Directory directory("quire-Qwen3-Reranker-tiny");
  write(directory.path / "config.json", R"({"architectures":["Qwen3ForCausalLM"]})");
  const TextTasks tasks = read_text_tasks(directory.path, *tokenizer);
  REQUIRE(tasks.answers);
  CHECK(tasks.answers->first == TokenId{1});
  CHECK(tasks.answers->second == TokenId{2});
  for (const char* place : {"{query}", "{document}", "{instruction}"})
    CHECK(tasks.pair_prompt.find(place) != std::string::npos);
  // A classifier judges by itself.
  write(directory.path / "config.json", R"({"architectures":["Qwen3ForSequenceClassification"]})");
  CHECK(!read_text_tasks(directory.path, *tokenizer).answers);
}

TEST_CASE("a GGUF classifier's labels are read", "[text_tasks]") {
  QUIRE_REQUIRE_MATERIAL(file, "architectures/given/qwen3-rerank/model.gguf");
  const auto tokenizer = read_gguf_tokenizer(*GgufFile::open(file), "qwen3-rerank");
  const TextTasks tasks = read_text_tasks(file, *tokenizer);
  CHECK(tasks.labels == std::vector<std::string>{"yes", "no"});
  CHECK(!tasks.answers);
}

}  // namespace quire
