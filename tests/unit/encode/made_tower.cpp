#include "tests/unit/encode/made_tower.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "core/model/formats/ggml_types.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/formats/gguf/quantize.h"

namespace quire::test {

namespace {

using RowsOfDoubles = std::vector<std::vector<double>>;  // rows

constexpr int kMerged = 4 * MadeTower::kWidth;

std::string block_name(int block, const char* name) {
  return "v.blk." + std::to_string(block) + "." + name;
}

// The values that a file of the type holds.
std::vector<float> stored(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(dtype_bytes(type, std::ssize(values)));
  quantize(type, values, bytes);
  std::vector<float> out(values.size());
  dequantize(type, bytes.data(), std::ssize(out), out.data());
  return out;
}

class TowerReference {
 public:
  TowerReference(const MadeTower& tower, const Picture& picture) : tower_(tower), picture_(picture) {
    columns_ = picture.width / MadeTower::kPatch;
    for (int y = 0; y < picture.height / MadeTower::kPatch; y += 2) {
      for (int x = 0; x < columns_; x += 2) {
        for (const int inside : {0, 1, 2, 3})
          places_.push_back({y + inside / 2, x + inside % 2});
      }
    }
  }

  std::vector<double> rows() const {
    RowsOfDoubles x = patches();
    RowsOfDoubles branch;
    for (int block = 0; block < MadeTower::kBlocks; ++block) {
      add(attention(block, normed(block_name(block, "ln1"), x)), x);
      RowsOfDoubles inner = linear(block_name(block, "ffn_up"), normed(block_name(block, "ln2"), x));
      add(linear(block_name(block, "ffn_down"), gelu_tanh(inner)), x);
      if (block == 0) branch = merged_twice("v.deepstack.0.fc", normed("v.deepstack.0.norm", merged(x)), 1, 2);
    }
    const RowsOfDoubles main = merged_twice("mm.", merged(normed("v.post_ln", x)), 0, 2);
    std::vector<double> out;
    for (std::size_t row = 0; row < main.size(); ++row) {
      out.insert(out.end(), main[row].begin(), main[row].end());
      out.insert(out.end(), branch[row].begin(), branch[row].end());
    }
    return out;
  }

 private:
  struct Place {
    int row;
    int column;
  };

  const std::vector<float>& values(const std::string& name) const { return tower_.tensors.at(name).values; }

  RowsOfDoubles linear(const std::string& name, const RowsOfDoubles& x) const {
    const std::vector<float>& weight = values(name + ".weight");
    const std::vector<float>& bias = values(name + ".bias");
    RowsOfDoubles out;
    for (const std::vector<double>& row : x) {
      std::vector<double>& to = out.emplace_back(bias.begin(), bias.end());
      for (std::size_t o = 0; o < to.size(); ++o) {
        for (std::size_t i = 0; i < row.size(); ++i)
          to[o] += row[i] * static_cast<double>(weight[o * row.size() + i]);
      }
    }
    return out;
  }

  RowsOfDoubles normed(const std::string& name, RowsOfDoubles x) const {
    for (std::vector<double>& row : x) {
      const auto count = static_cast<double>(row.size());
      double mean = 0.0;
      double variance = 0.0;
      for (const double value : row)
        mean += value / count;
      for (const double value : row)
        variance += (value - mean) * (value - mean) / count;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double unit = (row[i] - mean) / std::sqrt(variance + static_cast<double>(MadeTower::kEps));
        row[i] =
            unit * static_cast<double>(values(name + ".weight")[i]) + static_cast<double>(values(name + ".bias")[i]);
      }
    }
    return x;
  }

  static RowsOfDoubles gelu_tanh(RowsOfDoubles x) {
    for (std::vector<double>& row : x) {
      for (double& v : row)
        v = 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    }
    return x;
  }
  static RowsOfDoubles gelu(RowsOfDoubles x) {
    for (std::vector<double>& row : x) {
      for (double& v : row)
        v = 0.5 * v * std::erfc(-v / std::numbers::sqrt2);
    }
    return x;
  }

  static void add(const RowsOfDoubles& x, RowsOfDoubles& to) {
    for (std::size_t row = 0; row < x.size(); ++row) {
      for (std::size_t i = 0; i < x[row].size(); ++i)
        to[row][i] += x[row][i];
    }
  }

  static RowsOfDoubles merged(const RowsOfDoubles& x) {
    RowsOfDoubles out;
    for (std::size_t row = 0; row < x.size(); ++row) {
      if (row % 4 == 0) out.emplace_back();
      out.back().insert(out.back().end(), x[row].begin(), x[row].end());
    }
    return out;
  }

  RowsOfDoubles merged_twice(const std::string& name, const RowsOfDoubles& x, int first, int second) const {
    return linear(name + std::to_string(second), gelu(linear(name + std::to_string(first), x)));
  }

  RowsOfDoubles patches() const {
    constexpr int kSide = MadeTower::kPatch;
    RowsOfDoubles pixels;
    for (const Place place : places_) {
      std::vector<double>& row = pixels.emplace_back();
      for (int c = 0; c < 3; ++c) {
        for (int i = 0; i < kSide * kSide; ++i) {
          const int y = place.row * kSide + i / kSide;
          const int x = place.column * kSide + i % kSide;
          const auto at = static_cast<std::size_t>((y * picture_.width + x) * 3 + c);
          row.push_back((picture_.rgb[at] / 255.0 - 0.5) / 0.5);
        }
      }
    }
    RowsOfDoubles out = linear("v.patch_embd", pixels);
    RowsOfDoubles again = linear("v.patch_embd_1", pixels);  // the second frame of a still picture
    add(again, out);
    for (std::size_t row = 0; row < out.size(); ++row)
      add_position(places_[row], out[row]);
    return out;
  }

  // Bilinear in the table, corners aligned.
  void add_position(Place place, std::vector<double>& row) const {
    constexpr int kSide = MadeTower::kGrid;
    const int rows = picture_.height / MadeTower::kPatch;
    const double y = place.row * (kSide - 1.0) / (rows - 1);
    const double x = place.column * (kSide - 1.0) / (columns_ - 1);
    const int top = std::min(static_cast<int>(y), kSide - 2);
    const int left = std::min(static_cast<int>(x), kSide - 2);
    const std::vector<float>& table = values("v.position_embd.weight");
    for (int corner = 0; corner < 4; ++corner) {
      const double share =
          (corner / 2 == 0 ? 1.0 - (y - top) : y - top) * (corner % 2 == 0 ? 1.0 - (x - left) : x - left);
      const int index = (top + corner / 2) * kSide + left + corner % 2;
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] += share * static_cast<double>(table[static_cast<std::size_t>(index) * row.size() + i]);
    }
  }

  // Pairs (i, i + d/2): the first half of them turns by row, the other by column.
  void rotate(std::vector<double>& row, std::size_t head, Place place) const {
    constexpr int kDim = MadeTower::kWidth / MadeTower::kHeads;
    for (int pair = 0; pair < kDim / 2; ++pair) {
      const int number = pair % (kDim / 4);
      const double angle = (pair < kDim / 4 ? place.row : place.column) * std::pow(10000.0, -4.0 * number / kDim);
      double& a = row[head + static_cast<std::size_t>(pair)];
      double& b = row[head + static_cast<std::size_t>(pair + kDim / 2)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
  }

  RowsOfDoubles attention(int block, const RowsOfDoubles& x) const {
    constexpr std::size_t kWidth = MadeTower::kWidth;
    constexpr std::size_t kDim = kWidth / MadeTower::kHeads;
    RowsOfDoubles qkv = linear(block_name(block, "attn_qkv"), x);
    RowsOfDoubles out(x.size(), std::vector<double>(kWidth));
    for (std::size_t head = 0; head < kWidth; head += kDim) {
      for (std::size_t row = 0; row < x.size(); ++row) {
        rotate(qkv[row], head, places_[row]);
        rotate(qkv[row], kWidth + head, places_[row]);
      }
      for (std::size_t row = 0; row < x.size(); ++row) {
        std::vector<double> weights;
        double sum = 0.0;
        for (std::size_t key = 0; key < x.size(); ++key) {
          double score = 0.0;
          for (std::size_t i = 0; i < kDim; ++i)
            score += qkv[row][head + i] * qkv[key][kWidth + head + i];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kDim))));
          sum += weights.back();
        }
        for (std::size_t key = 0; key < x.size(); ++key) {
          for (std::size_t i = 0; i < kDim; ++i)
            out[row][head + i] += weights[key] / sum * qkv[key][2 * kWidth + head + i];
        }
      }
    }
    return linear(block_name(block, "attn_out"), out);
  }

  const MadeTower& tower_;
  const Picture& picture_;
  int columns_ = 0;
  std::vector<Place> places_;
};

}  // namespace

MadeTower::MadeTower(DType type) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> spread(-1.0F, 1.0F);
  const auto put = [&](const std::string& name, std::vector<std::int64_t> shape, DType stored_as, float size,
                       float middle) {
    const std::int64_t count = num_elements(shape);
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& value : made)
      value = middle + size * spread(random);
    tensors[name] = {std::move(shape), stored(stored_as, made), stored_as};
  };
  const auto put_linear = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    put(name + ".weight", {rows, cols}, type, 2.0F / std::sqrt(static_cast<float>(cols)), 0.0F);
    put(name + ".bias", {rows}, DType::kF32, 0.1F, 0.0F);
  };
  const auto put_norm = [&](const std::string& name, std::int64_t width) {
    put(name + ".weight", {width}, DType::kF32, 0.5F, 1.0F);
    put(name + ".bias", {width}, DType::kF32, 0.1F, 0.0F);
  };
  put("v.patch_embd.weight", {kWidth, 3, kPatch, kPatch}, DType::kF16, 0.2F, 0.0F);
  put("v.patch_embd.weight.1", {kWidth, 3, kPatch, kPatch}, DType::kF16, 0.2F, 0.0F);
  put("v.patch_embd.bias", {kWidth}, DType::kF32, 0.1F, 0.0F);
  put("v.position_embd.weight", {kGrid * kGrid, kWidth}, DType::kF32, 0.5F, 0.0F);
  for (int block = 0; block < kBlocks; ++block) {
    put_norm(block_name(block, "ln1"), kWidth);
    put_norm(block_name(block, "ln2"), kWidth);
    put_linear(block_name(block, "attn_qkv"), 3 * kWidth, kWidth);
    put_linear(block_name(block, "attn_out"), kWidth, kWidth);
    put_linear(block_name(block, "ffn_up"), kFfn, kWidth);
    put_linear(block_name(block, "ffn_down"), kWidth, kFfn);
  }
  put_norm("v.post_ln", kWidth);
  put_norm("v.deepstack.0.norm", kMerged);
  put_linear("v.deepstack.0.fc1", kMerged, kMerged);
  put_linear("v.deepstack.0.fc2", kTextWidth, kMerged);
  put_linear("mm.0", kMerged, kMerged);
  put_linear("mm.2", kTextWidth, kMerged);
}

void MadeTower::write(const std::filesystem::path& path, const std::string& projector, std::uint32_t said_ffn) const {
  GgufWriter file(path);
  const std::vector<float> half(3, 0.5F);
  file.set("general.architecture", "clip");
  file.set("clip.has_vision_encoder", true);
  file.set("clip.use_gelu", true);
  file.set("clip.projector_type", projector);
  file.set("clip.vision.image_size", std::uint32_t{kGrid * kPatch});
  file.set("clip.vision.patch_size", std::uint32_t{kPatch});
  file.set("clip.vision.embedding_length", std::uint32_t{kWidth});
  file.set("clip.vision.feed_forward_length", said_ffn);
  file.set("clip.vision.block_count", std::uint32_t{kBlocks});
  file.set("clip.vision.attention.head_count", std::uint32_t{kHeads});
  file.set("clip.vision.attention.layer_norm_epsilon", kEps);
  file.set("clip.vision.image_mean", std::span<const float>(half));
  file.set("clip.vision.image_std", std::span<const float>(half));
  for (const auto& [name, tensor] : tensors) {
    const std::vector<std::int64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    file.declare(name, shape, tensor.type);
  }
  file.begin_data();
  for (const auto& [name, tensor] : tensors) {
    std::vector<std::byte> bytes(dtype_bytes(tensor.type, std::ssize(tensor.values)));
    quantize(tensor.type, tensor.values, bytes);
    file.append(bytes);
  }
  file.finish();
}

std::vector<double> MadeTower::rows(const Picture& picture) const {
  MadeTower with_frames = *this;
  with_frames.tensors["v.patch_embd_1.weight"] = tensors.at("v.patch_embd.weight.1");
  Tensor& bias = with_frames.tensors["v.patch_embd_1.bias"];
  bias.values.assign(kWidth, 0.0F);
  return TowerReference(with_frames, picture).rows();
}

Picture made_picture(std::int32_t width, std::int32_t height) {
  Picture out{width, height, {}};
  for (std::int32_t y = 0; y < height; ++y) {
    for (std::int32_t x = 0; x < width; ++x) {
      for (const std::int32_t value : {x * 11 + y * 3, x * y * 2 + 40, 250 - x * 5 - y * 7})
        out.rgb.push_back(static_cast<std::uint8_t>(value & 0xFF));
    }
  }
  return out;
}

}  // namespace quire::test
