#include "tests/unit/model/hf/hf_classes.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/model/formats/gguf/gguf.h"

namespace quire::test {

namespace {

using nlohmann::json;

struct ClassTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

std::vector<std::string> split_text(std::string_view text, char by) {
  std::vector<std::string> out;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, by);) {
    if (!part.empty()) out.push_back(part);
  }
  return out;
}

std::map<std::string, ClassTensor> read_tensors(const std::filesystem::path& path) {
  std::map<std::string, ClassTensor> out;
  const auto file = GgufFile::open(path);
  for (const GgufTensor& from : file->tensors()) {
    ClassTensor& to = out[std::string(from.name)];
    to.shape.assign(from.shape.rbegin(), from.shape.rend());
    to.values.resize(from.data.size() / sizeof(float));
    std::memcpy(to.values.data(), from.data.data(), from.data.size());
  }
  return out;
}

std::size_t as_size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

ClassTensor unpermuted(const ClassTensor& from, std::int64_t dim) {
  ClassTensor to = from;
  const std::size_t cols = from.shape.size() > 1 ? as_size(from.shape[1]) : 1;
  for (std::int64_t row = 0; row < from.shape[0]; ++row) {
    const std::int64_t in_head = row % dim;
    const std::int64_t place = row - in_head + in_head % 2 * dim / 2 + in_head / 2;
    std::copy_n(from.values.begin() + row * static_cast<std::int64_t>(cols), cols,
                to.values.begin() + place * static_cast<std::int64_t>(cols));
  }
  return to;
}

// The last two dimensions.
ClassTensor transposed(const ClassTensor& from) {
  ClassTensor to = from;
  const std::size_t rows = as_size(from.shape[from.shape.size() - 2]);
  const std::size_t cols = as_size(from.shape.back());
  std::swap(to.shape[to.shape.size() - 2], to.shape.back());
  for (std::size_t i = 0; i < from.values.size(); ++i) {
    const std::size_t in = i % (rows * cols);
    to.values[i - in + in % cols * rows + in / cols] = from.values[i];
  }
  return to;
}

ClassTensor flattened(ClassTensor tensor) {
  tensor.shape = {tensor.shape[0] * tensor.shape[1], tensor.shape[2]};
  return tensor;
}

// "2*64,3*32": the first 64 rows are divided by 2, the next 32 by 3. "2": all are.
ClassTensor divided(ClassTensor tensor, const std::string& factors) {
  const std::size_t cols = tensor.values.size() / as_size(tensor.shape[0]);
  std::size_t row = 0;
  for (const std::string& part : split_text(factors, ',')) {
    const std::vector<std::string> halves = split_text(part, '*');
    const std::size_t count = halves.size() > 1 ? as_size(std::stol(halves[1])) : as_size(tensor.shape[0]);
    for (std::size_t end = row + count; row < end; ++row) {
      for (std::size_t i = 0; i < cols; ++i)
        tensor.values.at(row * cols + i) /= std::stof(halves[0]);
    }
  }
  return tensor;
}

ClassTensor changed(ClassTensor tensor, const std::string& how) {
  if (how.empty()) return tensor;
  if (how[0] == 'H') {
    const std::int64_t heads = std::stol(how.substr(1));
    tensor.shape = {heads, static_cast<std::int64_t>(tensor.values.size()) / heads};
    return tensor;
  }
  if (how[0] == 'P') return unpermuted(tensor, std::stol(how.substr(1)));
  if (how[0] == 'O') {
    const std::int64_t rows = std::stol(how.substr(1));
    tensor.values.insert(tensor.values.begin(), as_size(rows * tensor.shape[1]), 7.0F);
    tensor.shape[0] += rows;
    return tensor;
  }
  if (how == "U") return tensor;
  if (how == "T") return transposed(tensor);
  if (how == "F") return flattened(std::move(tensor));
  if (how == "G") return flattened(transposed(tensor));
  if (how != "M" && how != "L") return divided(std::move(tensor), how);
  for (float& value : tensor.values)
    value = how == "M" ? value - 1.0F : std::log(-value);
  return tensor;
}

// Two stacks' matrices side by side.
ClassTensor beside(const ClassTensor& first, const ClassTensor& second) {
  ClassTensor to = first;
  to.shape.back() += second.shape.back();
  to.values.clear();
  const auto width = static_cast<std::ptrdiff_t>(first.shape.back());
  for (auto row = std::ptrdiff_t{0}; row * width < std::ssize(first.values); ++row) {
    for (const ClassTensor* from : {&first, &second})
      to.values.insert(to.values.end(), from->values.begin() + row * width, from->values.begin() + (row + 1) * width);
  }
  return to;
}

ClassTensor part_of(const ClassTensor& from, std::int64_t index) {
  ClassTensor to;
  to.shape.assign(from.shape.begin() + 1, from.shape.end());
  const std::size_t count = from.values.size() / as_size(from.shape[0]);
  to.values.assign(from.values.begin() + static_cast<std::ptrdiff_t>(count) * index,
                   from.values.begin() + static_cast<std::ptrdiff_t>(count) * (index + 1));
  return to;
}

ClassTensor joined(ClassTensor first, const ClassTensor& second) {
  first.shape[0] += second.shape[0];
  first.values.insert(first.values.end(), second.values.begin(), second.values.end());
  return first;
}

class Writer {
 public:
  Writer(const HfClass& made, const std::filesystem::path& gguf) : made_(made), tensors_(read_tensors(gguf)) {}

  std::map<std::string, ClassTensor> take() {
    for (const std::string& entry : split_text(made_.names, ' ')) {
      const std::size_t equal = entry.find('=');
      const std::string hf = entry.substr(0, equal);
      const std::string gguf = entry.substr(equal + 1);
      if (hf.starts_with('^')) {
        add(hf.substr(1), "", gguf);
        continue;
      }
      for (std::int64_t layer = 0; layer < 64; ++layer) {
        add(made_.layers + "." + std::to_string(layer) + "." + hf, "blk." + std::to_string(layer) + ".", gguf);
      }
    }
    return std::move(out_);
  }

 private:
  void add(std::string hf, const std::string& prefix, const std::string& expression) {
    if (expression.starts_with('@')) {
      hf.pop_back();
      if (tensors_.contains(prefix + "attn_norm.weight")) out_[hf] = {{1}, {std::stof(expression.substr(1))}};
      return;
    }
    const std::size_t colon = expression.find(':');
    const std::string how = colon == std::string::npos ? "" : expression.substr(0, colon);
    const std::vector<std::string> terms =
        split_text(colon == std::string::npos ? expression : expression.substr(colon + 1), '+');
    const bool is_whole = hf.ends_with('$');
    if (is_whole) hf.pop_back();
    for (const std::string suffix : {".weight", ".bias"}) {
      const std::string end = is_whole ? "" : suffix;
      const auto name_of = [&](const std::string& term) {
        // Some norms have no suffix.
        const std::string name = prefix + term + end;
        return tensors_.contains(name) || end != ".weight" ? name : prefix + term;
      };
      if (is_whole && suffix == ".bias") continue;
      const auto first = tensors_.find(name_of(terms.front()));
      if (first == tensors_.end()) continue;
      ClassTensor tensor = changed(first->second, how);
      if (how == "U") {
        out_[hf] = beside(transposed(first->second), transposed(tensors_.at(name_of(terms[1]))));
        continue;
      }
      for (std::size_t i = 1; i < terms.size(); ++i)
        tensor = joined(std::move(tensor), tensors_.at(name_of(terms[i])));
      const std::size_t number = hf.find('#');
      if (number == std::string::npos) {
        out_[hf + end] = tensor;
        continue;
      }
      for (std::int64_t e = 0; e < tensor.shape[0]; ++e) {
        std::string name = hf;
        out_[name.replace(number, 1, std::to_string(e)) + end] = part_of(tensor, e);
      }
    }
  }

  const HfClass& made_;
  std::map<std::string, ClassTensor> tensors_;
  std::map<std::string, ClassTensor> out_;
};

void write_class_tensors(const std::filesystem::path& path, const std::map<std::string, ClassTensor>& tensors) {
  json header;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t bytes = tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length) << text;
  for (const auto& [name, tensor] : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.values.data()),
              static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
  }
}

}  // namespace

SynthSpec synth_spec(const HfClass& made) {
  SynthSpec spec = find_synth_shape(made.shape).value();
  spec.types = find_synth_types("F32").value();
  spec.family->keys += " " + made.keys;
  const bool replaces = made.parts.starts_with('=');
  spec.family->parts = replaces ? made.parts.substr(1) : spec.family->parts + " " + made.parts;
  return spec;
}

json hf_config(const HfClass& made) {
  json config = json::parse(R"({"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 512,
      "intermediate_size": 96, "rope_theta": 10000.0, "rms_norm_eps": 0.001, "hidden_act": "silu",
      "torch_dtype": "float32", "use_cache": true, "bos_token_id": 1, "attention_dropout": 0.0})");
  config["model_type"] = made.model_type;
  config.merge_patch(json::parse(made.config));
  return config;
}

void write_hf_class(const HfClass& made, const json& config, const std::filesystem::path& gguf,
                    const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  write_class_tensors(directory / "model.safetensors", Writer(made, gguf).take());
  std::ofstream(directory / "config.json") << config;
}

}  // namespace quire::test
