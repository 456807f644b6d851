#include "core/draft/suffix_automaton.h"

#include <algorithm>
#include <bit>

namespace quire {

namespace {

constexpr std::int32_t kRoot = 0;
constexpr std::int32_t kNone = -1;
constexpr std::size_t kLeastPlaces = 64;
constexpr int kMostUsesNoted = 8;

}  // namespace

void SuffixAutomaton::clear() {
  states_.assign(1, State{});
  edges_.clear();
  std::fill(table_.begin(), table_.end(), kNone);
  num_tokens_ = 0;
  last_ = kRoot;
  match_ = {};
}

void SuffixAutomaton::reserve(std::int64_t num_tokens) {
  const auto count = static_cast<std::size_t>(num_tokens);
  states_.reserve(2 * count + 1);
  edges_.reserve(3 * count + 1);
  resize_table(std::max(kLeastPlaces, std::bit_ceil(4 * count)));
}

void SuffixAutomaton::append(TokenId token) {
  ++num_tokens_;
  const std::int32_t current = add_state({.length = num_tokens_, .link = kRoot, .end = num_tokens_});
  std::int32_t state = last_;
  std::int32_t edge = kNone;
  while (state != kNone && (edge = find(state, token.value)) == kNone) {
    add_edge(state, token.value, current);
    state = states_[static_cast<std::size_t>(state)].link;
  }
  if (state != kNone) {
    const std::int32_t target = edges_[static_cast<std::size_t>(edge)].to;
    const bool is_longest =
        states_[static_cast<std::size_t>(target)].length == states_[static_cast<std::size_t>(state)].length + 1;
    const std::int32_t link = is_longest ? target : split(state, token.value, target);
    states_[static_cast<std::size_t>(current)].link = link;
  }
  last_ = current;
  std::int32_t suffix = states_[static_cast<std::size_t>(current)].link;
  match_ = {states_[static_cast<std::size_t>(suffix)].length, states_[static_cast<std::size_t>(suffix)].end};
  for (int i = 0; i < kMostUsesNoted && suffix != kRoot; ++i) {
    states_[static_cast<std::size_t>(suffix)].end = num_tokens_;
    suffix = states_[static_cast<std::size_t>(suffix)].link;
  }
}

// Gives the strings of `target` that are one token longer than those of `state` a state of their own, to which all
// shorter suffixes lead.
std::int32_t SuffixAutomaton::split(std::int32_t state, std::int32_t token, std::int32_t target) {
  State copy = states_[static_cast<std::size_t>(target)];
  copy.length = states_[static_cast<std::size_t>(state)].length + 1;
  copy.first_edge = kNone;
  const std::int32_t made = add_state(copy);
  for (std::int32_t i = states_[static_cast<std::size_t>(target)].first_edge; i != kNone;
       i = edges_[static_cast<std::size_t>(i)].next)
    add_edge(made, edges_[static_cast<std::size_t>(i)].token, edges_[static_cast<std::size_t>(i)].to);
  states_[static_cast<std::size_t>(target)].link = made;
  while (state != kNone) {
    const std::int32_t edge = find(state, token);
    if (edge == kNone || edges_[static_cast<std::size_t>(edge)].to != target) break;
    edges_[static_cast<std::size_t>(edge)].to = made;
    state = states_[static_cast<std::size_t>(state)].link;
  }
  return made;
}

std::int32_t SuffixAutomaton::add_state(const State& state) {
  states_.push_back(state);
  return static_cast<std::int32_t>(states_.size()) - 1;
}

std::size_t SuffixAutomaton::first_place(std::int32_t state, std::int32_t token) const {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32) | static_cast<std::uint32_t>(token);
  const std::uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::size_t>(mixed >> 32) & (table_.size() - 1);
}

std::int32_t SuffixAutomaton::find(std::int32_t state, std::int32_t token) const {
  if (table_.empty()) return kNone;
  for (std::size_t place = first_place(state, token); table_[place] != kNone;
       place = (place + 1) & (table_.size() - 1)) {
    const Edge& edge = edges_[static_cast<std::size_t>(table_[place])];
    if (edge.from == state && edge.token == token) return table_[place];
  }
  return kNone;
}

void SuffixAutomaton::add_edge(std::int32_t from, std::int32_t token, std::int32_t to) {
  if (4 * (edges_.size() + 1) > 3 * table_.size()) resize_table(std::max(kLeastPlaces, 2 * table_.size()));
  const auto made = static_cast<std::int32_t>(edges_.size());
  State& state = states_[static_cast<std::size_t>(from)];
  edges_.push_back({from, token, to, state.first_edge});
  state.first_edge = made;
  std::size_t place = first_place(from, token);
  while (table_[place] != kNone)
    place = (place + 1) & (table_.size() - 1);
  table_[place] = made;
}

void SuffixAutomaton::resize_table(std::size_t num_places) {
  if (num_places <= table_.size()) return;
  table_.assign(num_places, kNone);
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    std::size_t place = first_place(edges_[i].from, edges_[i].token);
    while (table_[place] != kNone)
      place = (place + 1) & (table_.size() - 1);
    table_[place] = static_cast<std::int32_t>(i);
  }
}

}  // namespace quire
