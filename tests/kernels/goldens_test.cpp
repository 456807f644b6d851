// Operator goldens of another engine's layers: RMSNorm, RoPE, SwiGLU, embedding and matmul on every level.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/formats/half.h"
#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/npy.h"
#include "tests/support/made_rows.h"
#include "tests/support/material.h"

namespace quire::test {
namespace {

// The largest |actual - expected| - relative * |expected|.
double excess(Matrix& actual, const Array& expected, double relative) {
  REQUIRE(actual.rows == expected.rows());
  REQUIRE(actual.cols == expected.columns());
  double worst = -1.0;
  for (std::int64_t row = 0; row < actual.rows; ++row) {
    for (std::int64_t col = 0; col < actual.cols; ++col) {
      const double wanted = expected.values[static_cast<std::size_t>(row * actual.cols + col)];
      const double error = std::fabs(static_cast<double>(actual.at(row, col)) - wanted);
      worst = std::max(worst, std::isnan(error) ? 1e9 : error - relative * std::fabs(wanted));
    }
  }
  return worst;
}

struct RopeGolden {
  const char* folder;
  std::int64_t head_dim;
  RopeStyle style;
  double tolerance;
};

// Rotates with the golden's own table of cosines and sines, [position][cos | sin].
void check_rope_table(Backend& backend, const std::filesystem::path& folder, const RopeGolden& golden) {
  const Array table = read_npy(folder / "cos_sin_cache.npy");
  const Array positions = read_npy(folder / "positions.npy");
  const std::int64_t half = table.columns() / 2;
  const std::int64_t rows = positions.rows() * positions.columns();
  Matrix cos(rows, half);
  Matrix sin(rows, half);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::int64_t>(positions.values[static_cast<std::size_t>(row)]) * table.columns();
    for (std::int64_t i = 0; i < half; ++i) {
      cos.at(row, i) = static_cast<float>(table.values[static_cast<std::size_t>(at + i)]);
      sin.at(row, i) = static_cast<float>(table.values[static_cast<std::size_t>(at + half + i)]);
    }
  }
  for (const char* name : {"q", "k"}) {
    Matrix x = read_npy(folder / (std::string(name) + "_in.npy")).matrix();
    backend.rope(x.view(), x.cols / golden.head_dim, golden.head_dim, golden.style, cos.view(), sin.view());
    CHECK(excess(x, read_npy(folder / (std::string(name) + "_out.npy")), 1.6 * golden.tolerance) <= golden.tolerance);
  }
}

}  // namespace

TEST_CASE("rms_norm equals the goldens") {
  QUIRE_REQUIRE_MATERIAL(root, "numeric-goldens");
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    for (const char* name :
         {"rmsnorm_f32_8x128", "rmsnorm_fused_residual_f32_8x128", "rmsnorm_bf16_8x128", "rmsnorm_gemma_bf16_8x128"}) {
      INFO(name);
      const std::string folder = name;
      Matrix x = read_npy(root / folder / "x.npy").matrix();
      if (folder.find("residual") != std::string::npos) {
        Matrix residual = read_npy(root / folder / "residual_in.npy").matrix();
        for (std::int64_t row = 0; row < x.rows; ++row) {
          for (std::int64_t col = 0; col < x.cols; ++col)
            x.at(row, col) += residual.at(row, col);
        }
      }
      std::vector<float> weight = read_npy(root / folder / "weight.npy").floats();
      for (float& w : weight)
        w += folder.find("gemma") != std::string::npos ? 1.0f : 0.0f;
      const double tolerance = folder.find("bf16") != std::string::npos ? 0.008 : 1e-5;
      level.backend->rms_norm(x.view(), weight.data(), 1e-6f, x.view());
      CHECK(excess(x, read_npy(root / folder / "out.npy"), tolerance) <= tolerance);
    }
  }
}

TEST_CASE("rope equals the goldens with their tables, both styles") {
  QUIRE_REQUIRE_MATERIAL(root, "numeric-goldens");
  const RopeGolden goldens[] = {
      {"long_rope_llama3_neox_f32_bands", 24, RopeStyle::kHalf, 1e-5},
      {"long_rope_llama3_neox_f32_equal_factors", 24, RopeStyle::kHalf, 1e-5},
      {"long_rope_llama3_gptj_bf16_bands", 24, RopeStyle::kInterleaved, 0.01},
      {"long_rope_dynamic_alpha_neox_f32", 16, RopeStyle::kHalf, 1e-5},
      {"long_rope_dynamic_factor1_neox_f32", 16, RopeStyle::kHalf, 1e-5},
      {"long_rope_dynamic_factor_gptj_bf16", 16, RopeStyle::kInterleaved, 0.01},
      {"long_rope_yarn_gptj_f32_untruncated_no_mscale", 16, RopeStyle::kInterleaved, 1e-5},
      {"long_rope_yarn_neox_f32_truncate", 16, RopeStyle::kHalf, 1e-5},
      {"long_rope_yarn_neox_bf16", 16, RopeStyle::kHalf, 0.01},
  };
  for (LevelBackend& level : level_backends(2)) {
    for (const RopeGolden& golden : goldens) {
      INFO(level.level << " " << golden.folder);
      check_rope_table(*level.backend, root / golden.folder, golden);
    }
  }
}

TEST_CASE("rope_angles and rope equal the goldens at short positions and at 131,000") {
  QUIRE_REQUIRE_MATERIAL(root, "numeric-goldens");
  std::vector<double> frequencies;
  for (int i = 0; i < 16; ++i)
    frequencies.push_back(std::pow(10000.0, -i / 16.0));
  for (LevelBackend& level : level_backends(2)) {
    for (const char* folder : {"rope_f32_pos_short", "rope_f32_pos_131k"}) {
      INFO(level.level << " " << folder);
      const Array stored = read_npy(root / folder / "positions.npy");
      const std::vector<std::int32_t> positions(stored.values.begin(), stored.values.end());
      const auto rows = static_cast<std::int64_t>(positions.size());
      Matrix cos(rows, 16);
      Matrix sin(rows, 16);
      level.backend->rope_angles(positions, frequencies, 1.0f, cos.view(), sin.view());
      Matrix q = read_npy(root / folder / "q_in.npy").matrix();
      level.backend->rope(q.view(), 4, 64, RopeStyle::kHalf, cos.view(), sin.view());
      // The goldens' angles are f32: at 131,000 they are off by up to 0.004.
      CHECK(excess(q, read_npy(root / folder / "q_out.npy"), 1e-5) <= (std::strstr(folder, "131k") ? 0.02 : 1e-5));
    }
  }
}

TEST_CASE("swiglu, embed and linear equal the bf16 goldens") {
  QUIRE_REQUIRE_MATERIAL(root, "numeric-goldens");
  const auto to_weights = [](const Array& from, bool transpose) {
    Weights out{DType::kBF16, transpose ? from.columns() : from.rows(), transpose ? from.rows() : from.columns(), {}};
    for (std::int64_t row = 0; row < out.rows; ++row) {
      for (std::int64_t col = 0; col < out.cols; ++col) {
        const std::int64_t at = transpose ? col * from.columns() + row : row * from.columns() + col;
        const std::uint16_t half = float_to_bf16(static_cast<float>(from.values[static_cast<std::size_t>(at)]));
        out.bytes.push_back(static_cast<std::byte>(half & 0xff));
        out.bytes.push_back(static_cast<std::byte>(half >> 8));
      }
    }
    return out;
  };
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    Matrix gate_up = read_npy(root / "silu_and_mul_bf16_8x256/x.npy").matrix();
    Matrix activated(gate_up.rows, gate_up.cols / 2, 0);
    activated.data = made_rows(*level.backend, gated(gate_up.view()));
    CHECK(excess(activated, read_npy(root / "silu_and_mul_bf16_8x256/out.npy"), 0.008) <= 0.008);

    const Weights table = to_weights(read_npy(root / "embedding_bf16_32ids/table.npy"), false);
    const Array stored_ids = read_npy(root / "embedding_bf16_32ids/ids.npy");
    const std::vector<std::int32_t> ids(stored_ids.values.begin(), stored_ids.values.end());
    Matrix rows(static_cast<std::int64_t>(ids.size()), table.cols);
    level.backend->embed(*level.backend->load_embedding(table.source()), ids, rows.view());
    CHECK(excess(rows, read_npy(root / "embedding_bf16_32ids/out.npy"), 0.0) == 0.0);

    const Weights weights = to_weights(read_npy(root / "matmul_bf16_16x64x32/b.npy"), true);
    const WeightSource source = weights.source();
    Matrix x = read_npy(root / "matmul_bf16_16x64x32/a.npy").matrix();
    Matrix out(x.rows, weights.rows);
    level.backend->linear(*level.backend->load_linear({&source, 1}, {}), x.view(), out.view(), false);
    CHECK(excess(out, read_npy(root / "matmul_bf16_16x64x32/out.npy"), 1e-5) <= 1e-5);
  }
}

}  // namespace quire::test
