// Adapters against the same change merged into the weights, and against themselves in every batch.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "core/base/result.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/gguf_writer.h"
#include "core/model/layers/adapter.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/hf_directory.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr float kAlpha = 6.0F;

std::shared_ptr<const GgufFile> write_model(const std::string& shape, const std::string& types,
                                            const std::filesystem::path& path) {
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types(types).value();
  write_synthetic_gguf(spec, path, {});
  return GgufFile::open(path);
}

// A change of one matrix: [outputs, rank] times [rank, inputs].
struct Change {
  std::string name;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t rank = 0;
  std::vector<float> down;
  std::vector<float> up;
};

// One for each matrix of a layer that is a product or a part of one, and for a head of its own.
std::vector<Change> changes_of(const std::shared_ptr<const GgufFile>& model, unsigned seed, std::int64_t rank = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const ModelSpec spec = make_gguf_checkpoint(model, "model").spec;
  std::vector<Change> out;
  for (std::int64_t layer = -1; layer < spec.config.num_layers; ++layer) {
    for (const WeightNeed& need : weight_needs(spec, layer)) {
      const std::string name = gguf_name(need.role, layer);
      if (need.form != WeightForm::kProduct || (layer < 0 && need.role != WeightRole::kHead)) continue;
      if (model->find_tensor(name) == nullptr) continue;  // the head is the embedding
      Change change{name, need.cols, need.rows, rank > 0 ? rank : 1 + static_cast<std::int64_t>(random() % 9), {}, {}};
      for (std::int64_t i = 0; i < change.rank * change.inputs; ++i)
        change.down.push_back(normal(random) / std::sqrt(static_cast<float>(change.inputs)));
      for (std::int64_t i = 0; i < change.outputs * change.rank; ++i)
        change.up.push_back(0.1F * normal(random));
      out.push_back(std::move(change));
    }
  }
  return out;
}

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

void write_adapter(const std::vector<Change>& changes, const std::string& architecture,
                   const std::filesystem::path& path) {
  GgufWriter writer(path);
  writer.set("general.type", "adapter");
  writer.set("adapter.type", "lora");
  writer.set("general.architecture", std::string_view(architecture));
  writer.set("adapter.lora.alpha", kAlpha);
  for (const Change& change : changes) {
    writer.declare(change.name + ".lora_a", std::vector{change.inputs, change.rank}, DType::kF32);
    writer.declare(change.name + ".lora_b", std::vector{change.rank, change.outputs}, DType::kF32);
  }
  writer.begin_data();
  for (const Change& change : changes) {
    writer.append(bytes_of(change.down));
    writer.append(bytes_of(change.up));
  }
  writer.finish();
}

// As PEFT saves it; every change has the rank 4.
void write_peft(const std::vector<Change>& changes, const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "bias": "none", "target_modules": ["q_proj"]})";
  const std::map<std::string, std::string> names{
      {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
      {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},  {"ffn_gate_exps", "mlp.experts.3.gate_proj"}};
  std::string header = "{";
  std::string data;
  for (const Change& change : changes) {
    const std::size_t dot = change.name.find('.', 4);
    const std::string layer = change.name.substr(4, dot - 4);
    const std::string name = change.name.substr(dot + 1, change.name.rfind('.') - dot - 1);
    const auto add = [&](const char* ending, std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
      const std::size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      header += (header.size() > 1 ? "," : "") + std::string("\"base_model.model.model.layers.") + layer + "." +
                names.at(name) + "." + ending + ".weight\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                "," + std::to_string(cols) + "],\"data_offsets\":[" + std::to_string(begin) + "," +
                std::to_string(data.size()) + "]}";
    };
    add("lora_A", change.rank, change.inputs, change.down);
    add("lora_B", change.outputs, change.rank, change.up);
  }
  header += "}";
  const std::uint64_t size = header.size();
  std::ofstream out(directory / "adapter_model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << header << data;
}

// The model's file with the changes added to its f32 weights.
void write_merged(const std::filesystem::path& model, const std::vector<Change>& changes,
                  const std::filesystem::path& path) {
  std::ifstream in(model, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  const auto view = GgufFile::parse(std::as_bytes(std::span(bytes)), "model");
  for (const Change& change : changes) {
    const GgufTensor* tensor = view->find_tensor(change.name);
    REQUIRE(tensor->type == DType::kF32);
    auto* weights =
        reinterpret_cast<float*>(bytes.data() + (reinterpret_cast<const char*>(tensor->data.data()) - bytes.data()));
    for (std::int64_t row = 0; row < change.outputs; ++row) {
      for (std::int64_t column = 0; column < change.inputs; ++column) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < change.rank; ++k)
          sum += static_cast<double>(change.up[static_cast<std::size_t>(row * change.rank + k)]) *
                 static_cast<double>(change.down[static_cast<std::size_t>(k * change.inputs + column)]);
        weights[row * change.inputs + column] += static_cast<float>(sum * kAlpha / static_cast<double>(change.rank));
      }
    }
  }
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

std::vector<std::int32_t> tokens(std::int32_t count, std::int32_t first) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((first + i * 37) % 300);
  return ids;
}

double difference(const Logits& a, const Logits& b) {
  double worst = 0.0;
  double largest = 0.0;
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(a[row][i] - b[row][i])));
      largest = std::max(largest, static_cast<double>(std::abs(b[row][i])));
    }
  }
  return worst / largest;
}

std::string text_of(const GgufFile& file, const char* key) {
  return std::string(file.get_string(key).value());
}

// Hugging Face's rows of queries and keys are the halves of a head, Llama's GGUF files have pairs.
std::vector<Change> in_halves(std::vector<Change> changes, const GgufFile& model) {
  const std::string architecture = text_of(model, "general.architecture");
  const std::int64_t head = model.get_int(architecture + ".rope.dimension_count").value();
  for (Change& change : changes) {
    const bool rotated = change.name.ends_with("attn_q.weight") || change.name.ends_with("attn_k.weight");
    if (architecture != "llama" || !rotated) continue;
    const std::vector<float> pairs = change.up;
    for (std::int64_t row = 0; row < change.outputs; ++row) {
      const std::int64_t half = row / head * head + row % 2 * (head / 2) + row % head / 2;
      std::copy_n(pairs.begin() + row * change.rank, change.rank, change.up.begin() + half * change.rank);
    }
  }
  return changes;
}

}  // namespace

TEST_CASE("An adapter computes what its changes merged into the weights would", "[model][adapter]") {
  const std::string shape = GENERATE(from_range(synth_shape_names()));
  if (!shape.starts_with("tiny-")) return;
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "F32", folder / "model.gguf");
  const std::vector<Change> changes = changes_of(file, 7);
  write_adapter(changes, text_of(*file, "general.architecture"), folder / "adapter.gguf");
  write_merged(folder / "model.gguf", changes, folder / "merged.gguf");
  const auto ids = tokens(40, 3);
  const auto model = open_model(folder / "model.gguf", false);
  if (!model->info().has_head) return;
  ModelRunner plain(*model, "scalar");
  ModelRunner merged(*open_model(folder / "merged.gguf", false), "scalar");
  plain.model().allow_adapters(16);
  const Logits without = plain.append(ids);
  plain.reset();
  const auto adapter = plain.model().load_adapter(folder / "adapter.gguf");
  const std::vector<const Adapter*> adapters{adapter.get()};
  plain.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
  const Logits wanted = merged.append(ids);
  const Logits got = plain.append(ids);
  CHECK(difference(got, wanted) < 1e-4);
  CHECK(difference(without, wanted) > 1e-2);
}

TEST_CASE("Rows with an adapter have the same bits alone, in chunks and beside other adapters; others lose none",
          "[model][adapter][invariance]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3", "Q8_0", folder / "model.gguf");
  const auto model = open_model(folder / "model.gguf");
  for (unsigned i = 0; i < 2; ++i)
    write_adapter(changes_of(file, i, 3 + 5 * i), "qwen3", folder / ("adapter" + std::to_string(i)));
  for (const std::string& isa : supported_isa_levels()) {
    INFO(isa);
    ModelRunner runner(*model, isa, KvDType::kF16);
    runner.model().allow_adapters(8);
    const std::vector<std::int32_t> ids[] = {tokens(70, 1), tokens(300, 2), tokens(33, 5), tokens(90, 9)};
    const std::vector<Logits> plain{runner.append_together({ids[0]})[0], runner.append_together({ids[1]})[0]};
    const auto first = runner.model().load_adapter(folder / "adapter0");
    const auto second = runner.model().load_adapter(folder / "adapter1");
    CHECK(first->content_key() != second->content_key());
    const std::vector<const Adapter*> together{nullptr, nullptr, first.get(), second.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = together; };
    const auto mixed = runner.append_together({ids[0], ids[1], ids[2], ids[3]});
    CHECK(mixed[0] == plain[0]);
    CHECK(mixed[1] == plain[1]);
    for (std::size_t i = 2; i < 4; ++i) {
      for (const std::size_t chunk : {1U, 16U, 64U}) {
        runner.reset();
        runner.edit = [&](StepArrays& arrays) { arrays.adapters = std::span(together).subspan(i, 1); };
        CHECK(runner.append_chunked(ids[i], chunk) == mixed[i]);
      }
    }
  }
}

TEST_CASE("A PEFT directory has the bits of the same adapter as a GGUF file", "[model][adapter]") {
  const std::string shape = GENERATE("tiny-llama", "tiny-qwen3");
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "Q8_0", folder / "model.gguf");
  const std::string architecture = text_of(*file, "general.architecture");
  std::vector<Change> changes = changes_of(file, 3, 4);
  std::erase_if(changes, [](const Change& change) { return change.name == "output.weight"; });
  write_adapter(changes, architecture, folder / "adapter.gguf");
  write_peft(in_halves(changes, *file), folder / "peft");
  const auto model = open_model(folder / "model.gguf", false);
  ModelRunner runner(*model, "scalar");
  runner.model().allow_adapters(16);
  const auto logits_with = [&](const std::filesystem::path& path) {
    const auto adapter = runner.model().load_adapter(path);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    runner.reset();
    return runner.append(tokens(20, 3));
  };
  CHECK(logits_with(folder / "peft") == logits_with(folder / "adapter.gguf"));
}

TEST_CASE("A Hugging Face directory with an adapter of either form computes what its GGUF conversion does",
          "[model][adapter][hf]") {
  const std::string shape = GENERATE("tiny-llama", "tiny-qwen2", "tiny-qwen3");
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "F32", folder / "model.gguf");
  write_hf_directory(folder / "model.gguf", find_synth_shape(shape)->config, {}, folder / "hf");
  const std::string architecture = text_of(*file, "general.architecture");
  std::vector<Change> changes = changes_of(file, 3, 4);
  std::erase_if(changes, [](const Change& change) { return change.name == "output.weight"; });
  write_adapter(changes, architecture, folder / "adapter.gguf");
  write_peft(in_halves(changes, *file), folder / "peft");
  const auto logits_with = [&](const char* model, const char* name) {
    ModelRunner runner(*open_model(folder / model, false), "scalar");
    runner.model().allow_adapters(16);
    const auto adapter = runner.model().load_adapter(folder / name);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    return runner.append(tokens(20, 3));
  };
  const Logits wanted = logits_with("model.gguf", "adapter.gguf");
  CHECK(difference(logits_with("hf", "peft"), wanted) < 1e-5);
  CHECK(difference(logits_with("hf", "adapter.gguf"), wanted) < 1e-5);
}

TEST_CASE("An adapter that changes experts is refused by the tensor's name", "[model][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3moe", "F32", folder / "model.gguf");
  ModelRunner runner(*open_model(folder / "model.gguf"), "scalar");
  runner.model().allow_adapters(9);
  Change change{"blk.0.ffn_gate_exps.weight", 4, 4, 1, std::vector<float>(4), std::vector<float>(4)};
  write_adapter({change}, text_of(*file, "general.architecture"), folder / "adapter.gguf");
  CHECK_THROWS_WITH(
      runner.model().load_adapter(folder / "adapter.gguf"),
      Catch::Contains("'blk.0.ffn_gate_exps.weight' is of experts, and no product that an adapter can change"));
  write_peft({change}, folder / "peft");
  CHECK_THROWS_WITH(runner.model().load_adapter(folder / "peft"),
                    Catch::Contains("'layers.0.mlp.experts.3.gate_proj' is of experts"));
}

TEST_CASE("An adapter that does not fit the model is refused by name", "[model][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3", "F32", folder / "model.gguf");
  ModelRunner runner(*open_model(folder / "model.gguf"), "scalar");
  const auto refusal = [&](const std::vector<Change>& changes, const std::string& architecture) -> std::string {
    write_adapter(changes, architecture, folder / "adapter.gguf");
    try {
      runner.model().load_adapter(folder / "adapter.gguf");
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  };
  const std::vector<Change> good = changes_of(file, 1);
  CHECK_THAT(refusal(good, "qwen3"), Catch::Contains("not allowed for"));
  runner.model().allow_adapters(9);
  CHECK(refusal(good, "qwen3").empty());
  CHECK_THAT(refusal(good, "llama"), Catch::Contains("for 'llama'"));
  std::vector<Change> bad = good;
  bad[0].name = "blk.99.attn_q.weight";
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("'blk.99.attn_q.weight' is no product"));
  bad[0].name = "token_embd.weight";
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("'token_embd.weight' is no product"));
  bad = changes_of(file, 1, 10);
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("rank 10; at most 9"));
  bad = good;
  bad[0].inputs *= 2;
  bad[0].rank = 1;
  bad[0].down.resize(static_cast<std::size_t>(bad[0].inputs));
  bad[0].up.resize(static_cast<std::size_t>(bad[0].outputs));
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("do not fit"));
  CHECK_THROWS_WITH(runner.model().load_adapter(folder / "model.gguf"), Catch::Contains("no LoRA adapter"));
}
