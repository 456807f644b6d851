// A tower that the tree makes itself: against double precision, cut in slices, in several types, and wrong files.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/base/result.h"
#include "kernels/registry.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/encode/made_tower.h"
#include "tests/unit/encode/vision_exam.h"

namespace quire::test {

namespace {

// Large enough for every size of these tests, so that pictures stay as they are.
EncoderOptions options_for(Backend& backend) {
  return {.backend = &backend, .min_pixels = 64, .max_pixels = 1 << 20};
}

std::unique_ptr<Encoder> open_made(const MadeTower& tower, Backend& backend) {
  const TemporaryFolder folder;
  tower.write(folder / "mmproj.gguf");
  return Encoder::open(folder / "mmproj.gguf", options_for(backend));
}

double deviation(const std::vector<float>& rows, const std::vector<double>& expected) {
  REQUIRE(rows.size() == expected.size());
  double squares = 0.0;
  double differences = 0.0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    squares += expected[i] * expected[i];
    differences += std::pow(static_cast<double>(rows[i]) - expected[i], 2.0);
  }
  return std::sqrt(differences / squares);
}

bool are_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string refusal(const std::function<void()>& open) {
  try {
    open();
  } catch (const StartupError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("A made tower agrees with double precision in every type of weights", "[encode]") {
  struct Case {
    DType type;
    double most;
  };
  const auto backend = exact_backend(2);
  // Activations beside quantised weights are rounded to 8 bits.
  for (const Case& one : {Case{DType::kF32, 2e-6}, Case{DType::kF16, 2e-6}, Case{DType::kBF16, 2e-6},
                          Case{DType::kQ8_0, 0.02}, Case{DType::kQ4_0, 0.02}}) {
    INFO("type " << dtype_info(one.type).name);
    const MadeTower tower(one.type);
    const auto encoder = open_made(tower, *backend);
    CHECK(encoder->num_deepstack() == 1);
    CHECK(encoder->row_width() == 2 * MadeTower::kTextWidth);
    for (const auto& [width, height] : {std::pair{24, 16}, std::pair{40, 72}}) {
      const Picture picture = made_picture(width, height);
      CHECK(deviation(encode(*encoder, picture, *backend), tower.rows(picture)) < one.most);
    }
  }
}

TEST_CASE("A file that gives no feed-forward width, or the names of its matrices exchanged, is read by its shapes",
          "[encode]") {
  const auto backend = exact_backend(1);
  MadeTower tower(DType::kF32);
  const Picture picture = made_picture(24, 16);
  const std::vector<double> expected = tower.rows(picture);
  const TemporaryFolder folder;
  tower.write(folder / "silent.gguf", "qwen3vl_merger", 0);
  for (const char* block : {"v.blk.0.", "v.blk.1."}) {
    for (const char* kind : {".weight", ".bias"})
      std::swap(tower.tensors.at(std::string(block) + "ffn_up" + kind),
                tower.tensors.at(std::string(block) + "ffn_down" + kind));
  }
  tower.write(folder / "exchanged.gguf", "qwen3vl_merger", 0);
  for (const char* name : {"silent.gguf", "exchanged.gguf"}) {
    INFO(name);
    const auto encoder = Encoder::open(folder / name, options_for(*backend));
    CHECK(deviation(encode(*encoder, picture, *backend), expected) < 2e-6);
  }
}

TEST_CASE("Rows are the same bits in slices and on any number of threads", "[encode]") {
  for (const IsaLevel& level : cpu_isa_levels()) {
    if (!level.supported) continue;
    INFO("level " << level.name);
    std::vector<float> whole;
    for (const int threads : {1, 2, 3}) {
      const auto backend =
          create_backend({.device = "cpu", .cpu = {.isa = level.name, .threads = threads, .pin = false}});
      const auto encoder = open_made(MadeTower(DType::kQ8_0), *backend);
      const Picture picture = made_picture(120, 96);
      for (const std::int64_t work : {std::int64_t{1} << 40, std::int64_t{1}, std::int64_t{700000}}) {
        const std::vector<float> rows = encode(*encoder, picture, *backend, work);
        if (whole.empty()) whole = rows;
        CHECK(are_same_bits(rows, whole));
      }
    }
  }
}

TEST_CASE("A run counts its work down to nothing and gives control back between pieces", "[encode]") {
  const auto backend = exact_backend(1);
  const auto encoder = open_made(MadeTower(DType::kF32), *backend);
  const auto prepared = encoder->prepare(made_picture(120, 96), {});
  const auto run = prepared->start();
  const std::int64_t all = run->work_left();
  CHECK(run->bytes() > 30 * 24 * 4 * MadeTower::kWidth * sizeof(float));
  CHECK(run->bytes() < 30 * 24 * 8 * MadeTower::kWidth * sizeof(float));
  int pieces = 0;
  for (std::int64_t before = all; !run->is_done(); ++pieces) {
    run->advance(1, *backend);
    REQUIRE(run->work_left() < before);
    CHECK(before - run->work_left() < all / 4);
    before = run->work_left();
  }
  CHECK(pieces > 20);
  CHECK(run->rows().size() == static_cast<std::size_t>(prepared->num_rows() * encoder->row_width()));
}

TEST_CASE("An mmproj file that cannot serve is refused by name", "[encode]") {
  const TemporaryFolder folder;
  const auto backend = exact_backend(1);
  const MadeTower tower(DType::kF32);
  tower.write(folder / "unknown.gguf", "unheard_of");
  tower.write(folder / "good.gguf");
  const std::string unknown = refusal([&] { Encoder::open(folder / "unknown.gguf", options_for(*backend)); });
  CHECK(unknown.find("unknown.gguf") != std::string::npos);
  CHECK(unknown.find("'unheard_of' is not supported") != std::string::npos);
  EncoderOptions options = options_for(*backend);
  options.text_width = 48;
  const std::string narrow = refusal([&] { Encoder::open(folder / "good.gguf", options); });
  CHECK(narrow.find("rows are 32 wide and the text model's embeddings 48") != std::string::npos);
  MadeTower lacking = tower;
  lacking.tensors.erase("v.blk.1.ffn_up.weight");
  lacking.write(folder / "lacking.gguf");
  const std::string missing = refusal([&] { Encoder::open(folder / "lacking.gguf", options_for(*backend)); });
  CHECK(missing.find("'v.blk.1.ffn_up.weight' is missing") != std::string::npos);
  MadeTower more = tower;
  more.tensors["v.blk.0.attn_sinks"] = tower.tensors.at("v.post_ln.bias");
  more.write(folder / "more.gguf");
  const std::string unused = refusal([&] { Encoder::open(folder / "more.gguf", options_for(*backend)); });
  CHECK(unused.find("'v.blk.0.attn_sinks'") != std::string::npos);
}

}  // namespace quire::test
