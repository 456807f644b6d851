#include "server/dev/commands.h"

#include <algorithm>
#include <chrono>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json/json_depth.h"
#include "core/grammar/compiler.h"

namespace quire::dev {

namespace {

using PlainJson = nlohmann::json;
constexpr std::size_t kMaxDepth = 4096;  // depth of a line; deeper JSON would overflow the stack when written
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start, double unit) {
  return std::chrono::duration<double>(Clock::now() - start).count() * unit;
}

std::optional<GrammarSpec> read_spec(const PlainJson& line) {
  GrammarSpec spec;
  const auto text = [&](const char* name, GrammarSpec::Kind kind) {
    if (!line.contains(name)) return false;
    spec.kind = kind;
    spec.text = line[name].is_string() ? line[name].get<std::string>() : line[name].dump();
    return true;
  };
  if (line.contains("schema")) {
    spec.kind = GrammarSpec::Kind::kJsonSchema;
    spec.text = line["schema"].dump();
    return spec;
  }
  if (line.contains("choice") && line["choice"].is_array()) {
    spec.kind = GrammarSpec::Kind::kChoice;
    for (const PlainJson& choice : line["choice"])
      spec.choices.push_back(choice.is_string() ? choice.get<std::string>() : choice.dump());
    return spec;
  }
  if (line.contains("root") && line["root"].is_string()) spec.root = line["root"].get<std::string>();
  const bool found = text("regex", GrammarSpec::Kind::kRegex) || text("ebnf", GrammarSpec::Kind::kEbnf) ||
                     text("gbnf", GrammarSpec::Kind::kGbnf) || text("json_object", GrammarSpec::Kind::kJsonObject);
  if (spec.kind == GrammarSpec::Kind::kJsonObject) spec.text.clear();
  return found ? std::optional(spec) : std::nullopt;
}

// Spells the text with the longest tokens; nothing if the vocabulary cannot spell it.
std::optional<std::vector<TokenId>> tokens_of(std::string_view text, const TokenVocabulary& vocabulary) {
  const grammar::Trie& trie = vocabulary.trie();
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    std::uint32_t node = 0;
    std::size_t longest = 0;
    std::optional<TokenId> best;
    for (std::size_t depth = 0; depth < text.size();) {
      std::uint32_t child = node + 1;
      while (child < trie[node].end && trie[child].byte != static_cast<std::uint8_t>(text[depth]))
        child = trie[child].end;
      if (child >= trie[node].end) break;
      node = child;
      ++depth;
      if (trie.tokens_at(node).empty()) continue;
      best = TokenId{trie.tokens_at(node).front()};
      longest = depth;
    }
    if (!best) return std::nullopt;
    tokens.push_back(*best);
    text.remove_prefix(longest);
  }
  return tokens;
}

bool allowed(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token.value) / 32] >> token.value % 32 & 1) != 0;
}

// Walks the text token by token under the mask and times the masks; returns whether all of it was allowed and complete.
bool walk(const Grammar& grammar, const TokenVocabulary& vocabulary, std::string_view text,
          std::vector<double>& times) {
  const auto state = grammar.start();
  const auto tokens = tokens_of(text, vocabulary);
  if (!tokens) return false;
  std::vector<std::uint32_t> mask(vocabulary.num_mask_words());
  const auto fill = [&] {
    const auto start = Clock::now();
    state->fill_mask(mask);
    times.push_back(since(start, 1e6));
  };
  for (const TokenId token : *tokens) {
    fill();
    if (!allowed(mask, token) || !state->accept(token)) return false;
  }
  fill();
  const auto ends = vocabulary.end_tokens();
  return std::any_of(ends.begin(), ends.end(), [&](TokenId end) { return allowed(mask, end); });
}

PlainJson percentiles(std::vector<double> times, bool each) {
  if (times.empty()) return nullptr;
  PlainJson all = each ? PlainJson(times) : PlainJson();
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) { return times[static_cast<std::size_t>(q * static_cast<double>(times.size() - 1))]; };
  PlainJson summary = {{"median", at(0.5)}, {"p99", at(0.99)}, {"max", times.back()}, {"count", times.size()}};
  if (each) summary["all"] = std::move(all);
  return summary;
}

class Checker {
 public:
  explicit Checker(std::shared_ptr<const TokenVocabulary> model)
      : vocabulary_(model != nullptr ? std::move(model)
                                     : std::make_shared<TokenVocabulary>(TokenVocabulary::bytes_only())),
        compiler_(vocabulary_) {}

  PlainJson check(const PlainJson& line, const GrammarSpec& spec) const {
    PlainJson answer;
    const auto start = Clock::now();
    const auto grammar = compiler_.compile(spec);
    answer["compile_ms"] = since(start, 1e3);
    answer["compiled"] = grammar.has_value();
    answer["error"] = grammar ? PlainJson() : PlainJson(grammar.error().message);
    if (!grammar && !grammar.error().param.empty()) answer["pointer"] = grammar.error().param;
    answer["accepted"] = PlainJson::array();
    std::vector<double> times;
    for (const PlainJson& instance : line.value("instances", PlainJson::array())) {
      if (!grammar || !instance.is_string()) continue;
      const std::string text = instance.get<std::string>();
      answer["accepted"].push_back(walk(**grammar, *vocabulary_, text, times));
    }
    answer["mask_us"] = percentiles(std::move(times), line.value("times", false));
    return answer;
  }

 private:
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  GrammarCompiler compiler_;
};

}  // namespace

int run_grammar_lines(std::istream& in, std::ostream& out, std::shared_ptr<const TokenVocabulary> model) {
  const Checker checker(std::move(model));
  int num_bad = 0;
  for (std::string text; std::getline(in, text);) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const bool too_deep = nests_deeper(text, kMaxDepth);
    const PlainJson line = too_deep ? PlainJson() : PlainJson::parse(text, nullptr, false);
    const auto spec = line.is_object() ? read_spec(line) : std::nullopt;
    if (!spec) {
      ++num_bad;
      out << PlainJson{{"compiled", false},
                       {"error", too_deep ? "the schema nests too deeply" : "not a JSON object with a grammar"},
                       {"accepted", PlainJson::array()}}
                 .dump()
          << '\n';
      continue;
    }
    out << checker.check(line, *spec).dump(-1, ' ', false, PlainJson::error_handler_t::replace) << '\n' << std::flush;
  }
  return num_bad;
}

}  // namespace quire::dev
