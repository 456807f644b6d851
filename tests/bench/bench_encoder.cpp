// Images a second of synthetic towers, as a share of the rate of a plain matrix product in turns with it, and the time
// that preparing a file takes: bench_encoder towers [SIDE [NAME]], bench_encoder prepare FILE...
#include <cstdio>
// libjpeg's header needs the one above.
#include <fmt/core.h>
#include <jpeglib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/encode/encoder.h"
#include "core/model/encode/pictures/resize.h"
#include "core/model/tools/synth_tower.h"
#include "kernels/registry.h"
#include "server/media/decode/picture_file.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;
constexpr std::int64_t kProductRows = 256;  // rows of a piece of the encoder's work

double seconds_of(const std::function<void()>& work) {
  const auto began = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Picture drawn_picture(std::int32_t width, std::int32_t height) {
  Picture picture{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height * 3)};
  std::uint32_t state = 1;
  for (std::uint8_t& value : picture.rgb) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::uint8_t>(state >> 24);
  }
  return picture;
}

// A matrix of the tower's width and feed-forward width, which takes the same kernels as its largest products.
class PlainProduct {
 public:
  PlainProduct(DType type, std::int64_t width, std::int64_t inner, Backend& backend)
      : backend_(backend),
        bytes_(dtype_bytes(type, width * inner)),
        x_(backend.allocate(kProductRows * width)),
        out_(backend.allocate(kProductRows * inner)),
        width_(width),
        inner_(inner) {
    const WeightSource source{.type = type, .rows = inner, .cols = width, .data = bytes_.data()};
    weights_ = backend.load_linear({&source, 1}, {});
  }

  // Multiply-adds a second over about `work` of them.
  double rate(std::int64_t work) {
    const std::int64_t once = kProductRows * width_ * inner_;
    const std::int64_t times = std::max<std::int64_t>(work / once, 1);
    const MatrixView x{x_->data(), kProductRows, width_, width_};
    const MatrixView out{out_->data(), kProductRows, inner_, inner_};
    const double seconds = seconds_of([&] {
      for (std::int64_t i = 0; i < times; ++i)
        backend_.linear(*weights_, x, out, false);
    });
    return static_cast<double>(times * once) / seconds;
  }

 private:
  Backend& backend_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Buffer> out_;
  std::int64_t width_;
  std::int64_t inner_;
  std::unique_ptr<Linear> weights_;
};

void measure_tower(const std::string& name, DType type, std::int32_t side, Backend& backend) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / (name + ".bench.gguf");
  write_synthetic_tower(name, type, 1, path, {});
  const auto encoder = Encoder::open(path.string(), {.backend = &backend});
  std::filesystem::remove(path);
  const auto picture = encoder->prepare(drawn_picture(side, side), {});
  PlainProduct product(type, encoder->spec().width, encoder->spec().ffn_size, backend);
  std::vector<double> seconds;
  std::vector<double> rates;
  double work = 0.0;
  for (int round = 0; round < kRounds; ++round) {
    const auto run = picture->start();
    work = static_cast<double>(run->work_left());
    rates.push_back(product.rate(run->work_left() / 8));
    double taken = 0.0;
    // The product is measured between slices, too: the machine's speed changes while an image is encoded.
    while (!run->is_done()) {
      taken += seconds_of([&] { run->advance(static_cast<std::int64_t>(work / 4), backend); });
      rates.push_back(product.rate(static_cast<std::int64_t>(work / 16)));
    }
    seconds.push_back(taken);
  }
  const double each = median(seconds);
  const double rate = median(rates);
  fmt::print("| {} {} | {} | {:.3f} | {:.0f} | {:.0f} | {:.0f} % |\n", name, dtype_info(type).name, picture->num_rows(),
             1.0 / each, work / each / 1e9 * 2.0, rate / 1e9 * 2.0, 100.0 * work / each / rate);
}

std::string file_bytes(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The library alone, with its own defaults.
double plain_jpeg_seconds(const std::string& bytes) {
  return seconds_of([&] {
    jpeg_error_mgr errors{};
    jpeg_decompress_struct decoder{};
    decoder.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&decoder);
    jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&decoder, TRUE);
    jpeg_start_decompress(&decoder);
    std::vector<JSAMPLE> line(static_cast<std::size_t>(decoder.output_width) *
                              static_cast<std::size_t>(decoder.output_components));
    JSAMPROW row = line.data();
    while (decoder.output_scanline < decoder.output_height)
      jpeg_read_scanlines(&decoder, &row, 1);
    jpeg_finish_decompress(&decoder);
    jpeg_destroy_decompress(&decoder);
  });
}

// Decodes and resizes on one thread, as media threads do, to about half of each side.
void measure_file(const char* path) {
  const std::string bytes = file_bytes(path);
  const bool is_jpeg = bytes.starts_with("\xFF\xD8");
  std::vector<double> decoding;
  std::vector<double> resizing;
  std::vector<double> plain;
  Picture picture;
  for (int round = 0; round < 2 * kRounds + 1; ++round) {
    if (is_jpeg) plain.push_back(plain_jpeg_seconds(bytes));
    decoding.push_back(seconds_of([&] {
      if (auto decoded = decode_picture(bytes, {.max_pixels = std::int64_t{1} << 40})) picture = *std::move(decoded);
    }));
    if (picture.rgb.empty()) {
      fmt::print(stderr, "{} is no image that is read\n", path);
      std::exit(1);
    }
    const PictureSize size = {std::max(picture.width / 2 / 32, 1) * 32, std::max(picture.height / 2 / 32, 1) * 32};
    resizing.push_back(seconds_of([&] { resize(picture, size, ResizeFilter::kPillowBicubic); }));
  }
  fmt::print("{}: {} x {}, decoded in {:.1f} ms, resized to half in {:.1f} ms", path, picture.width, picture.height,
             1e3 * median(decoding), 1e3 * median(resizing));
  if (is_jpeg) fmt::print(", libjpeg alone {:.1f} ms", 1e3 * median(plain));
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // prints each row of the table at once
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "prepare" && argc > 2) {
    for (int i = 2; i < argc; ++i)
      measure_file(argv[i]);
    return 0;
  }
  if (what != "towers") {
    fmt::print(stderr, "usage: bench_encoder towers [SIDE [NAME]], bench_encoder prepare FILE...\n");
    return 2;
  }
  const std::int32_t side = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 640;
  const auto backend = create_backend({.device = "cpu"});
  fmt::print(
      "| tower | rows | images/s | GOP/s | a product's GOP/s | share |\n| --- | --- | --- | --- | --- | --- |\n");
  const std::string_view only = argc > 3 ? argv[3] : "";
  for (const char* const name : {"qwen3vl-2b-mmproj", "gemma3-4b-mmproj"}) {
    if (!only.empty() && only != name) continue;
    for (const DType type : {DType::kQ8_0, DType::kF16})
      measure_tower(name, type, side, *backend);
  }
  return 0;
}
