#include "tests/kernels/recurrent_scene.h"

#include <algorithm>

namespace quire::test {
namespace {

struct RecurrentStep {
  std::vector<std::int32_t> query_start{0};
  std::vector<std::int32_t> context_len;
  std::vector<std::int32_t> state_ids;
  std::vector<std::int64_t> rows;  // rows of the whole input

  void add(std::size_t sequence, std::int64_t done, std::int64_t chunk) {
    std::int64_t first = 0;
    for (std::size_t s = 0; s < sequence; ++s)
      first += kSequenceLengths[s];
    const std::int64_t count = std::min(chunk, kSequenceLengths[sequence] - done);
    if (count <= 0) return;
    query_start.push_back(query_start.back() + static_cast<std::int32_t>(count));
    context_len.push_back(static_cast<std::int32_t>(done + count));
    state_ids.push_back(static_cast<std::int32_t>(kSequenceLengths.size() - 1 - sequence));
    for (std::int64_t i = 0; i < count; ++i)
      rows.push_back(first + done + i);
  }
};

std::vector<RecurrentStep> steps_of(const Cut& cut) {
  std::vector<RecurrentStep> steps;
  const std::int64_t longest = *std::ranges::max_element(kSequenceLengths);
  for (std::size_t turn = 0; turn < (cut.together ? 1 : kSequenceLengths.size()); ++turn) {
    for (std::int64_t done = 0; done < longest; done += cut.chunk) {
      RecurrentStep step;
      for (std::size_t s = 0; s < kSequenceLengths.size(); ++s) {
        if (cut.together || s == turn) step.add(s, done, cut.chunk);
      }
      if (!step.rows.empty()) steps.push_back(std::move(step));
    }
  }
  return steps;
}

}  // namespace

Matrix run_recurrent(Backend& backend, const Cut& cut, std::int64_t state_floats, const std::vector<Matrix>& inputs,
                     std::int64_t out_cols, const RecurrentOperation& operation) {
  // The part begins behind 32 floats of another one, and a third follows.
  const auto states = backend.recurrent()->allocate_states(
      {.num_states = static_cast<std::int64_t>(kSequenceLengths.size()), .floats = 64 + state_floats});
  const std::vector<std::byte> rubbish(states->state_bytes(), std::byte{0xff});  // NaN
  for (std::int32_t id = 0; id < states->layout().num_states; ++id)
    states->write_state(id, rubbish);
  Matrix out(inputs.front().rows, out_cols);
  for (const RecurrentStep& step : steps_of(cut)) {
    std::vector<Matrix> of_step;
    for (const Matrix& whole : inputs) {
      Matrix& part = of_step.emplace_back(std::ssize(step.rows), whole.cols);
      for (std::size_t i = 0; i < step.rows.size(); ++i)
        std::copy_n(&whole.data[static_cast<std::size_t>(step.rows[i] * whole.stride)], whole.cols,
                    &part.at(static_cast<std::int64_t>(i), 0));
    }
    Matrix result(std::ssize(step.rows), out_cols);
    AttentionBatch batch;
    batch.query_start = step.query_start;
    batch.context_len = step.context_len;
    batch.state_ids = step.state_ids;
    operation(batch, StatePart{.storage = states.get(), .offset = 32}, of_step, result.view());
    for (std::size_t i = 0; i < step.rows.size(); ++i)
      std::copy_n(&result.at(static_cast<std::int64_t>(i), 0), out_cols, &out.at(step.rows[i], 0));
  }
  return out;
}

}  // namespace quire::test
