#include "tests/unit/model/exam.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/material.h"
#include "tests/unit/model/model_runner.h"

namespace quire::test {

namespace {

using nlohmann::json;

std::vector<std::uint8_t> from_base64(const std::string& text) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<std::uint8_t>(bits >> count & 0xFFU));
  }
  return out;
}

template <class T>
std::vector<T> decoded(const json& object, const char* key) {
  if (!object.contains(key)) return {};
  const std::vector<std::uint8_t> bytes = from_base64(object.at(key).get<std::string>());
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

ExamPrompt read_prompt(const json& from) {
  ExamPrompt to;
  to.ids = from.at("ids").get<std::vector<std::int32_t>>();
  to.top_k = from.value("top_k", 0);
  to.top_ids = decoded<std::int32_t>(from, "top_ids_i32_b64");
  to.top_values = decoded<float>(from, "top_val_f32_b64");
  to.columns = decoded<float>(from, "cols_f32_b64");
  to.lse = decoded<float>(from, "lse_f32_b64");
  to.last = decoded<float>(from, "last_f32_b64");
  to.embedding = decoded<float>(from, "embedding_f32_b64");
  to.l2norm = from.value("l2norm", 0.0);
  if (from.contains("greedy")) {
    to.greedy = from.at("greedy").get<std::vector<std::int32_t>>();
    to.greedy_gap = from.at("greedy_gap").get<std::vector<double>>();
  }
  return to;
}

void note(ExamResult& result, double difference, const std::string& where) {
  // Written so that a NaN counts as the worst.
  if (difference <= result.worst) return;
  result.worst = std::isnan(difference) ? 1e9 : difference;
  result.where = where;
}

void compare_rows(const Logits& logits, const ExamPrompt& prompt, const std::vector<std::int32_t>& columns,
                  const std::string& name, ExamResult& result) {
  const auto difference = [](float a, float b) { return std::fabs(static_cast<double>(a) - static_cast<double>(b)); };
  for (std::size_t row = 0; row < prompt.ids.size(); ++row) {
    const std::vector<float>& got = logits.at(row);
    const std::string where = fmt::format("{} row {}", name, row);
    const auto top_k = static_cast<std::size_t>(prompt.top_k);
    for (std::size_t i = 0; i < top_k; ++i) {
      const auto id = static_cast<std::size_t>(prompt.top_ids.at(row * top_k + i));
      note(result, difference(got.at(id), prompt.top_values.at(row * top_k + i)), where);
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const float expected = prompt.columns.at(row * columns.size() + i);
      note(result, difference(got.at(static_cast<std::size_t>(columns[i])), expected), where);
    }
    double sum = 0.0;
    const double largest = *std::ranges::max_element(got);
    for (const float value : got)
      sum += std::exp(static_cast<double>(value) - largest);
    note(result, std::fabs(largest + std::log(sum) - static_cast<double>(prompt.lse.at(row))), where + " lse");
  }
  for (std::size_t i = 0; i < prompt.last.size(); ++i)
    note(result, difference(logits.back().at(i), prompt.last[i]), name + " last row");
}

bool same_greedy(ModelRunner& runner, const ExamPrompt& prompt, double deviation) {
  const std::vector<std::int32_t> got = runner.greedy(prompt.ids, prompt.greedy.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (prompt.greedy_gap.at(i) < std::max(1e-3, 2.0 * deviation)) return true;  // ambiguous from here on
    if (got[i] != prompt.greedy[i]) return false;
  }
  return true;
}

std::vector<double> pooled(const Logits& hidden, const std::string& pooling) {
  const auto widened = [](const std::vector<float>& row) { return std::vector<double>(row.begin(), row.end()); };
  if (pooling == "cls") return widened(hidden.front());
  if (pooling == "last") return widened(hidden.back());
  std::vector<double> out(hidden.front().size());
  for (const auto& row : hidden) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] += static_cast<double>(row[i]) / static_cast<double>(hidden.size());
  }
  return out;
}

// A decoder's classifier gives probabilities, an encoder's one score.
std::vector<double> ranked(const Logits& labels, bool is_causal) {
  const std::vector<float>& row = is_causal ? labels.back() : labels.front();
  std::vector<double> out(row.begin(), row.end());
  if (out.size() < 2) return out;
  double sum = 0.0;
  for (double& value : out)
    sum += value = std::exp(value);
  for (double& value : out)
    value /= sum;
  return out;
}

void compare_embedding(ModelRunner& runner, const ExamReference& reference, const ExamPrompt& prompt, bool is_causal,
                       const std::string& name, ExamResult& result) {
  const bool is_rank = reference.pooling == "rank";
  const std::vector<double> got = is_rank ? ranked(runner.append_labels(prompt.ids), is_causal)
                                          : pooled(runner.append_hidden(prompt.ids), reference.pooling);
  for (std::size_t i = 0; i < std::min(got.size(), prompt.embedding.size()); ++i) {
    const double norm = std::max(1.0, prompt.l2norm);
    note(result, std::fabs(got[i] - static_cast<double>(prompt.embedding[i])) / norm, name);
  }
}

}  // namespace

ExamReference read_exam(const std::filesystem::path& reference_json) {
  const json parsed = json::parse(read_file(reference_json));
  ExamReference out;
  out.is_embedding = parsed.at("mode") == "embedding";
  if (parsed.contains("pooling")) out.pooling = parsed.at("pooling").get<std::string>();
  if (parsed.contains("reference_context")) out.context = parsed.at("reference_context").value("n_ctx", 0);
  if (parsed.contains("cols")) out.columns = parsed.at("cols").get<std::vector<std::int32_t>>();
  for (const json& prompt : parsed.at("prompts"))
    out.prompts.push_back(read_prompt(prompt));
  return out;
}

ExamResult take_exam(const std::filesystem::path& path, const ExamReference& reference, std::size_t chunk,
                     bool with_greedy) {
  const auto model = open_model(path, false, {.served_context = reference.context});
  ModelRunner runner(*model, kVectorIsa, KvDType::kF32, 1);
  ExamResult result;
  for (std::size_t i = 0; i < reference.prompts.size(); ++i) {
    const ExamPrompt& prompt = reference.prompts[i];
    const std::string name = fmt::format("prompt {}", i);
    runner.reset();
    if (reference.is_embedding) {
      compare_embedding(runner, reference, prompt, model->info().is_causal, name, result);
      continue;
    }
    const Logits logits = chunk == 0 ? runner.append(prompt.ids) : runner.append_chunked(prompt.ids, chunk);
    compare_rows(logits, prompt, reference.columns, name, result);
    if (with_greedy && !same_greedy(runner, prompt, result.worst)) result.greedy_agrees = false;
  }
  return result;
}

}  // namespace quire::test
