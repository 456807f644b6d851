// linear() of every weight type on every level: against double precision over the rounded inputs, and bit for bit the
// same for a row alone and among others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "kernels/formats/half.h"
#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/random_data.h"
#include "tests/support/made_rows.h"

namespace quire::test {
namespace {

constexpr std::int64_t kRowCounts[] = {1, 2, 3, 5, 8, 16, 17, 33, 64};

bool is_quantised(DType type) {
  return dtype_info(type).block_size > 1;
}

// amx multiplies bf16, except for F32 weights; avx512amx only with float types, avx512bf16 and GPUs with BF16 weights.
bool multiplies_bf16(const std::string& level, DType type) {
  if (level == "avx512bf16" || level.starts_with("cuda")) return type == DType::kBF16;
  if (level.starts_with("avx512amx")) return type != DType::kF32 && (!is_quantised(type) || type == DType::kF8);
  return level.starts_with("amx") && type != DType::kF32;
}

// GPUs multiply F16 weights with f16, of a row times the power of two that takes its largest value to 2^14 or more.
void round_to_f16(std::vector<double>& row) {
  double bound = 0.0;
  for (const double value : row)
    bound = std::max(bound, std::fabs(value));
  const int exponent = bound > 0.0 ? 14 - std::ilogb(bound) : 0;
  for (double& value : row) {
    const auto scaled = static_cast<float>(std::ldexp(value, exponent));
    value = std::ldexp(static_cast<double>(f16_to_float(float_to_f16(scaled))), -exponent);
  }
}

// Rounds activations like a level does before it multiplies.
std::vector<double> rounded_row(const Matrix& x, std::int64_t row, const std::string& level, DType type) {
  const float* from = x.data.data() + row * x.stride;
  std::vector<double> out(from, from + x.cols);
  if (multiplies_bf16(level, type)) {
    for (double& value : out)
      value = static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(value))));
    return out;
  }
  if (level.starts_with("cuda") && type == DType::kF16) round_to_f16(out);
  if (!is_quantised(type) || type == DType::kF8) return out;
  for (std::size_t begin = 0; begin < out.size(); begin += 32) {
    float bound = 0.0f;
    for (std::size_t i = begin; i < begin + 32; ++i)
      bound = std::max(bound, std::fabs(static_cast<float>(out[i])));
    if (bound == 0.0f) continue;
    const float inverse = 127.0f / bound;
    for (std::size_t i = begin; i < begin + 32; ++i) {
      out[i] = std::nearbyint(static_cast<float>(out[i]) * inverse) * static_cast<double>(bound / 127.0f);
    }
  }
  return out;
}

struct Expected {
  double value = 0.0;
  double magnitude = 0.0;  // sum of |w x|: what rounding errors are relative to
};

Expected dot(const std::vector<double>& x, const float* w) {
  Expected out;
  for (std::size_t k = 0; k < x.size(); ++k) {
    out.value += x[k] * static_cast<double>(w[k]);
    out.magnitude += std::fabs(x[k] * static_cast<double>(w[k]));
  }
  return out;
}

struct Shape {
  std::int64_t outputs;
  std::int64_t depth;
};

std::vector<Shape> shapes_of(DType type) {
  const std::int64_t block = dtype_info(type).block_size;
  if (block == 1) return {{8, 8}, {17, 64}, {64, 172}, {172, 33}, {1, 5}, {100, 256}};
  if (block == 32) return {{8, 32}, {17, 64}, {96, 96}, {130, 352}};
  if (block == 64) return {{8, 64}, {17, 192}, {130, 320}};
  if (block == 128) return {{8, 128}, {17, 384}, {130, 640}};
  return {{8, 256}, {17, 512}, {130, 768}};
}

void check_against_double(const LevelBackend& level, DType type, Shape shape, std::mt19937& random) {
  Backend& backend = *level.backend;
  const Weights weights = random_weights(random, type, shape.outputs, shape.depth);
  std::vector<float> decoded = weights.decoded();
  if (multiplies_bf16(level.level, type)) {
    for (float& value : decoded)
      value = bf16_to_float(float_to_bf16(value));
  }
  const std::vector<float> bias = random_floats(random, shape.outputs);
  const WeightSource source = weights.source();
  const auto linear = backend.load_linear({&source, 1}, bias);
  REQUIRE(linear->in_features() == shape.depth);
  REQUIRE(linear->out_features() == shape.outputs);
  for (const std::int64_t rows : kRowCounts) {
    Matrix x = random_matrix(random, rows, shape.depth);
    Matrix out = random_matrix(random, rows, shape.outputs);
    Matrix before = out;
    const bool accumulate = rows % 2 == 1;
    backend.linear(*linear, x.view(), out.view(), accumulate);
    INFO(rows << " rows, " << shape.outputs << " x " << shape.depth);
    CHECK(out.padding_untouched());
    double worst = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> inputs = rounded_row(x, row, level.level, type);
      for (std::int64_t col = 0; col < shape.outputs; ++col) {
        const Expected expected = dot(inputs, decoded.data() + col * shape.depth);
        const double base = static_cast<double>(bias[static_cast<std::size_t>(col)]) +
                            (accumulate ? static_cast<double>(before.at(row, col)) : 0.0);
        const double error = std::fabs(static_cast<double>(out.at(row, col)) - expected.value - base);
        worst = std::max(worst, error / (expected.magnitude + std::fabs(base)));
      }
    }
    CHECK(worst < 2e-6);
  }
}

}  // namespace

TEST_CASE("linear agrees with double precision for every type, level and row count") {
  for (LevelBackend& level : level_backends(2)) {
    for (const DType type : kAllTypes) {
      std::mt19937 random(7);
      for (const Shape shape : shapes_of(type)) {
        INFO(level.level << " " << dtype_info(type).name);
        check_against_double(level, type, shape, random);
      }
    }
  }
}

namespace {

void check_rows(std::initializer_list<std::int64_t> row_counts) {
  std::vector<std::vector<LevelBackend>> on_threads;
  for (const int threads : thread_counts())
    on_threads.push_back(level_backends(threads));
  for (const DType type : kKernelTypes) {
    std::mt19937 random(11);
    const Weights weights = random_weights(random, type, 200, 512);
    const WeightSource source = weights.source();
    Matrix x = random_matrix(random, 64, 512);
    for (std::size_t i = 0; i < on_threads[0].size(); ++i) {
      const LevelBackend& level = on_threads[0][i];
      INFO(level.level << " " << dtype_info(type).name);
      const auto linear = level.backend->load_linear({&source, 1}, {});
      Matrix alone(64, 200);
      for (std::int64_t row = 0; row < 64; ++row) {
        level.backend->linear(*linear, x.rows_from(row, 1), alone.rows_from(row, 1), false);
      }
      for (std::size_t t = 0; t < on_threads.size(); ++t) {
        Backend& same = *on_threads[t][i].backend;
        const auto again = same.load_linear({&source, 1}, {});
        for (const std::int64_t rows : row_counts) {
          Matrix out(rows, 200);
          const std::int64_t first = 64 - rows;
          same.linear(*again, x.rows_from(first, rows), out.view(), false);
          const bool equal = same_rows(out, 0, alone, first, rows);
          INFO(rows << " rows on " << thread_counts()[t] << " threads");
          CHECK(equal);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("linear gives a row the same bits alone, among others and on any number of threads") {
  check_rows({2, 5, 16, 33});
}

TEST_CASE("linear gives a row the same bits alone, among other numbers of rows and on any number of threads",
          "[.long]") {
  check_rows({3, 8, 17, 64});
}

namespace {

void check_blocks(std::initializer_list<DType> types) {
  for (const DType type : types) {
    std::mt19937 random(13);
    const Weights weights = random_weights(random, type, 650, 1280);
    const WeightSource source = weights.source();
    Matrix x = random_matrix(random, 77, 1280);
    for (LevelBackend& level : level_backends(1)) {
      INFO(level.level << " " << dtype_info(type).name);
      const auto linear = level.backend->load_linear({&source, 1}, {});
      Matrix together(77, 650);
      level.backend->linear(*linear, x.view(), together.view(), false);
      bool equal = true;
      for (const std::int64_t row : {0, 31, 32, 76}) {
        Matrix alone(1, 650);
        level.backend->linear(*linear, x.rows_from(row, 1), alone.view(), false);
        equal = equal && same_rows(alone, 0, together, row, 1);
      }
      CHECK(equal);
    }
  }
}

}  // namespace

TEST_CASE("linear gives a row the same bits where weights and rows are cut into blocks") {
  check_blocks({DType::kF16, DType::kQ8_0, DType::kQ4_K, DType::kMXFP4, DType::kI4G128});
}

TEST_CASE("linear gives a row the same bits where weights of other types are cut into blocks", "[.long]") {
  check_blocks({DType::kBF16, DType::kIQ4_XS, DType::kQ3_K, DType::kQ2_K, DType::kF8});
}

TEST_CASE("linear_some gives the outputs that are wanted the bits that linear gives them") {
  constexpr std::int64_t kOutputs = 1000;
  const std::vector<std::vector<OutputRange>> choices = {
      {}, {{0, 64}}, {{64, 128}, {320, 704}, {960, kOutputs}}, {{960, 1200}, {1280, 1300}}, {{0, kOutputs}}};
  for (const int threads : {1, 3}) {
    for (LevelBackend& level : level_backends(threads)) {
      for (const DType type : {DType::kQ8_0, DType::kQ4_K}) {
        std::mt19937 random(17);
        const Weights weights = random_weights(random, type, kOutputs, 256);
        const WeightSource source = weights.source();
        const auto linear = level.backend->load_linear({&source, 1}, {});
        for (const std::int64_t rows : {1, 3, 33}) {
          Matrix x = random_matrix(random, rows, 256);
          Matrix all(rows, kOutputs);
          level.backend->linear(*linear, x.view(), all.view(), false);
          for (const std::vector<OutputRange>& wanted : choices) {
            Matrix some(rows, kOutputs);
            level.backend->linear_some(*linear, x.view(), wanted, -7.0F, some.view());
            INFO(level.level << " " << dtype_info(type).name << ", " << rows << " rows, " << wanted.size()
                             << " ranges");
            bool is_right = true;
            for (std::int64_t row = 0; row < rows; ++row) {
              for (std::int64_t column = 0; column < kOutputs; ++column) {
                const float value = some.view().data[row * some.view().stride + column];
                const float product = all.view().data[row * all.view().stride + column];
                const bool is_wanted = std::ranges::any_of(
                    wanted, [&](const OutputRange& range) { return column >= range.begin && column < range.end; });
                is_right = is_right && (value == product || (!is_wanted && value == -7.0F));
              }
            }
            CHECK(is_right);
          }
        }
      }
    }
  }
}

// Scales from 2^-127 to 2^128: if one were decoded as infinite, such a sum would be NaN.
TEST_CASE("A block of MXFP4 whose elements are zero adds nothing, whatever its scale") {
  constexpr std::size_t kBlockBytes = 17;
  std::mt19937 random(19);
  Weights weights = random_weights(random, DType::kMXFP4, 40, 96);
  for (std::size_t at = kBlockBytes; at < weights.bytes.size(); at += 3 * kBlockBytes)
    std::fill_n(weights.bytes.begin() + static_cast<std::ptrdiff_t>(at + 1), 16, std::byte{0});
  Matrix x = random_matrix(random, 9, 96);
  for (LevelBackend& level : level_backends(1)) {
    std::optional<Matrix> first;
    for (const int scale : {118, 0, 1, 2, 253, 254, 255}) {
      INFO(level.level << " scale " << scale);
      for (std::size_t at = kBlockBytes; at < weights.bytes.size(); at += 3 * kBlockBytes)
        weights.bytes[at] = static_cast<std::byte>(scale);
      const WeightSource source = weights.source();
      Matrix out(9, 40);
      level.backend->linear(*level.backend->load_linear({&source, 1}, {}), x.view(), out.view(), false);
      if (!first) first = out;
      CHECK(same_rows(out, 0, *first, 0, 9));
    }
  }
}

TEST_CASE("linear gives the same bits for rows made on the way and rows made before") {
  const std::vector<LevelBackend> levels = level_backends(3);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    std::mt19937 random(17);
    const Weights weights = random_weights(random, type, 70, 512);
    const WeightSource source = weights.source();
    const std::vector<float> norm = random_floats(random, 512);
    for (const std::int64_t rows : {1, 3, 8, 35, 70}) {
      Matrix x = random_matrix(random, rows, 512);
      Matrix gate_up = random_matrix(random, rows, 1024, 3.0f);
      const Matrix residual = random_matrix(random, rows, 70);
      for (const LevelBackend& level : levels) {
        INFO(level.level << " " << dtype_info(type).name << " " << rows << " rows");
        const auto linear = level.backend->load_linear({&source, 1}, {});
        for (const ProductInput& input : {normed(x.view(), norm.data(), 1e-5f), gated(gate_up.view())}) {
          Matrix before(rows, 512, 0);
          before.data = made_rows(*level.backend, input);
          Matrix expected = residual;
          level.backend->linear(*linear, before.view(), expected.view(), true);
          Matrix out = residual;
          level.backend->linear(*linear, input, out.view(), true);
          CHECK(out.padding_untouched());
          CHECK(same_rows(out, 0, expected, 0, rows));
        }
        Matrix apart(rows, 512, 0);
        level.backend->rms_norm(x.view(), norm.data(), 1e-5f, apart.view());
        CHECK(apart.data == made_rows(*level.backend, normed(x.view(), norm.data(), 1e-5f)));
      }
    }
  }
}

TEST_CASE("linear stacks parts of different types into one operation") {
  std::mt19937 random(5);
  const Weights first = random_weights(random, DType::kQ4_K, 40, 256);
  const Weights second = random_weights(random, DType::kF32, 9, 256);
  const Weights third = random_weights(random, DType::kQ6_K, 33, 256);
  const WeightSource parts[] = {first.source(), second.source(), third.source()};
  const std::vector<float> bias = random_floats(random, 82);
  Matrix x = random_matrix(random, 6, 256);
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    Matrix stacked(6, 82);
    level.backend->linear(*level.backend->load_linear(parts, bias), x.view(), stacked.view(), false);
    std::int64_t offset = 0;
    for (const WeightSource& part : parts) {
      Matrix single(6, part.rows);
      const auto part_bias =
          std::span(bias).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(part.rows));
      level.backend->linear(*level.backend->load_linear({&part, 1}, part_bias), x.view(), single.view(), false);
      for (std::int64_t row = 0; row < 6; ++row) {
        for (std::int64_t col = 0; col < part.rows; ++col)
          CHECK(single.at(row, col) == stacked.at(row, offset + col));
      }
      offset += part.rows;
    }
  }
}

TEST_CASE("linear multiplies the products with the scale of the weights") {
  std::mt19937 random(19);
  const Weights weights = random_weights(random, DType::kNVFP4, 40, 256);
  const std::vector<float> bias = random_floats(random, 40);
  Matrix x = random_matrix(random, 9, 256);
  const WeightSource unscaled = weights.source();
  WeightSource scaled = unscaled;
  scaled.scale = 0.375f;
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    Matrix plain(9, 40);
    level.backend->linear(*level.backend->load_linear({&unscaled, 1}, {}), x.view(), plain.view(), false);
    Matrix out(9, 40);
    level.backend->linear(*level.backend->load_linear({&scaled, 1}, bias), x.view(), out.view(), false);
    for (std::int64_t row = 0; row < 9; ++row) {
      for (std::int64_t col = 0; col < 40; ++col)
        CHECK(out.at(row, col) == plain.at(row, col) * 0.375f + bias[static_cast<std::size_t>(col)]);
    }
  }
}

// Rows of other weights, copied out when they are asked for.
class CopiedRows final : public RowMaker {
 public:
  explicit CopiedRows(const Weights& weights) : weights_(weights) {}
  void make_row(std::int64_t row, std::byte* out) const override {
    const std::size_t bytes = dtype_bytes(weights_.type, weights_.cols);
    std::memcpy(out, weights_.bytes.data() + static_cast<std::size_t>(row) * bytes, bytes);
  }

 private:
  const Weights& weights_;
};

TEST_CASE("Rows that are made while they are packed are packed as those of a file") {
  std::mt19937 random(29);
  for (const DType type : {DType::kI4G128, DType::kF8, DType::kMXFP4, DType::kBF16}) {
    const Weights weights = random_weights(random, type, 75, 256);
    const CopiedRows maker(weights);
    const WeightSource made{.type = type, .rows = 75, .cols = 256, .maker = &maker};
    const WeightSource read = weights.source();
    for (LevelBackend& level : level_backends(2)) {
      INFO(level.level << " " << dtype_info(type).name);
      for (const auto& [first, count] : {std::pair(0, 75), std::pair(25, 25)}) {
        const WeightSource parts[] = {rows_of(made, first, count), rows_of(read, first, count)};
        const auto from_maker = level.backend->load_linear({&parts[0], 1}, {});
        const auto from_file = level.backend->load_linear({&parts[1], 1}, {});
        CHECK(std::ranges::equal(from_maker->packed(), from_file->packed()));
      }
      const std::int32_t ids[] = {3, 74};
      Matrix rows(2, 256);
      Matrix expected(2, 256);
      level.backend->embed(*level.backend->load_embedding(made), ids, rows.view());
      level.backend->embed(*level.backend->load_embedding(read), ids, expected.view());
      CHECK(same_rows(rows, 0, expected, 0, 2));
    }
  }
}

TEST_CASE("linear takes the inputs of each part in the part's order") {
  OrderedParts scene(31, DType::kF32);
  auto& [first, second, order, parts, x, ordered] = scene;
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    const WeightSource plain[] = {first.source(), second.source()};
    Matrix expected_first(19, 40);
    Matrix expected_rest(19, 64);
    const WeightSource rest[] = {plain[1], plain[0]};
    level.backend->linear(*level.backend->load_linear({plain, 1}, {}), ordered.view(), expected_first.view(), false);
    level.backend->linear(*level.backend->load_linear(rest, {}), x.view(), expected_rest.view(), false);
    Matrix out(19, 104);
    level.backend->linear(*level.backend->load_linear(parts, {}), x.view(), out.view(), false);
    std::size_t wrong = 0;
    for (std::int64_t row = 0; row < 19; ++row) {
      for (std::int64_t col = 0; col < 104; ++col)
        wrong += out.at(row, col) != (col < 40 ? expected_first.at(row, col) : expected_rest.at(row, col - 40)) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("A code of FP8 that is no number makes its output none") {
  std::mt19937 random(23);
  Weights weights = random_weights(random, DType::kF8, 20, 320);
  weights.bytes[(3 * 10 + 6) * 36 + 4 + 5] = std::byte{0xff};  // row 3, block 6
  const WeightSource source = weights.source();
  Matrix x = random_matrix(random, 2, 320);
  for (LevelBackend& level : level_backends(1)) {
    INFO(level.level);
    Matrix out(2, 20);
    level.backend->linear(*level.backend->load_linear({&source, 1}, {}), x.view(), out.view(), false);
    for (std::int64_t col = 0; col < 20; ++col)
      CHECK(std::isnan(out.at(1, col)) == (col == 3));
  }
}

// Types with code books store codes, not indices; scales of six and three bits take eight.
double packed_growth(DType type) {
  switch (type) {
    case DType::kQ3_K: return 1.04;
    case DType::kTQ2_0: return 1.1;
    case DType::kIQ3_S: return 1.26;
    case DType::kTQ1_0: return 1.34;
    case DType::kIQ2_S: return 1.4;
    case DType::kIQ3_XXS: return 1.41;
    case DType::kIQ2_XS: return 1.55;
    case DType::kIQ2_XXS: return 1.73;
    case DType::kQ1_0: return 2.0;
    case DType::kIQ1_M: return 2.04;
    case DType::kIQ1_S: return 2.29;
    default: return 1.03;
  }
}

TEST_CASE("packed weights stay within three percent of their source, or what is stated of their type") {
  for (LevelBackend& level : level_backends(1)) {
    for (const DType type : kAllTypes) {
      INFO(level.level << " " << dtype_info(type).name);
      const double source = static_cast<double>(dtype_bytes(type, 2048 * 2048));
      CHECK(static_cast<double>(level.backend->packed_bytes(type, 2048, 2048)) <= packed_growth(type) * source);
    }
  }
}

}  // namespace quire::test
