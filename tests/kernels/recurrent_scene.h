// Sequences that a recurrent operation is run on, cut into steps in different ways. One thread at a time.
// Inputs and outputs are matrices that hold the rows of all sequences, one sequence behind the other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/random_data.h"

namespace quire::test {

inline const std::vector<std::int64_t> kSequenceLengths = {1, 40, 17, 3};

// Division of the sequences into steps.
struct Cut {
  std::int64_t chunk = 1000;  // tokens of a sequence in one step
  bool together = true;       // true: in one batch; false: one sequence after another
};

inline const std::vector<Cut> kCuts = {{1000, true}, {1000, false}, {1, true}, {7, true}, {7, false}, {16, true}};

// operation(batch, state, inputs, out): all inputs and `out` have the rows of one step.
using RecurrentOperation = std::function<void(const AttentionBatch& batch, const StatePart& state,
                                              std::vector<Matrix>& inputs, MatrixView out)>;

// The operation's output over all sequences, whose states begin as rubbish; state_floats: of the operation.
Matrix run_recurrent(Backend& backend, const Cut& cut, std::int64_t state_floats, const std::vector<Matrix>& inputs,
                     std::int64_t out_cols, const RecurrentOperation& operation);

}  // namespace quire::test
