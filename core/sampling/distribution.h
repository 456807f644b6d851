// Distribution: one row's candidates while filters cut them down. One row at a time; any thread. SamplerChain gives
// them in any order, and each filter weighs them; the Sampler gives them sorted, best first, with weights, and
// they stay so.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/sampling/philox.h"

namespace quire {

struct Candidate;
using Candidates = std::vector<Candidate>;

class Distribution {
 public:
  struct Settings {
    RowRandom random;
    std::size_t vocab_size = 0;
    std::size_t least_kept = 1;  // typical_p, top_p, min_p and XTC leave at least this many
    bool is_sorted = false;
  };
  // deviations: scratch memory.
  Distribution(Candidates& candidates, std::vector<double>& deviations, const Settings& settings)
      : candidates_(candidates), deviations_(deviations), settings_(settings) {}

  const RowRandom& random() const { return settings_.random; }
  // Weights become e^(logit - best logit), unless they are kept. Call before all that depends on them.
  void weigh();
  double total() const;  // sum of the weights
  float best() const;    // the largest weight

  void keep_best(std::size_t count);
  // Keeps the likeliest candidates that together have this weight.
  void keep_mass(double mass);
  // Keeps the candidates whose surprise is nearest to the expected one, until they have `share` of the weight.
  void keep_typical(double share);
  void keep_above(float least_weight);
  // Keeps logits within `n` standard deviations of the best.
  void keep_within(float n);
  // Drops all but the least likely of the candidates with at least this weight.
  void drop_above(double weight);
  // Moves the best `count` to the front, sorted.
  void sort_first(std::size_t count);

 private:
  void keep_first(double mass);
  std::size_t count_likely(double least) const;

  Candidates& candidates_;
  std::vector<double>& deviations_;  // one for each token
  const Settings settings_;
};

// Keeps the first candidates that together reach `mass`, at least `least`.
void keep_first(Candidates& candidates, double mass, std::size_t least);

// Sets logits more than `n` standard deviations below the best to minus infinity.
void cut_deviating(std::span<float> logits, float n);

}  // namespace quire
