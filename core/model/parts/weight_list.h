// WeightList: collects the weights of a layer or model, in the order of files.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/model/parts/weight_roles.h"

namespace quire {

class WeightList {
 public:
  explicit WeightList(std::int64_t hidden_size) : hidden_(hidden_size) {}

  std::int64_t hidden_size() const { return hidden_; }
  std::vector<WeightNeed> take() { return std::move(list_); }

  void vector(WeightRole role, std::int64_t size, bool is_optional = false) {
    if (role != WeightRole::kNoRole) list_.push_back({.role = role, .cols = size, .is_optional = is_optional});
  }
  void offsets(WeightRole role, std::int64_t size) {
    list_.push_back({.role = role, .cols = size, .values = WeightValues::kOffsets});
  }
  void decays(WeightRole role, std::int64_t size, std::int64_t taps = 0) {
    list_.push_back({.role = role, .cols = size, .taps = taps, .values = WeightValues::kDecays});
  }
  // Values that files do not have.
  void constants(WeightRole role, std::vector<float> values) {
    const std::int64_t size = std::ssize(values);
    list_.push_back({.role = role, .cols = size, .constants = std::move(values)});
  }
  // [channels][taps], transposed; has_bias: files have a bias of the channels beside it.
  void convolution(WeightRole role, std::int64_t channels, std::int64_t taps, bool has_bias = false) {
    vector(role, channels * taps);
    list_.back().taps = taps;
    list_.back().bias_size = channels;
    list_.back().has_bias = has_bias;
  }
  // A matrix of a product, which has the name of its first matrix; gate_rows: see WeightNeed.
  WeightNeed& product(WeightRole role, WeightRole product, std::int64_t rows, std::int64_t cols,
                      std::int64_t gate_rows = 0) {
    return list_.emplace_back(WeightNeed{.role = role,
                                         .form = WeightForm::kProduct,
                                         .product = product,
                                         .rows = rows,
                                         .cols = cols,
                                         .gate_rows = gate_rows});
  }
  WeightNeed& alone(WeightRole role, std::int64_t rows, std::int64_t cols) { return product(role, role, rows, cols); }
  WeightNeed& experts(WeightRole role, WeightRole product, std::int64_t rows, std::int64_t cols, std::int64_t count) {
    return list_.emplace_back(WeightNeed{.role = role,
                                         .form = WeightForm::kExperts,
                                         .product = product,
                                         .rows = rows,
                                         .cols = cols,
                                         .num_experts = count});
  }
  void rows(WeightRole role, std::int64_t count, std::int64_t cols) {
    list_.push_back({.role = role, .form = WeightForm::kRows, .rows = count, .cols = cols});
  }

 private:
  const std::int64_t hidden_;
  std::vector<WeightNeed> list_;
};

}  // namespace quire
