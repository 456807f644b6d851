#include "core/model/encode/towers/tower_weights.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/result.h"
#include "core/content/picture.h"

namespace quire {

namespace {

using Kind = TowerStep::Kind;

constexpr std::int64_t kResamplerHeadDim = 128;

class TowerLoader {
 public:
  TowerLoader(MmprojFile& file, TowerSpec spec, Backend& backend)
      : file_(file), tensors_(file.tensors()), backend_(backend), out_(std::make_unique<TowerWeights>()) {
    out_->spec = std::move(spec);
  }

  std::unique_ptr<TowerWeights> load() {
    load_entry();
    for (std::int64_t block = 0; block < spec().num_blocks; ++block)
      out_->blocks.push_back(load_block(fmt::format("v.blk.{}.", block)));
    if (spec().vit_merger_after >= 0) load_merger();
    load_exit();
    const std::int64_t widest = std::max({spec().width * spec().merge() * spec().merge(), spec().text_width,
                                          kChannels * spec().patch_size * spec().patch_size});
    out_->ones = backend_.upload(std::vector<float>(static_cast<std::size_t>(widest), 1.0F));
    ignore_rest();
    return std::move(out_);
  }

 private:
  const TowerSpec& spec() const { return out_->spec; }

  void load_entry() {
    const std::int64_t inputs = kChannels * spec().patch_size * spec().patch_size;
    out_->before_patches = load_steps(spec().before_patches, inputs);
    out_->patches = load_patches(inputs);
    out_->after_patches = load_steps(spec().after_patches, spec().width);
    out_->before_blocks = load_steps(spec().before_blocks, spec().width);
    load_positions();
    if (spec().class_token != ClassToken::kNone) out_->class_row = tensors_.take_values("v.class_embd", spec().width);
  }

  // The kernels of both frames of a still picture are added up: it is the same frame twice.
  TowerProduct load_patches(std::int64_t inputs) {
    const std::string name = "v.patch_embd.weight";
    WeightSource source = tensors_.take_flattened(name, spec().width, inputs);
    std::vector<float> sum;
    if (file_.has(name + ".1")) {
      sum = decoded(source);
      const std::vector<float> second = decoded(tensors_.take_flattened(name + ".1", spec().width, inputs));
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += second[i];
      source = {.type = DType::kF32,
                .rows = source.rows,
                .cols = source.cols,
                .data = reinterpret_cast<const std::byte*>(sum.data())};
    }
    TowerProduct product;
    product.linear = pack({&source, 1}, bias_of("v.patch_embd", spec().width));
    return product;
  }

  void load_positions() {
    if (spec().positions == LearnedPositions::kNone) return;
    const std::string name = "v.position_embd.weight";
    const std::vector<std::int64_t> shape = tensors_.shape_of(name);
    PositionTable& table = out_->positions;
    if (shape.size() == 3) {
      table.rows = shape[0];
      table.columns = shape[1];
    } else {
      table.rows = 1;
      table.columns = shape.front();
    }
    const bool is_square =
        spec().positions == LearnedPositions::kAligned || spec().positions == LearnedPositions::kAntialiased ||
        spec().positions == LearnedPositions::kHalfPixels || spec().positions == LearnedPositions::kCubic;
    if (is_square && table.rows == 1) {
      std::int64_t side = 1;
      while (side * side < table.columns)
        ++side;
      if (side * side != table.columns) file_.fail(fmt::format("the tensor '{}' holds no square of positions", name));
      table.rows = table.columns = side;
    }
    table.values = tensors_.take_values(name, table.rows * table.columns * spec().width);
    check_positions(table, name);
  }

  void check_positions(const PositionTable& table, const std::string& name) {
    const std::int64_t side = spec().picture.image_size / spec().patch_size;
    std::int64_t needed = 1;
    if (spec().positions == LearnedPositions::kByRow)
      needed = side * side + (spec().class_token == ClassToken::kNone ? 0 : 1);
    if (spec().positions == LearnedPositions::kBuckets) needed = spec().position_buckets * spec().position_buckets;
    if (spec().positions == LearnedPositions::kAxes && table.rows != 2)
      file_.fail(fmt::format("the tensor '{}' must hold two tables", name));
    if (table.columns < needed)
      file_.fail(fmt::format("the tensor '{}' holds {} positions, and pictures need {}", name, table.columns, needed));
  }

  TowerBlock load_block(const std::string& prefix) {
    const std::int64_t width = spec().width;
    TowerBlock block = load_attention(prefix);
    block.ffn_norm = load_norm(prefix + "ln2", width, spec().norm, spec().eps);
    std::string up = prefix + "ffn_up";
    std::string down = prefix + "ffn_down";
    const std::int64_t ffn = ffn_size(up);
    // Old files have the two names exchanged.
    if (ffn != width && tensors_.shape_of(down + ".weight") == std::vector<std::int64_t>{ffn, width})
      std::swap(up, down);
    std::vector<std::string> ups = {up};
    if (file_.has(prefix + "ffn_gate.weight")) ups.insert(ups.begin(), prefix + "ffn_gate");
    block.up = load_products(ups, ffn, width);
    block.down = load_product(down, width, ffn);
    block.ffn_post_norm = load_optional_norm(prefix + "ffn_post_norm", width);
    block.ffn_scale = load_factors(prefix + "ls2", width);
    return block;
  }

  // Some published files say 0: then the tensor does.
  std::int64_t ffn_size(const std::string& up) const {
    if (spec().ffn_size > 0) return spec().ffn_size;
    const std::vector<std::int64_t>& shape = tensors_.shape_of(up + ".weight");
    return shape.front() == spec().width ? shape.back() : shape.front();
  }

  TowerBlock load_attention(const std::string& prefix) {
    const std::int64_t width = spec().width;
    TowerBlock block;
    block.attention_norm = load_norm(prefix + "ln1", width, spec().norm, spec().eps);
    if (file_.has(prefix + "attn_qkv.weight"))
      block.qkv.push_back(load_product(prefix + "attn_qkv", 3 * width, width));
    else
      block.qkv = load_products({prefix + "attn_q", prefix + "attn_k", prefix + "attn_v"}, width, width);
    const std::string query_norm = prefix + "attn_q_norm";
    if (file_.has(query_norm + ".weight")) {
      const std::int64_t size = tensors_.shape_of(query_norm + ".weight").front();
      block.norms_whole_width = size == width && spec().num_heads != 1;
      const std::int64_t dim = block.norms_whole_width ? width : spec().head_dim;
      block.query_norm = load_norm(query_norm, dim, TowerNormKind::kRms, spec().eps);
      block.key_norm = load_norm(prefix + "attn_k_norm", dim, TowerNormKind::kRms, spec().eps);
    }
    block.attention_out = load_product(prefix + "attn_out", width, width);
    block.attention_post_norm = load_optional_norm(prefix + "attn_post_norm", width);
    block.attention_scale = load_factors(prefix + "ls1", width);
    return block;
  }

  void load_merger() {
    const std::string prefix = "v.vit_merger.";
    constexpr std::int64_t kRows = 4;
    const std::int64_t width = kRows * spec().width;
    out_->merger = std::make_unique<VitMergerWeights>();
    VitMergerWeights& merger = *out_->merger;
    merger.attention = load_attention(prefix);
    merger.norm = load_norm(prefix + "ds_ln", width, TowerNormKind::kLayer, spec().eps);
    const std::int64_t inner = tensors_.shape_of(prefix + "ds_ffn_up.weight").front();
    merger.up = load_product(prefix + "ds_ffn_up", inner, width);
    merger.down = load_product(prefix + "ds_ffn_down", spec().width, inner);
  }

  void load_exit() {
    out_->last_norm = load_steps(spec().last_norm, spec().width);
    std::int64_t width = spec().width * (std::ssize(spec().kept_before) + 1);
    if (spec().num_queries > 0) width = load_resampler();
    out_->projector = load_steps(spec().projector_steps, width);
    for (const TowerBranch& branch : spec().branches) {
      out_->branches.push_back(load_steps(branch.steps, spec().width));
      const TowerProduct& last = out_->branches.back().back().product;
      if (last.linear == nullptr || last.outputs() != spec().text_width)
        file_.fail(fmt::format("rows of the branch after block {} are not as wide as the projector's {}",
                               branch.after_block, spec().text_width));
    }
    if (!spec().break_row.empty()) out_->break_row = tensors_.take_values(spec().break_row, spec().text_width);
  }

  std::int64_t load_resampler() {
    out_->resampler = std::make_unique<ResamplerWeights>();
    ResamplerWeights& resampler = *out_->resampler;
    const std::int64_t width = tensors_.shape_of("resampler.kv.weight").front();
    if (width % kResamplerHeadDim != 0)
      file_.fail(
          fmt::format("the resampler is {} wide, which is no multiple of its heads' {}", width, kResamplerHeadDim));
    resampler.width = width;
    resampler.num_heads = width / kResamplerHeadDim;
    resampler.kv = load_product("resampler.kv", width, spec().width);
    resampler.kv_norm = load_norm("resampler.ln_kv", width, TowerNormKind::kLayer, spec().eps);
    resampler.query_norm = load_norm("resampler.ln_q", width, TowerNormKind::kLayer, spec().eps);
    resampler.query = load_product("resampler.attn.q", width, width);
    resampler.key = load_product("resampler.attn.k", width, width);
    resampler.value = load_product("resampler.attn.v", width, width);
    resampler.out = load_product("resampler.attn.out", width, width);
    resampler.queries = tensors_.take_values("resampler.query", spec().num_queries * width);
    return width;
  }

  TowerSteps load_steps(const std::vector<TowerStep>& steps, std::int64_t width) {
    TowerSteps out;
    for (const TowerStep& step : steps) {
      if (step.is_optional && !file_.has(step.weight) && !file_.has(step.weight + ".weight")) continue;
      width = load_step(step, width, out.emplace_back());
    }
    return out;
  }

  // Features of a row behind the step.
  std::int64_t load_step(const TowerStep& step, std::int64_t width, TowerStepWeights& to) {
    to.step = step;
    switch (step.kind) {
      case Kind::kNorm:
        if (step.weight.empty()) {
          to.norm.kind = step.norm;
          to.norm.eps = static_cast<float>(step.eps.value_or(spec().eps));
          to.norm.weight = backend_.upload(std::vector<float>(static_cast<std::size_t>(width), 1.0F));
        } else {
          to.norm = load_norm(step.weight, width, step.norm, step.eps.value_or(spec().eps));
        }
        return width;
      case Kind::kMerge: return width * step.count;
      case Kind::kMean:
      case Kind::kActivate:
      case Kind::kScale: return width;
      case Kind::kStandardise:
        to.offset = backend_.upload(tensors_.take_values(step.weight, width));
        to.factors = backend_.upload(tensors_.take_values(step.up, width));
        return width;
      case Kind::kLinear:
        to.product = step.transposed ? load_transposed(step.weight, width) : load_by_channel(step, width);
        return to.product.outputs();
      case Kind::kGated: {
        const std::int64_t inner = tensors_.shape_of(step.up + ".weight").front();
        to.product = load_product(step.weight, inner, width);
        to.up = load_product(step.up, inner, width);
        to.down = load_product(step.down, tensors_.shape_of(step.down + ".weight").front(), inner);
        return to.down.outputs();
      }
    }
    return width;
  }

  TowerProduct load_by_channel(const TowerStep& step, std::int64_t width) {
    const std::int64_t rows = tensors_.shape_of(step.weight + ".weight").front();
    if (step.by_channel == 1) return load_product(step.weight, rows, width);
    // Column [channel][row] multiplies input [row][channel].
    const std::int64_t channels = width / step.by_channel;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      for (std::int64_t row = 0; row < step.by_channel; ++row)
        order_.push_back(static_cast<std::int32_t>(row * channels + channel));
    }
    WeightSource source = tensors_.take_flattened(step.weight + ".weight", rows, width);
    source.order = order_.data();
    TowerProduct product;
    product.linear = pack({&source, 1}, bias_of(step.weight, rows));
    order_.clear();
    return product;
  }

  TowerProduct load_transposed(const std::string& name, std::int64_t width) {
    const std::int64_t outputs = tensors_.shape_of(name + ".weight").back();
    const std::vector<float> values = decoded(tensors_.take_matrix(name + ".weight", width, outputs));
    std::vector<float> turned(values.size());
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t o = 0; o < outputs; ++o)
        turned[static_cast<std::size_t>(o * width + i)] = values[static_cast<std::size_t>(i * outputs + o)];
    }
    const WeightSource source{
        .type = DType::kF32, .rows = outputs, .cols = width, .data = reinterpret_cast<const std::byte*>(turned.data())};
    TowerProduct product;
    product.linear = pack({&source, 1}, bias_of(name, outputs));
    return product;
  }

  static std::vector<float> decoded(const WeightSource& source) {
    std::vector<float> values(static_cast<std::size_t>(source.rows * source.cols));
    dequantize(source.type, source.data, std::ssize(values), values.data());
    return values;
  }

  std::vector<float> bias_of(const std::string& name, std::int64_t rows) {
    return file_.has(name + ".bias") ? tensors_.take_values(name + ".bias", rows) : std::vector<float>();
  }

  TowerNorm load_norm(const std::string& name, std::int64_t width, TowerNormKind kind, double eps) {
    TowerNorm norm{.kind = kind, .eps = static_cast<float>(eps)};
    norm.weight = backend_.upload(tensors_.take_values(name + ".weight", width));
    if (kind == TowerNormKind::kLayer && file_.has(name + ".bias"))
      norm.bias = backend_.upload(tensors_.take_values(name + ".bias", width));
    return norm;
  }

  TowerNorm load_optional_norm(const std::string& name, std::int64_t width) {
    return file_.has(name + ".weight") ? load_norm(name, width, spec().norm, spec().eps) : TowerNorm();
  }

  std::unique_ptr<Buffer> load_factors(const std::string& name, std::int64_t width) {
    return file_.has(name + ".weight") ? backend_.upload(tensors_.take_values(name + ".weight", width)) : nullptr;
  }

  TowerProduct::Range range_of(const std::string& name, const char* side) {
    TowerProduct::Range range;
    const auto take = [&](const char* end, float& to) {
      const std::string tensor = fmt::format("{}.{}_{}", name, side, end);
      if (file_.has(tensor)) to = tensors_.take_values(tensor, 1).front();
    };
    take("min", range.least);
    take("max", range.most);
    return range;
  }

  TowerProduct load_product(const std::string& name, std::int64_t rows, std::int64_t cols) {
    std::vector<TowerProduct> products = load_products({name}, rows, cols);
    return std::move(products.front());
  }

  // Matrices of equal shapes on the same rows: one operation, or one each where any clamps.
  std::vector<TowerProduct> load_products(const std::vector<std::string>& names, std::int64_t rows, std::int64_t cols) {
    std::vector<TowerProduct> out;
    std::vector<WeightSource> sources;
    std::vector<std::vector<float>> biases;
    bool clamps = false;
    for (const std::string& name : names) {
      TowerProduct& product = out.emplace_back();
      product.input = range_of(name, "input");
      product.output = range_of(name, "output");
      clamps = clamps || !product.input.is_open() || !product.output.is_open();
      sources.push_back(tensors_.take_matrix(name + ".weight", rows, cols));
      biases.push_back(bias_of(name, rows));
    }
    if (clamps) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i].linear = pack({&sources[i], 1}, {});
        if (!biases[i].empty()) out[i].late_bias = backend_.upload(biases[i]);
      }
      return out;
    }
    std::vector<float> bias;
    const bool has_bias = std::ranges::any_of(biases, [](const auto& one) { return !one.empty(); });
    for (const std::vector<float>& one : biases) {
      if (has_bias) bias.resize(bias.size() + (one.empty() ? static_cast<std::size_t>(rows) : 0));
      bias.insert(bias.end(), one.begin(), one.end());
    }
    out.resize(1);
    out.front().linear = pack(sources, bias);
    return out;
  }

  std::unique_ptr<Linear> pack(std::span<const WeightSource> parts, const std::vector<float>& bias) {
    auto linear = backend_.load_linear(parts, bias);
    out_->bytes += linear->bytes();
    return linear;
  }

  // Tensors of another modality, of blocks that are not run, and those that llama.cpp's converter adds without use.
  void ignore_rest() {
    for (const char* prefix : {"a.", "mm.a.", "v.image_newline", "resampler.pos_embed_k", "v.post_ln."})
      tensors_.ignore(prefix);
    const std::int64_t stored = file_.required_integer("block_count");
    for (std::int64_t block = spec().num_blocks; block < stored; ++block)
      tensors_.ignore(fmt::format("v.blk.{}.", block));
    tensors_.refuse_unused(spec().family);
  }

  MmprojFile& file_;
  TensorTable& tensors_;
  Backend& backend_;
  std::unique_ptr<TowerWeights> out_;
  std::vector<std::int32_t> order_;
};

}  // namespace

std::unique_ptr<TowerWeights> load_tower(MmprojFile& file, TowerSpec spec, Backend& backend) {
  return TowerLoader(file, std::move(spec), backend).load();
}

}  // namespace quire
