#include "server/cli/bench/workload.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "core/model/tools/synth_vocab.h"
#include "server/modules/modules.h"

namespace quire::bench {

namespace {

using Generator = std::mt19937_64;

std::int64_t draw(Generator& generator, const Range& range) {
  return std::uniform_int_distribution<std::int64_t>(range.low, range.high)(generator);
}

std::string draw_words(Generator& generator, std::int64_t count) {
  std::string text;
  std::uniform_int_distribution<std::size_t> pick(0, kCommonWords.size() - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kCommonWords[pick(generator)];
  }
  return text;
}

struct TraceRow {
  double seconds = 0;
  std::int64_t input = 0;
  std::int64_t output = 0;
  std::vector<std::int64_t> blocks;  // Mooncake's prefix blocks of 512 tokens
};

constexpr std::int64_t kTraceBlockTokens = 512;

// A row of Azure's trace: "2023-11-16 18:15:46.6805900,374,44".
std::optional<TraceRow> parse_azure(const std::string& line) {
  std::tm when{};
  const char* rest = strptime(line.c_str(), "%Y-%m-%d %H:%M:%S", &when);
  if (rest == nullptr) return std::nullopt;
  TraceRow row;
  row.seconds = static_cast<double>(timegm(&when));
  if (*rest == '.') {
    char* end = nullptr;
    row.seconds += std::strtod(rest, &end);
    rest = end;
  }
  if (std::sscanf(rest, ",%ld,%ld", &row.input, &row.output) != 2) return std::nullopt;
  return row;
}

std::optional<TraceRow> parse_mooncake(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  TraceRow row;
  row.seconds = json.value("timestamp", 0.0) / 1000.0;
  row.input = json.value("input_length", std::int64_t{0});
  row.output = json.value("output_length", std::int64_t{0});
  row.blocks = json.value("hash_ids", std::vector<std::int64_t>{});
  return row;
}

Result<std::vector<TraceRow>> read_trace(const std::filesystem::path& path, std::int64_t limit) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) return invalid("cannot open the trace " + path.string());
  const bool azure = path.extension() == ".csv";
  std::vector<TraceRow> rows;
  std::vector<char> buffer(1 << 20);
  bool header = azure;
  while (static_cast<std::int64_t>(rows.size()) < limit &&
         gzgets(file.get(), buffer.data(), static_cast<int>(buffer.size())) != nullptr) {
    if (std::exchange(header, false)) continue;
    const std::string line(buffer.data());
    auto row = azure ? parse_azure(line) : parse_mooncake(line);
    if (!row || row->input < 1 || row->output < 1)
      return invalid("malformed line in the trace " + path.string() + ": " + line);
    rows.push_back(std::move(*row));
  }
  if (rows.empty()) return invalid("the trace " + path.string() + " is empty");
  return rows;
}

// The words of a trace's prefix block are a function of its id, so equal ids give equal text.
std::string trace_prompt(const TraceRow& row, std::uint64_t seed, std::size_t index) {
  std::string text;
  std::int64_t left = row.input;
  for (const std::int64_t block : row.blocks) {
    Generator generator(seed * 1'000'003 + static_cast<std::uint64_t>(block));
    const std::int64_t count = std::min(left, kTraceBlockTokens);
    if (!text.empty()) text += ' ';
    text += draw_words(generator, count);
    left -= count;
  }
  if (left > 0) {
    Generator generator(seed * 7'368'787 + index);
    if (!text.empty()) text += ' ';
    text += draw_words(generator, left);
  }
  return text;
}

Result<std::vector<PlannedRequest>> plan_trace(const WorkloadOptions& options) {
  const auto rows = read_trace(options.trace, options.num_requests);
  if (!rows) return tl::make_unexpected(rows.error());
  std::vector<PlannedRequest> plan;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const TraceRow& row = (*rows)[i];
    plan.push_back(
        {trace_prompt(row, options.seed, i), row.output, (row.seconds - rows->front().seconds) / options.trace_speed});
  }
  return plan;
}

constexpr std::int64_t kLineWords = 12;
constexpr std::int64_t kSystemWords = 600;  // system text of agents without a shared prefix

std::string_view common_word(Generator& random) {
  return kCommonWords[std::uniform_int_distribution<std::size_t>(0, kCommonWords.size() - 1)(random)];
}

// Lines of words with their numbers.
std::string numbered_text(Generator& random, std::int64_t num_words) {
  std::string out;
  for (std::int64_t line = 1; num_words > 0; ++line, num_words -= kLineWords) {
    out += std::to_string(line);
    for (std::int64_t i = 0; i < std::min(num_words, kLineWords); ++i)
      out.append(" ").append(common_word(random));
    out += '\n';
  }
  return out;
}

// Estimated tokens of a numbered text: its words and line numbers.
std::int64_t num_tokens_of(std::int64_t num_words) {
  return num_words + 2 * ((num_words + kLineWords - 1) / kLineWords);
}

std::vector<PlannedRequest> plan_edits(const WorkloadOptions& options, Generator& random) {
  std::vector<PlannedRequest> plan;
  for (std::int64_t i = 0; i < options.num_requests; ++i) {
    const std::int64_t num_words = draw(random, options.prompt_words);
    const std::string text = numbered_text(random, num_words);
    const std::string_view from = common_word(random);
    plan.push_back({fmt::format("Repeat this text line by line, with every '{}' replaced by '{}'.\n\n{}\nThe text:\n",
                                from, common_word(random), text),
                    num_tokens_of(num_words), std::nullopt});
  }
  return plan;
}

std::vector<PlannedRequest> plan_agents(const WorkloadOptions& options, Generator& random) {
  const std::int64_t num_system = options.shared_prefix_words > 0 ? options.shared_prefix_words : kSystemWords;
  const std::string system = "You call tools and read what they return. Rules:\n" + numbered_text(random, num_system);
  const std::int64_t num_agents = (options.num_requests + kAgentTurns - 1) / kAgentTurns;
  std::vector<std::string> prompts;
  for (std::int64_t agent = 0; agent < num_agents; ++agent)
    prompts.push_back(fmt::format("{}\nTask {}: find the {}.\n", system, agent + 1, common_word(random)));
  std::vector<PlannedRequest> plan;
  for (std::int64_t turn = 1; turn <= kAgentTurns; ++turn) {
    for (std::string& prompt : prompts) {
      prompt += fmt::format("Call {}: read({})\nReturned:\n", turn, common_word(random));
      prompt += numbered_text(random, draw(random, options.prompt_words));
      plan.push_back({prompt + "Next call:", draw(random, options.output_tokens), std::nullopt});
    }
  }
  plan.resize(static_cast<std::size_t>(options.num_requests));
  return plan;
}

std::vector<PlannedRequest> plan_retrieval(const WorkloadOptions& options, Generator& random) {
  std::vector<std::string> corpus;
  std::vector<double> weights;
  for (std::int64_t i = 1; i <= kRagCorpus; ++i) {
    corpus.push_back(fmt::format("Document {}:\n{}", i, numbered_text(random, draw(random, options.prompt_words))));
    weights.push_back(1.0 / static_cast<double>(i));
  }
  std::discrete_distribution<std::size_t> popular(weights.begin(), weights.end());
  std::vector<PlannedRequest> plan;
  for (std::int64_t i = 0; i < options.num_requests; ++i) {
    std::vector<std::size_t> chosen;
    while (std::ssize(chosen) < kRagDocuments) {
      if (const std::size_t next = popular(random); std::ranges::find(chosen, next) == chosen.end())
        chosen.push_back(next);
    }
    std::string prompt = "Answer from these documents and quote the lines that you use.\n";
    for (const std::size_t document : chosen)
      prompt += corpus[document];
    prompt += fmt::format("Question: which lines name the {}?\nAnswer:\n", common_word(random));
    plan.push_back({std::move(prompt), draw(random, options.output_tokens), std::nullopt});
  }
  return plan;
}

std::vector<PlannedRequest> plan_words(const WorkloadOptions& options) {
  Generator generator(options.seed);
  const std::string shared = draw_words(generator, options.shared_prefix_words);
  std::vector<PlannedRequest> plan;
  for (std::int64_t i = 0; i < options.num_requests; ++i) {
    PlannedRequest request;
    const std::string own = draw_words(generator, draw(generator, options.prompt_words));
    request.prompt = shared.empty() ? own : shared + ' ' + own;
    request.max_tokens = draw(generator, options.output_tokens);
    plan.push_back(std::move(request));
  }
  return plan;
}

std::vector<PlannedRequest> plan_texts(const WorkloadOptions& options) {
  Generator random(options.seed);
  switch (options.scenario) {
    case Scenario::kEdit: return plan_edits(options, random);
    case Scenario::kAgent: return plan_agents(options, random);
    case Scenario::kRag: return plan_retrieval(options, random);
    case Scenario::kWords: return plan_words(options);
  }
  return {};
}

// Adds images of random sizes, each of its own content.
void add_images(const WorkloadOptions& options, std::vector<PlannedRequest>& plan) {
  Generator random(options.seed ^ 0xd1b54a32d192ed03U);
  std::uniform_int_distribution<std::size_t> pick(0, options.image_sizes.size() - 1);
  for (PlannedRequest& request : plan) {
    for (std::int64_t i = 0; i < options.num_images; ++i) {
      const ImageSize& size = options.image_sizes[pick(random)];
      if constexpr (is_built(Module::kImages)) request.image_urls.push_back(random_image_url(size, random()));
    }
  }
}

// Adds the arrivals of a Poisson process.
void add_arrivals(const WorkloadOptions& options, std::vector<PlannedRequest>& plan) {
  Generator generator(options.seed ^ 0x9e3779b97f4a7c15U);
  std::exponential_distribution<double> gap(options.requests_per_second);
  double arrival = 0;
  for (PlannedRequest& request : plan)
    request.arrival_seconds = arrival += gap(generator);
}

}  // namespace

std::optional<Range> parse_range(const std::string& text) {
  Range range;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.low);
  if (parsed.ec != std::errc()) return std::nullopt;
  range.high = range.low;
  if (parsed.ptr != end) {
    if (*parsed.ptr != '-') return std::nullopt;
    parsed = std::from_chars(parsed.ptr + 1, end, range.high);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  }
  if (range.low < 1 || range.high < range.low) return std::nullopt;
  return range;
}

std::optional<Scenario> scenario_of(std::string_view name) {
  if (name == "words") return Scenario::kWords;
  if (name == "edit") return Scenario::kEdit;
  if (name == "agent") return Scenario::kAgent;
  if (name == "rag") return Scenario::kRag;
  return std::nullopt;
}

Result<std::vector<PlannedRequest>> plan_workload(const WorkloadOptions& options) {
  const bool is_traced = !options.trace.empty();
  Result<std::vector<PlannedRequest>> plan = is_traced ? plan_trace(options) : plan_texts(options);
  if (!plan) return plan;
  if (!is_traced && options.requests_per_second > 0) add_arrivals(options, *plan);
  if (options.num_images > 0) add_images(options, *plan);
  return plan;
}

}  // namespace quire::bench
