// The element-wise operations on every level against double precision, and bit for bit the same alone and in a batch.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/kernels/levels/level_backends.h"
#include "tests/kernels/random_data.h"
#include "tests/support/made_rows.h"

namespace quire::test {
namespace {

constexpr std::int64_t kWidths[] = {1, 5, 8, 16, 24, 33, 64, 172, 2048};

bool is_near(float actual, double expected, double relative, double absolute = 1e-30) {
  return std::fabs(static_cast<double>(actual) - expected) <= relative * std::fabs(expected) + absolute;
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

struct RopeShape {
  std::int64_t head_dim;
  std::int64_t rotary_dim;
};

// The largest difference between rope() and double precision over three heads at four positions.
double rope_error(Backend& backend, RopeShape shape, RopeStyle style) {
  std::mt19937 random(4);
  const std::int64_t half = shape.rotary_dim / 2;
  Matrix x = random_matrix(random, 4, 3 * shape.head_dim);
  Matrix before = x;
  const std::vector<std::int32_t> positions = {0, 1, 977, 131071};
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < half; ++i) {
    frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half)));
  }
  Matrix cos(4, half);
  Matrix sin(4, half);
  backend.rope_angles(positions, frequencies, 1.25f, cos.view(), sin.view());
  backend.rope(x.view(), 3, shape.head_dim, style, cos.view(), sin.view());
  double worst = x.padding_untouched() ? 0.0 : 1e9;
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t base = 0; base < 3 * shape.head_dim; base += shape.head_dim) {
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t a = base + (style == RopeStyle::kHalf ? i : 2 * i);
        const std::int64_t b = style == RopeStyle::kHalf ? a + half : a + 1;
        const double angle = positions[static_cast<std::size_t>(row)] * frequencies[static_cast<std::size_t>(i)];
        const double c = 1.25 * std::cos(angle);
        const double s = 1.25 * std::sin(angle);
        const double p = before.at(row, a);
        const double q = before.at(row, b);
        worst = std::max(worst, std::fabs(static_cast<double>(x.at(row, a)) - (p * c - q * s)));
        worst = std::max(worst, std::fabs(static_cast<double>(x.at(row, b)) - (p * s + q * c)));
      }
      for (std::int64_t i = shape.rotary_dim; i < shape.head_dim; ++i) {
        if (x.at(row, base + i) != before.at(row, base + i)) worst = 1e9;
      }
    }
  }
  return worst;
}

// Every element-wise operation on rows [first, first + count) of the same random input, results side by side.
std::vector<float> elementwise_results(Backend& backend, std::int64_t first, std::int64_t count, std::int64_t width) {
  std::mt19937 random(8);
  constexpr std::int64_t kRows = 37;
  Matrix x = random_matrix(random, kRows, 2 * width);
  const std::vector<float> weight = random_floats(random, 2 * width);
  Matrix cos = random_matrix(random, kRows, 4);
  Matrix sin = random_matrix(random, kRows, 4);
  std::vector<float> out;
  const auto keep = [&](MatrixView view) {
    for (std::int64_t row = 0; row < view.rows; ++row)
      out.insert(out.end(), view.data + row * view.stride, view.data + row * view.stride + view.cols);
  };
  Matrix normed(count, 2 * width);
  backend.rms_norm(x.rows_from(first, count), weight.data(), 1e-5f, normed.view());
  keep(normed.view());
  const std::vector<float> activated = made_rows(backend, gated(x.rows_from(first, count)));
  out.insert(out.end(), activated.begin(), activated.end());
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalf}) {
    Matrix rotated = x;
    backend.rope(rotated.rows_from(first, count), 2 * width / 8, 8, style, cos.rows_from(first, count),
                 sin.rows_from(first, count));
    keep(rotated.rows_from(first, count));
  }
  Matrix heads = x;
  backend.head_rms_norm(heads.rows_from(first, count), 2 * width / 8, 8, weight.data(), 1e-5f);
  keep(heads.rows_from(first, count));
  return out;
}

}  // namespace

TEST_CASE("element-wise operations give a row the same bits alone, among others and on any number of threads") {
  for (const std::int64_t width : {4, 20, 2048}) {
    for (const int threads : thread_counts()) {
      for (LevelBackend& level : level_backends(threads)) {
        INFO(level.level << " width " << width << " on " << threads << " threads");
        // Five results for each row: one operation's rows lie together.
        const std::vector<float> together = elementwise_results(*level.backend, 0, 37, width);
        bool same = true;
        for (const std::int64_t row : {0, 1, 17, 36}) {
          const std::vector<float> alone = elementwise_results(*level.backend, row, 1, width);
          std::size_t from = 0;    // index in `together` of the operation's first row
          std::size_t offset = 0;  // index in `alone`
          for (const std::int64_t cols : {2 * width, width, 2 * width, 2 * width, 2 * width}) {
            const auto count = static_cast<std::size_t>(cols);
            const float* batch = together.data() + from + static_cast<std::size_t>(row) * count;
            same = same && std::memcmp(batch, alone.data() + offset, count * sizeof(float)) == 0;
            from += 37 * count;
            offset += count;
          }
        }
        CHECK(same);
      }
    }
  }
}

TEST_CASE("rms_norm agrees with double precision, in place too") {
  for (LevelBackend& level : level_backends(2)) {
    for (const std::int64_t width : kWidths) {
      INFO(level.level << " width " << width);
      std::mt19937 random(1);
      Matrix x = random_matrix(random, 9, width, 3.0f);
      const std::vector<float> weight = random_floats(random, width);
      Matrix out(9, width);
      level.backend->rms_norm(x.view(), weight.data(), 1e-5f, out.view());
      bool good = out.padding_untouched();
      for (std::int64_t row = 0; row < 9; ++row) {
        double sum = 0.0;
        for (std::int64_t col = 0; col < width; ++col)
          sum += std::pow(static_cast<double>(x.at(row, col)), 2);
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + 1e-5);
        for (std::int64_t col = 0; col < width; ++col) {
          const double w = weight[static_cast<std::size_t>(col)];
          good = good && is_near(out.at(row, col), static_cast<double>(x.at(row, col)) * scale * w, 1e-6);
        }
      }
      CHECK(good);
      level.backend->rms_norm(x.view(), weight.data(), 1e-5f, x.view());
      bool same = true;
      for (std::int64_t row = 0; row < 9; ++row) {
        for (std::int64_t col = 0; col < width; ++col)
          same = same && x.at(row, col) == out.at(row, col);
      }
      CHECK(same);
    }
  }
}

TEST_CASE("head_rms_norm is rms_norm over each head") {
  for (LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    std::mt19937 random(2);
    Matrix x = random_matrix(random, 3, 40);
    const std::vector<float> weight = random_floats(random, 8);
    Matrix expected = x;
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t head = 0; head < 5; ++head) {
        const MatrixView one{&expected.at(row, head * 8), 1, 8, 8};
        level.backend->rms_norm(one, weight.data(), 1e-6f, one);
      }
    }
    level.backend->head_rms_norm(x.view(), 5, 8, weight.data(), 1e-6f);
    CHECK(x.data == expected.data);
  }
}

TEST_CASE("swiglu agrees with double precision from -100 to 100") {
  for (LevelBackend& level : level_backends(2)) {
    for (const std::int64_t width : kWidths) {
      INFO(level.level << " width " << width);
      std::mt19937 random(3);
      Matrix x = random_matrix(random, 7, 2 * width, 20.0f);
      x.at(0, 0) = -100.0f;
      x.at(1, 0) = 100.0f;
      x.at(2, 0) = 0.0f;
      Matrix out(7, width, 0);
      out.data = made_rows(*level.backend, gated(x.view()));
      bool good = true;
      for (std::int64_t row = 0; row < 7; ++row) {
        for (std::int64_t col = 0; col < width; ++col) {
          const double expected =
              silu(static_cast<double>(x.at(row, col))) * static_cast<double>(x.at(row, width + col));
          good = good && is_near(out.at(row, col), expected, 1e-6, 1e-34);
        }
      }
      CHECK(good);
    }
  }
}

TEST_CASE("rope rotates both styles, whole heads and the first part of them") {
  for (LevelBackend& level : level_backends(2)) {
    for (const RopeShape shape : {RopeShape{8, 8}, {64, 64}, {64, 32}, {80, 80}, {24, 6}, {128, 128}}) {
      for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalf}) {
        INFO(level.level << " head " << shape.head_dim << " rotary " << shape.rotary_dim);
        CHECK(rope_error(*level.backend, shape, style) < 2e-6);
      }
    }
  }
}

TEST_CASE("embed decodes rows of every type, gather_rows copies them") {
  for (LevelBackend& level : level_backends(2)) {
    for (const DType type : kAllTypes) {
      INFO(level.level << " " << dtype_info(type).name);
      std::mt19937 random(5);
      const Weights table = random_weights(random, type, 11, 256);
      const std::vector<float> decoded = table.decoded();
      const auto embedding = level.backend->load_embedding(table.source());
      REQUIRE(embedding->dim() == 256);
      const std::vector<std::int32_t> ids = {10, 0, 3, 3};
      Matrix rows(4, 256);
      level.backend->embed(*embedding, ids, rows.view());
      const std::vector<std::int32_t> chosen = {3, 0};
      Matrix gathered(2, 256);
      level.backend->gather_rows(rows.view(), chosen, gathered.view());
      bool good = rows.padding_untouched() && gathered.padding_untouched();
      for (std::int64_t col = 0; col < 256; ++col) {
        for (std::int64_t row = 0; row < 4; ++row) {
          const auto from = static_cast<std::size_t>(ids[static_cast<std::size_t>(row)] * 256 + col);
          good = good && rows.at(row, col) == decoded[from];
        }
        good = good && gathered.at(0, col) == rows.at(3, col) && gathered.at(1, col) == rows.at(0, col);
      }
      CHECK(good);
    }
  }
}

TEST_CASE("parallel_for visits every index once") {
  for (LevelBackend& level : level_backends(3)) {
    std::vector<std::atomic<int>> visits(1000);
    level.backend->parallel_for(1000, 7, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        ++visits[static_cast<std::size_t>(i)];
    });
    CHECK(std::ranges::all_of(visits, [](const std::atomic<int>& count) { return count == 1; }));
  }
}

}  // namespace quire::test
