// Files that are not what their names say, and folders that hold something else: each has a sentence of its own.
#include <catch2/catch.hpp>
#include <filesystem>

#include "core/base/result.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/hf/hf_directory.h"

using Catch::Contains;
using namespace quire;
using quire::test::TemporaryFolder;

namespace {

constexpr const char* kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
constexpr const char* kPage = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>";

std::string refusal(const std::filesystem::path& path) {
  try {
    open_model(path);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

void write_hf(const TemporaryFolder& folder) {
  SynthSpec spec = find_synth_shape("tiny-qwen2").value();
  spec.types = find_synth_types("F32").value();
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  std::filesystem::remove_all(folder / "hf");
  test::write_hf_directory(folder / "model.gguf", spec.config, {}, folder / "hf");
}

}  // namespace

TEST_CASE("A file in a model's place is named by what it is", "[model][files]") {
  const TemporaryFolder folder;
  const auto gguf = [&](const std::string& bytes) {
    folder.write("model.gguf", bytes);
    const std::string line = refusal(folder / "model.gguf");
    CHECK_THAT(line, Catch::StartsWith((folder / "model.gguf").string()) && !Contains("\n"));
    return line;
  };
  CHECK_THAT(gguf(kPointer), Contains("it is a Git LFS pointer") && Contains("git lfs pull"));
  CHECK_THAT(gguf(kPage), Contains("it is an HTML page") && Contains("download it again"));
  CHECK_THAT(gguf("  <html>" + std::string(100, ' ')), Contains("it is an HTML page"));
  CHECK_THAT(gguf(R"({"error": "Repository not found"})"), Contains("it is a JSON file"));
  CHECK_THAT(gguf("Invalid username or password."), Contains("it is a text, such as a server's error message"));
  CHECK_THAT(gguf("PK\x03\x04" + std::string(60, '\1')), Contains("it is a zip archive"));
  CHECK_THAT(gguf("\x1F\x8B" + std::string(60, '\1')), Contains("it is a compressed archive"));
  CHECK_THAT(gguf("tjgg" + std::string(60, '\1')), Contains("before GGUF"));
  CHECK_THAT(gguf(std::string(4096, '\0')), Contains("it begins with zeros"));
  CHECK_THAT(gguf(""), Contains("is empty"));
  CHECK_THAT(gguf(std::string("\x10\0\0\0\0\0\0\0{\"a\": 1}", 16)), Contains("it is a safetensors file"));
  CHECK_THAT(gguf("GGUF\x03"), Contains("it is incomplete, download it again"));
}

TEST_CASE("A GGUF file that is cut in its header or its tensors is incomplete", "[model][files]") {
  const TemporaryFolder folder;
  write_synthetic_gguf(find_synth_shape("tiny-llama").value(), folder / "model.gguf", {});
  const auto size = std::filesystem::file_size(folder / "model.gguf");
  for (const std::uintmax_t length :
       {std::uintmax_t{100}, std::uintmax_t{1000}, std::uintmax_t{3000}, size / 2, size - 64}) {
    std::filesystem::resize_file(folder / "model.gguf", length);
    CHECK_THAT(refusal(folder / "model.gguf"), Contains("incomplete, download it again"));
    write_synthetic_gguf(find_synth_shape("tiny-llama").value(), folder / "model.gguf", {});
  }
}

TEST_CASE("Parts of a model are refused as the model with what they are", "[model][files]") {
  const TemporaryFolder folder;
  const auto with = [&](std::initializer_list<std::pair<const char*, const char*>> keys) {
    GgufWriter out(folder / "part.gguf");
    for (const auto& [key, value] : keys)
      out.set(key, value);
    out.declare("t", std::vector<std::int64_t>{8}, DType::kF32);
    out.begin_data();
    out.append(std::vector<std::byte>(32));
    out.finish();
    return refusal(folder / "part.gguf");
  };
  CHECK_THAT(with({{"general.architecture", "clip"}}), Contains("an mmproj file") && Contains("language model's own"));
  CHECK_THAT(with({{"general.type", "mmproj"}, {"general.architecture", "clip"}}), Contains("an mmproj file"));
  CHECK_THAT(with({{"general.type", "adapter"}, {"general.architecture", "llama"}}), Contains("--adapters NAME=PATH"));
  CHECK_THAT(with({{"general.type", "imatrix"}}), Contains("it is an importance matrix"));
}

TEST_CASE("A link whose target is absent is not an absent file", "[model][files]") {
  const TemporaryFolder folder;
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "generation_config.json"}) {
    write_hf(folder);
    std::filesystem::remove(folder / "hf" / name);
    std::filesystem::create_symlink("../../blobs/abc", folder / "hf" / name);
    CHECK_THAT(refusal(folder / "hf"),
               Contains(name) && Contains("is a link to ../../blobs/abc, which is not there") && Contains("blobs"));
  }
  std::filesystem::create_symlink("nowhere.gguf", folder / "link.gguf");
  CHECK_THROWS_WITH(require_model_path(folder / "link.gguf"), Contains("is a link to nowhere.gguf"));
}

TEST_CASE("Files of a folder that are pointers or pages are named", "[model][files]") {
  const TemporaryFolder folder;
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"}) {
    write_hf(folder);
    folder.write(std::string("hf/") + name, kPointer);
    CHECK_THAT(refusal(folder / "hf"), Contains(name) && Contains("it is a Git LFS pointer"));
    folder.write(std::string("hf/") + name, kPage);
    CHECK_THAT(refusal(folder / "hf"), Contains(name) && Contains("it is an HTML page"));
  }
  write_hf(folder);
  std::filesystem::resize_file(folder / "hf" / "model.safetensors", 200);
  CHECK_THAT(refusal(folder / "hf"), Contains("it ends within its header") && Contains("incomplete"));
}

TEST_CASE("A folder that is no model says what it holds", "[model][files]") {
  const auto holds = [](std::initializer_list<const char*> names) {
    const TemporaryFolder folder;
    for (const char* name : names)
      folder.write(name, "{}");
    return refusal(folder.path());
  };
  CHECK_THAT(holds({"b-Q4_K_M.gguf", "a-Q8_0.gguf", "README.md"}),
             Contains("it is a folder of GGUF files") && Contains("a-Q8_0.gguf"));
  CHECK_THAT(holds({"adapter_config.json", "adapter_model.safetensors"}), Contains("--adapters NAME=PATH"));
  CHECK_THAT(holds({"snapshots/0a1b/config.json", "refs/main"}),
             Contains("a repository of the hub's cache") && Contains("snapshots/0a1b"));
  CHECK_THAT(holds({"params.json", "consolidated.00.pth"}), Contains("its maker's own format"));
  CHECK_THAT(holds({}), Contains("the folder is empty"));
  CHECK_THAT(holds({"config.json", "pytorch_model-00001-of-00002.bin"}), Contains("a pickle of PyTorch"));
  CHECK_THAT(holds({"config.json", "model-00001-of-00002.safetensors"}), Contains("shards without their index"));
  CHECK_THAT(holds({"config.json", "x-Q8_0.gguf"}), Contains("it is a folder of GGUF files"));
}

TEST_CASE("A checkpoint without a head gives embeddings", "[model][files]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-llama").value();
  spec.types = find_synth_types("F32").value();
  spec.config.tied_head = true;  // no tensor of the head is written
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  spec.config.tied_head = false;
  const auto write = [&](const std::string& names) {
    std::filesystem::remove_all(folder / "hf");
    test::write_hf_directory(folder / "model.gguf", spec.config, {}, folder / "hf");
    std::ifstream in(folder / "hf" / "config.json");
    std::string config((std::istreambuf_iterator<char>(in)), {});
    config.insert(1, "\"architectures\": [\"" + names + "\"], ");
    folder.write("hf/config.json", config);
  };
  write("LlamaModel");
  const auto model = open_model(folder / "hf");
  CHECK_FALSE(model->info().has_head);
  CHECK(model->info().is_causal);
  CHECK(model->info().pooling == Pooling::kLast);
  write("LlamaForCausalLM");
  CHECK_THAT(refusal(folder / "hf"), Contains("there is no tensor 'lm_head.weight'"));
  folder.write("hf/1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  CHECK_FALSE(open_model(folder / "hf")->info().has_head);
}
