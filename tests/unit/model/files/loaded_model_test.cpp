#include "core/model/layers/loaded_model.h"

#include <catch2/catch.hpp>

#include "core/model/formats/read_tokenizer.h"
#include "tests/support/material.h"

using namespace quire;

TEST_CASE("A published GGUF file opens with its text side", "[model]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/stories260K-gguf/stories260K.gguf");
  const auto model = open_model(path);
  const ModelInfo& info = model->info();
  CHECK(info.architecture == "llama");
  CHECK(info.file_type == "F32");
  CHECK(info.max_context == 2048);
  CHECK(info.vocab_size == 512);
  CHECK(info.hidden_size == 64);
  CHECK(info.kv_layout.num_layers == 5);
  CHECK(info.kv_layout.num_kv_heads == 4);
  CHECK(info.kv_layout.head_dim == 8);
  CHECK(info.file_bytes == 1185376);
  CHECK(model->chat_template().empty());
  CHECK(model->tokenizer()->encode("Once upon a time", true, false) ==
        std::vector<TokenId>{{1}, {403}, {407}, {261}, {378}});
  CHECK(open_tokenizer(path)->vocab_size() == 512);
}

TEST_CASE("A published Hugging Face directory opens with its text side", "[model]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/TinyStories-656K-hf");
  const auto model = open_model(path);
  const ModelInfo& info = model->info();
  CHECK(info.architecture == "llama");
  CHECK(info.file_type == "F32");
  CHECK(info.max_context == 512);
  CHECK(info.vocab_size == 2048);
  CHECK(info.num_parameters == 656000);
  CHECK(model->tokenizer()->encode("Once upon a time", true, false) ==
        std::vector<TokenId>{{1}, {80}, {147}, {201}, {282}, {57}});
  CHECK_FALSE(model->generation_defaults().temperature);
}
