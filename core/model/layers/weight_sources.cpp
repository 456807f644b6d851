#include "core/model/layers/weight_sources.h"

#include <fmt/core.h>

#include "core/base/result.h"

namespace quire {

namespace {

using Role = WeightRole;

class Collector {
 public:
  Collector(const ModelSpec& spec, TensorTable& tensors, WeightSources& out)
      : spec_(spec), tensors_(tensors), out_(out) {}

  void collect(std::int64_t layer, SourceGroup& to) {
    layer_ = layer;
    for (const WeightNeed& need : weight_needs(spec_, layer)) {
      switch (need.form) {
        case WeightForm::kVector: take_vector(need, to); break;
        case WeightForm::kRows: to.rows[need.role] = tensors_.take_matrix(name(need.role), need.rows, need.cols); break;
        case WeightForm::kProduct: take_product(need, to.products[need.product]); break;
        case WeightForm::kExperts: take_experts(need, to); break;
        case WeightForm::kPairs: take_pairs(need, to); break;
      }
    }
    for (auto& [role, product] : to.products)
      complete(product);
    for (auto& [role, experts] : to.experts) {
      for (LinearSource& expert : experts)
        complete(expert);
    }
  }

 private:
  std::string name(Role role) const { return gguf_name(role, layer_); }
  std::string beside(Role role, const char* suffix) const {
    const RoleInfo& info = role_info(role);
    return layer_ < 0 ? fmt::format("{}{}", info.gguf, suffix) : fmt::format("blk.{}.{}{}", layer_, info.gguf, suffix);
  }

  void take_vector(const WeightNeed& need, SourceGroup& to) {
    if (!need.constants.empty()) {
      to.vectors[need.role] = need.constants;
      return;
    }
    std::string tensor = name(need.role);
    // Some published files omit the suffix of a norm.
    if (role_info(need.role).suffix == ".weight" && !tensors_.contains(tensor) &&
        tensors_.contains(beside(need.role, "")))
      tensor = beside(need.role, "");
    if (need.is_optional && !tensors_.contains(tensor)) return;
    to.vectors[need.role] = turned(tensors_.take_values(tensor, need.cols), need.taps);
    const std::string bias = beside(need.role, ".bias");
    const std::int64_t bias_size = need.bias_size > 0 ? need.bias_size : need.cols;
    if (bias != tensor && tensors_.contains(bias)) to.biases[need.role] = tensors_.take_values(bias, bias_size);
  }

  // Transposes a convolution's [channels][taps] to [taps][channels]; taps 0: no convolution.
  static std::vector<float> turned(std::vector<float> values, std::int64_t taps) {
    if (taps == 0) return values;
    const auto count = static_cast<std::size_t>(taps);
    const std::size_t channels = values.size() / count;
    std::vector<float> out(values.size());
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t j = 0; j < count; ++j)
        out[j * channels + c] = values[c * count + j];
    }
    return out;
  }

  static std::int64_t num_rows(const LinearSource& product) {
    std::int64_t count = 0;
    for (const WeightSource& part : product.parts)
      count += part.rows;
    return count;
  }

  static std::vector<float> decoded_rows(const WeightSource& matrix) {
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
    std::vector<std::byte> made(matrix.maker == nullptr ? 0 : dtype_bytes(matrix.type, matrix.rows * matrix.cols));
    for (std::int64_t row = 0; !made.empty() && row < matrix.rows; ++row)
      matrix.maker->make_row(
          matrix.first_row + row,
          &made[made.size() / static_cast<std::size_t>(matrix.rows) * static_cast<std::size_t>(row)]);
    dequantize(matrix.type, made.empty() ? matrix.data : made.data(), std::ssize(values), values.data());
    return values;
  }

  // Sets values of some rows of a product; earlier rows without values get zero.
  static void put_values(std::vector<float>& all, std::int64_t first, const std::vector<float>& values) {
    all.resize(static_cast<std::size_t>(first));
    all.insert(all.end(), values.begin(), values.end());
  }

  // Reorders rows of pairs of groups: the first group of every pair, then the second of every pair.
  template <class Take>
  static void in_halves(const WeightNeed& need, const Take& take) {
    if (need.gate_rows == 0) return take(0, need.rows);
    for (std::int64_t half = 0; half < 2; ++half) {
      for (std::int64_t at = half * need.gate_rows; at < need.rows; at += 2 * need.gate_rows)
        take(at, need.gate_rows);
    }
  }

  void take_product(const WeightNeed& need, LinearSource& to) {
    const std::int64_t first = num_rows(to);
    const WeightSource matrix = matrix_of(need);
    in_halves(need, [&](std::int64_t at, std::int64_t count) { to.parts.push_back(rows_of(matrix, at, count)); });
    if (const std::string factors = beside(need.role, ".row_scale"); tensors_.contains(factors))
      scale_rows(tensors_.take_vector(factors, need.rows), to);
    if (const std::string bias = beside(need.role, ".bias"); tensors_.contains(bias)) {
      const std::vector<float> values = tensors_.take_values(bias, need.rows);
      std::vector<float> ordered;
      in_halves(need, [&](std::int64_t at, std::int64_t count) {
        ordered.insert(ordered.end(), values.begin() + at, values.begin() + at + count);
      });
      put_values(to.bias, first, ordered);
    }
  }

  // Divides the product's last matrix where the rows' factor changes.
  static void scale_rows(const std::vector<float>& factors, LinearSource& product) {
    const WeightSource whole = product.parts.back();
    product.parts.pop_back();
    for (std::size_t begin = 0, end = 0; begin < factors.size(); begin = end) {
      while (end < factors.size() && factors[end] == factors[begin])
        ++end;
      product.parts.push_back(rows_of(whole, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)));
      product.parts.back().scale *= factors[begin];
    }
  }

  WeightSource matrix_of(const WeightNeed& need) {
    if (need.role == Role::kHead && spec_.config.tied_head) return out_.model.rows.at(Role::kTokenEmbedding);
    if (need.rows == 1) return tensors_.take_row(name(need.role), need.cols);
    return tensors_.take_matrix(name(need.role), need.rows, need.cols);
  }

  void take_experts(const WeightNeed& need, SourceGroup& to) {
    const bool is_stacked = tensors_.contains(name(need.role));
    const WeightSource all =
        is_stacked ? tensors_.take_experts(name(need.role), need.num_experts, need.rows, need.cols) : WeightSource{};
    std::vector<LinearSource>& experts = to.experts[need.product];
    experts.resize(static_cast<std::size_t>(need.num_experts));
    std::vector<float> bias;
    if (const std::string tensor = beside(need.role, ".bias"); tensors_.contains(tensor))
      bias = tensors_.take_values(tensor, need.num_experts * need.rows);
    std::vector<float> scale(static_cast<std::size_t>(need.num_experts), 1.0F);
    const std::string scales = beside(need.role, ".scale");
    if (!need.has_own_scales && tensors_.contains(scales)) scale = tensors_.take_values(scales, need.num_experts);
    for (std::int64_t e = 0; e < need.num_experts; ++e) {
      LinearSource& expert = experts[static_cast<std::size_t>(e)];
      const std::int64_t first = num_rows(expert);
      // Experts that are not stacked are tensors of their own.
      expert.parts.push_back(is_stacked ? rows_of(all, e * need.rows, need.rows)
                                        : tensors_.take_matrix(beside(need.role, fmt::format(".{}.weight", e).c_str()),
                                                               need.rows, need.cols));
      expert.parts.back().scale *= scale[static_cast<std::size_t>(e)];
      if (bias.empty()) continue;
      const auto begin = bias.begin() + e * need.rows;
      put_values(expert.bias, first, {begin, begin + need.rows});
    }
  }

  // Splits the rows of each expert in two; the first are transposed, which needs a copy.
  void take_pairs(const WeightNeed& need, SourceGroup& to) {
    const WeightSource all = tensors_.take_matrix(name(need.role), need.num_experts * need.rows, need.cols);
    const auto rows = static_cast<std::size_t>(need.first_rows);
    const auto cols = static_cast<std::size_t>(need.cols);
    for (std::int64_t expert = 0; expert < need.num_experts; ++expert) {
      const std::int64_t begin = expert * need.rows;
      const std::vector<float> values = decoded_rows(rows_of(all, begin, need.first_rows));
      auto turned = std::make_shared<std::vector<float>>(values.size());
      for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < cols; ++j)
          (*turned)[j * rows + i] = values[i * cols + j];
      }
      const WeightSource first{.type = DType::kF32,
                               .rows = need.cols,
                               .cols = need.first_rows,
                               .data = reinterpret_cast<const std::byte*>(turned->data()),
                               .scale = all.scale};
      out_.owned.push_back(std::move(turned));
      to.experts[need.product].emplace_back().parts.push_back(first);
      to.experts[need.second_product].emplace_back().parts.push_back(
          rows_of(all, begin + need.first_rows, need.rows - need.first_rows));
    }
  }

  // A bias that only some of the stacked matrices have is zero for the others.
  static void complete(LinearSource& product) {
    const auto rows = static_cast<std::size_t>(num_rows(product));
    if (!product.bias.empty()) product.bias.resize(rows, 0.0F);
  }

  const ModelSpec& spec_;
  TensorTable& tensors_;
  WeightSources& out_;
  std::int64_t layer_ = -1;
};

}  // namespace

void WeightSources::for_each_product(const std::function<void(const LinearSource&)>& visit) const {
  const auto visit_group = [&](const SourceGroup& group) {
    for (const auto& [role, product] : group.products)
      visit(product);
    for (const auto& [role, experts] : group.experts) {
      for (const LinearSource& expert : experts)
        visit(expert);
    }
  };
  for (const SourceGroup& layer : layers)
    visit_group(layer);
  visit_group(model);
}

std::int64_t WeightSources::num_vector_elements() const {
  std::size_t count = 0;
  const auto add = [&](const SourceGroup& group) {
    for (const auto* vectors : {&group.vectors, &group.biases}) {
      for (const auto& [role, values] : *vectors)
        count += values.size();
    }
  };
  for (const SourceGroup& layer : layers)
    add(layer);
  add(model);
  for_each_product([&](const LinearSource& product) { count += product.bias.size(); });
  return static_cast<std::int64_t>(count);
}

std::size_t WeightSources::num_products() const {
  std::size_t count = 0;
  for_each_product([&](const LinearSource&) { ++count; });
  return count;
}

WeightSources collect_weights(const ModelSpec& spec, TensorTable& tensors) {
  WeightSources out;
  Collector collector(spec, tensors, out);
  collector.collect(-1, out.model);
  for (std::int64_t layer = 0; layer < spec.num_blocks(); ++layer)
    collector.collect(layer, out.layers.emplace_back());
  return out;
}

}  // namespace quire
