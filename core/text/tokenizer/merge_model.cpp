#include "core/text/tokenizer/merge_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <queue>

#include "core/text/unicode.h"

namespace quire {
namespace {

constexpr std::int32_t kNoSymbol = -1;
// Up to this many symbols a scan finds the best pair: cheaper than a heap, and bounded.
constexpr std::size_t kMostShortSymbols = 64;

struct CachedWord {
  static constexpr std::size_t kMostBytes = 23;
  char text[kMostBytes];
  std::uint8_t size = 0;
  std::uint32_t begin = 0;  // index of its first token in the output so far
  std::uint32_t count = 0;
};

struct Candidate {
  std::uint32_t rank;
  std::uint32_t position;
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

struct MergeModel::Scratch {
  std::vector<CachedWord> cache;
  std::vector<Symbol> symbols;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> next;
  std::vector<std::uint32_t> previous;
  std::vector<Candidate> heap;
  bool emitted_unknown = false;  // in the current segment
  bool last_is_unknown = false;  // in the current word
};

void MergeModel::ScratchDeleter::operator()(Scratch* scratch) const {
  delete scratch;
}

MergeModel::ScratchPtr MergeModel::make_scratch(std::size_t text_bytes) const {
  ScratchPtr scratch(new Scratch);
  scratch->cache.resize(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 16, 8192)));
  return scratch;
}

MergeModel::MergeModel(std::span<const std::string> texts, MergeOptions options)
    : options_(options), num_tokens_(static_cast<std::int32_t>(texts.size())), num_symbols_(num_tokens_) {
  index_.reserve(texts.size());
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) index_.insert(texts[id], static_cast<std::int32_t>(id));
  }
}

MergeModel::MergeModel(std::span<const std::string> texts, std::span<const std::pair<std::string, std::string>> merges,
                       MergeOptions options)
    : MergeModel(texts, options) {
  pairs_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const auto& [left, right] : merges)
    add_pair(left, right, rank++);
  find_first_symbols();
}

MergeModel MergeModel::from_scores(std::span<const std::string> texts, std::span<const float> scores,
                                   MergeOptions options) {
  std::map<float, std::uint32_t, std::greater<>> rank_of;
  for (const float score : scores)
    rank_of.emplace(score, 0);
  std::uint32_t next = 0;
  for (auto& [score, rank] : rank_of)
    rank = next++;

  MergeModel model(texts, options);
  for (std::size_t id = 0; id < texts.size(); ++id) {
    const std::string_view text = texts[id];
    if (text.empty() || model.index_.find(text) != static_cast<std::int32_t>(id)) continue;
    const std::uint32_t rank = rank_of.find(scores[id])->second;
    for (std::size_t at = unicode::decode(text).length; at < text.size();
         at += unicode::decode(text.substr(at)).length) {
      const std::string_view parts[] = {text.substr(0, at), text.substr(at)};
      const bool possible = std::all_of(std::begin(parts), std::end(parts), [&](std::string_view part) {
        return model.index_.find(part) >= 0 || unicode::decode(part).length == part.size();
      });
      if (possible) model.add_pair(parts[0], parts[1], rank);
    }
  }
  model.find_first_symbols();
  return model;
}

void MergeModel::find_first_symbols() {
  first_symbols_.fill(kNoSymbol);
  for (std::size_t byte = 0; byte < (options_.byte_level ? 256U : 128U); ++byte) {
    const char text = static_cast<char>(static_cast<unsigned char>(byte));
    first_symbols_[byte] = index_.find({&text, 1});
  }
}

// The symbol of a text, added if it is no token: an intermediate result, or a character that occurs only inside
// tokens.
std::int32_t MergeModel::symbol_of(std::string_view text) {
  const std::int32_t known = index_.find(text);
  if (known >= 0) return known;
  const std::int32_t symbol = num_symbols_++;
  index_.insert(text, symbol);
  return symbol;
}

void MergeModel::add_pair(std::string_view left, std::string_view right, std::uint32_t rank) {
  std::string both(left);
  both += right;
  const std::int32_t left_symbol = symbol_of(left);
  const std::int32_t right_symbol = symbol_of(right);
  pairs_.insert(left_symbol, right_symbol, {rank, symbol_of(both)});
  if (!options_.byte_level) learn_neighbours(both);
}

void MergeModel::learn_neighbours(std::string_view text) {
  char32_t previous = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto decoded = unicode::decode(text.substr(at));
    if (at > 0) neighbours_.insert(previous, decoded.code);
    previous = decoded.code;
    at += decoded.length;
  }
}

void MergeModel::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  scratch.last_is_unknown = false;
  if (options_.ignore_merges || (options_.whole_lines && word.starts_with('\n'))) {
    const std::int32_t whole = index_.find(word);
    if (whole >= 0 && whole < num_tokens_) {
      out.push_back(TokenId{whole});
      return;
    }
  }
  if (options_.byte_level) return encode_segment(word, scratch, out);
  // Characters that are never neighbours inside a token never merge: cutting between them changes no result.
  std::size_t begin = 0;
  char32_t previous = 0;
  for (std::size_t at = 0; at < word.size();) {
    const auto decoded = unicode::decode(word.substr(at));
    if (at > begin && !neighbours_.contains(previous, decoded.code)) {
      encode_segment(word.substr(begin, at - begin), scratch, out);
      begin = at;
    }
    previous = decoded.code;
    at += decoded.length;
  }
  encode_segment(word.substr(begin), scratch, out);
}

void MergeModel::encode_segment(std::string_view segment, Scratch& scratch, std::vector<TokenId>& out) const {
  if (segment.empty()) return;
  const bool cacheable = segment.size() <= CachedWord::kMostBytes;
  CachedWord* cached = nullptr;
  if (cacheable) {
    const std::uint64_t hash = std::hash<std::string_view>{}(segment);
    cached = &scratch.cache[hash & (scratch.cache.size() - 1)];
    if (cached->size == segment.size() && std::memcmp(cached->text, segment.data(), segment.size()) == 0) {
      for (std::uint32_t i = 0; i < cached->count; ++i) {
        const TokenId token = out[cached->begin + i];
        out.push_back(token);
      }
      scratch.last_is_unknown = false;
      return;
    }
  }
  const std::size_t begin = out.size();
  scratch.emitted_unknown = false;
  load_symbols(segment, scratch);
  if (scratch.symbols.size() <= kMostShortSymbols) {
    merge_short(scratch.symbols, scratch.ranks);
  } else {
    merge_long(scratch);
  }
  emit(segment, scratch, out);
  // An unknown token's result depends on its neighbour: such a word is not cached.
  if (!cacheable || scratch.emitted_unknown) return;
  std::memcpy(cached->text, segment.data(), segment.size());
  cached->size = static_cast<std::uint8_t>(segment.size());
  cached->begin = static_cast<std::uint32_t>(begin);
  cached->count = static_cast<std::uint32_t>(out.size() - begin);
}

bool MergeModel::covers_every_byte() const {
  const auto has = [this](std::int32_t id) { return id >= 0 && id < num_tokens_; };
  if (options_.byte_level) return std::all_of(first_symbols_.begin(), first_symbols_.end(), has);
  return options_.byte_fallback && std::all_of(options_.byte_tokens.begin(), options_.byte_tokens.end(), has);
}

void MergeModel::load_symbols(std::string_view segment, Scratch& scratch) const {
  scratch.symbols.clear();
  for (std::size_t at = 0; at < segment.size();) {
    const auto byte = static_cast<unsigned char>(segment[at]);
    const auto begin = static_cast<std::uint32_t>(at);
    if (options_.byte_level || byte < 0x80) {
      scratch.symbols.push_back({first_symbols_[byte], begin});
      ++at;
    } else {
      const std::size_t length = unicode::decode(segment.substr(at)).length;
      scratch.symbols.push_back({index_.find(segment.substr(at, length)), begin});
      at += length;
    }
  }
}

void MergeModel::merge_short(std::vector<Symbol>& symbols, std::vector<std::uint32_t>& ranks) const {
  const auto rank_at = [&](std::size_t i) {
    const bool known = i + 1 < symbols.size() && symbols[i].id >= 0 && symbols[i + 1].id >= 0;
    return known ? pairs_.find(symbols[i].id, symbols[i + 1].id).rank : PairTable::kNoRank;
  };
  ranks.resize(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i)
    ranks[i] = rank_at(i);
  while (true) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (best == ranks.end() || *best == PairTable::kNoRank) return;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    symbols[i].id = pairs_.find(symbols[i].id, symbols[i + 1].id).result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

// Makes the same merges with a heap of candidates over a linked list; candidates outdated by a merge are recognised
// when they are taken.
void MergeModel::merge_long(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  constexpr std::int32_t kMergedAway = -2;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  auto& heap = scratch.heap;
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto offer = [&](std::uint32_t left, std::uint32_t right, bool ordered) {
    if (symbols[left].id < 0 || symbols[right].id < 0) return;
    const PairTable::Merge merge = pairs_.find(symbols[left].id, symbols[right].id);
    if (merge.rank == PairTable::kNoRank) return;
    heap.push_back({merge.rank, left, symbols[left].id, symbols[right].id, merge.result});
    if (ordered) std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // the first one's wraps to a position that is never used
    if (i + 1 < count) offer(i, i + 1, false);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const Candidate best = heap.back();
    heap.pop_back();
    const std::uint32_t right = next[best.position];
    if (symbols[best.position].id != best.left || right >= count || symbols[right].id != best.right) continue;
    symbols[best.position].id = best.result;
    symbols[right].id = kMergedAway;
    next[best.position] = next[right];
    if (next[right] < count) {
      previous[next[right]] = best.position;
      offer(best.position, next[right], true);
    }
    if (best.position > 0) offer(previous[best.position], best.position, true);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id == kMergedAway; });
}

void MergeModel::emit(std::string_view segment, Scratch& scratch, std::vector<TokenId>& out) const {
  const std::vector<Symbol>& symbols = scratch.symbols;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].id >= 0 && symbols[i].id < num_tokens_) {
      out.push_back(TokenId{symbols[i].id});
      scratch.last_is_unknown = false;
      continue;
    }
    const std::size_t end = i + 1 < symbols.size() ? symbols[i + 1].begin : segment.size();
    emit_characters(segment.substr(symbols[i].begin, end - symbols[i].begin), scratch, out);
  }
}

// A merged symbol that is no token falls back to its characters.
void MergeModel::emit_characters(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = options_.byte_level ? 1 : unicode::decode(text.substr(at)).length;
    const std::string_view character = text.substr(at, length);
    const std::int32_t symbol = index_.find(character);
    if (symbol >= 0 && symbol < num_tokens_) {
      out.push_back(TokenId{symbol});
      scratch.last_is_unknown = false;
    } else {
      emit_unknown(character, scratch, out);
    }
    at += length;
  }
}

void MergeModel::emit_unknown(std::string_view character, Scratch& scratch, std::vector<TokenId>& out) const {
  const auto token_of = [&](char c) { return options_.byte_tokens[static_cast<unsigned char>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(character.begin(), character.end(), [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : character)
      out.push_back(TokenId{token_of(c)});
    scratch.last_is_unknown = false;
    return;
  }
  scratch.emitted_unknown = true;
  if (options_.unknown < 0) return;
  if (!(options_.fuse_unknown && scratch.last_is_unknown)) out.push_back(TokenId{options_.unknown});
  scratch.last_is_unknown = true;
}

}  // namespace quire
