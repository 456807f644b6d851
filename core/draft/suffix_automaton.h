// SuffixAutomaton: all substrings of a growing text of tokens, and after each token the longest suffix that occurred
// before. One thread at a time. Memory: at most 2 states, 3 edges and 12 table entries of 4 bytes a token, 128 bytes;
// within the reserved size, appending allocates nothing.
// Source: Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace quire {

class SuffixAutomaton {
 public:
  // The longest suffix that also ends earlier in the text, and the number of tokens up to that end: its most recent
  // occurrence, as far as known. Length 0: no such suffix.
  struct Match {
    std::int32_t length = 0;
    std::int32_t end = 0;
  };

  SuffixAutomaton() { clear(); }

  void clear();
  // Reserves memory for a text of `num_tokens` tokens.
  void reserve(std::int64_t num_tokens);
  // Amortised O(1), except for the most recent occurrences of the suffix's own suffixes, of which a few are noted. At
  // most 2^29 tokens. Throws std::bad_alloc, after which the automaton must not be used.
  void append(TokenId token);

  std::int64_t num_tokens() const { return num_tokens_; }
  Match match() const { return match_; }

 private:
  struct State {
    std::int32_t length = 0;  // length of its longest string
    std::int32_t link = -1;   // the state of the longest suffix that occurs elsewhere too
    std::int32_t end = 0;     // end of one occurrence of its strings
    std::int32_t first_edge = -1;
  };
  struct Edge {
    std::int32_t from;
    std::int32_t token;
    std::int32_t to;
    std::int32_t next;  // next edge of the same state
  };

  std::int32_t add_state(const State& state);
  std::int32_t find(std::int32_t state, std::int32_t token) const;  // an edge; -1: none
  void add_edge(std::int32_t from, std::int32_t token, std::int32_t to);
  std::int32_t split(std::int32_t state, std::int32_t token, std::int32_t target);
  std::size_t first_place(std::int32_t state, std::int32_t token) const;
  void resize_table(std::size_t num_places);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> table_;  // places of edges by state and token, linear probing; -1: free
  std::int32_t num_tokens_ = 0;
  std::int32_t last_ = 0;  // the state of the whole text
  Match match_;
};

}  // namespace quire
