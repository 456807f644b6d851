// Gain of drafts on a real model: bench_draft MODEL [lookup|oracle|wrong|mtp|block|draft:FILE]... Each figure is the
// decode rate with drafts over the rate without, the median of engines that take turns, beside the required value. The
// texts are the same by construction; otherwise the program stops.
#include <functional>
#include <optional>
#include <random>

#include "tests/bench/engine_bench.h"
#include "tests/bench/oracle_block.h"
#include "tests/support/oracle_drafter.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr int kRounds = 5;

// Allows exactly one text, token by token, without forcing it: the output of an editing model.
class ReplayGrammar final : public Grammar {
 public:
  explicit ReplayGrammar(std::vector<TokenId> text) : text_(std::move(text)) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(text_); }

 private:
  class State final : public GrammarState {
   public:
    explicit State(const std::vector<TokenId>& text) : text_(text) {}
    void assign(const GrammarState& other) override { position_ = static_cast<const State&>(other).position_; }
    void fill_mask(std::span<std::uint32_t> mask) override {
      std::fill(mask.begin(), mask.end(), 0U);
      const auto next = static_cast<std::uint32_t>(text_[position_].value);
      mask[next / 32] = 1U << (next % 32);
    }
    // A wrong draft is not cut here: an editing model would find out only by computing it.
    bool accept(TokenId) override {
      ++position_;
      return true;
    }
    bool finished() const override { return position_ == text_.size(); }
    std::span<const TokenId> forced_tokens() override { return {}; }

   private:
    const std::vector<TokenId>& text_;
    std::size_t position_ = 0;
  };
  std::vector<TokenId> text_;
};

// Quotes spans of the prompt, with a few tokens of its own in between.
std::vector<TokenId> quoting_text(const std::vector<TokenId>& prompt, std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> text;
  while (text.size() < length) {
    const std::size_t span = 24 + random() % 48;
    const std::size_t begin = random() % (prompt.size() - span);
    for (std::size_t i = 0; i < span; ++i)
      text.push_back(prompt[begin + i]);
    for (std::size_t i = random() % 4; i > 0; --i)
      text.push_back(prompt[random() % prompt.size()]);
  }
  text.resize(length);
  return text;
}

struct Scene {
  int num_streams = 1;
  int first_stream = 0;
  int num_prompt_tokens = 64;
  int num_tokens = 256;
  bool quotes = false;
  bool asks = false;  // questions of the demo models' kind
  SpeculationOptions speculation{};
  DrafterFactory make_drafter{};
};

constexpr const char* kQuestions[] = {"What is continuous batching, and why is it useful?", "What is a KV cache?",
                                      "Tell me about paged attention.", "Why is prefill slower for long prompts?",
                                      "Hello! Who are you?"};

std::vector<TokenId> prompt_of(const BenchModel& model, const Scene& scene, int stream) {
  if (!scene.asks) return model.tokens(scene.num_prompt_tokens, stream);
  return model.encode(std::string("<|im_start|>user\n") + kQuestions[static_cast<std::size_t>(stream) % 5] +
                      "<|im_end|>\n<|im_start|>assistant\n");
}

struct Measured {
  double seconds = 0.0;  // counted from the last first token
  EngineStats stats{};
  std::vector<std::vector<TokenId>> texts{};
};

Measured run(BenchModel& model, const Scene& scene, bool drafted) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 32;
  options.kv_cache.enable_prefix_caching = false;
  if (drafted) {
    options.speculation = scene.speculation;
    options.make_drafter = scene.make_drafter;
  }
  BenchEngine engine(model, 32 * 40 + 200, options);
  std::vector<std::shared_ptr<TimingSink>> sinks;
  for (int i = 0; i < scene.num_streams; ++i) {
    std::vector<TokenId> prompt = prompt_of(model, scene, scene.first_stream + i);
    std::shared_ptr<const Grammar> grammar;
    if (scene.quotes) {
      const auto length = static_cast<std::size_t>(scene.num_tokens);
      grammar = std::make_shared<ReplayGrammar>(quoting_text(prompt, length, static_cast<std::uint32_t>(i)));
    }
    sinks.push_back(engine.submit(std::move(prompt), scene.num_tokens, "", std::move(grammar)));
  }
  engine.run();
  Measured measured{.stats = engine.engine->stats()};
  Clock::time_point began{};
  Clock::time_point ended{};
  for (const auto& sink : sinks) {
    began = std::max(began, sink->times.front());
    ended = std::max(ended, sink->times.back());
    measured.texts.push_back(sink->tokens);
  }
  measured.seconds = seconds_between(began, ended);
  return measured;
}

// plain: measures the rate without drafts.
void measure(BenchModel& plain, BenchModel& model, const std::string& what, Scene scene, double least,
             std::optional<std::uint32_t> percent = std::nullopt) {
  const Measured first = run(plain, scene, false);
  test::KnownTexts texts;
  for (std::size_t i = 0; i < first.texts.size(); ++i)
    texts[{std::to_string(i), 0}] = first.texts[i];
  if (percent)
    scene.make_drafter =
        test::OracleDrafter::factory(texts, *percent, static_cast<std::int32_t>(model.model->vocab_size()));
  std::vector<double> ratios;
  double rate = 0.0;
  EngineStats stats;
  for (int round = 0; round < kRounds; ++round) {
    const Measured without = run(plain, scene, false);
    const Measured with = run(model, scene, true);
    if (with.texts != first.texts || without.texts != first.texts) {
      std::fprintf(stderr, "%s: the texts differ\n", what.c_str());
      std::exit(1);
    }
    ratios.push_back(without.seconds / with.seconds);
    rate = scene.num_streams * (scene.num_tokens - 1) / without.seconds;
    stats = with.stats;
  }
  const double ratio = percentile(ratios, 50);
  std::printf("%s: %.2f x (%.2f to %.2f), must be at least %.2f%s; %.1f tok/s without, %llu of %llu drafts accepted\n",
              what.c_str(), ratio, percentile(ratios, 0), percentile(ratios, 100), least,
              ratio >= least ? "" : ": MISSED", rate, static_cast<unsigned long long>(stats.num_accepted_tokens),
              static_cast<unsigned long long>(stats.num_draft_tokens));
}

void measure_lookup(BenchModel& model) {
  measure(model, model, "prompt lookup, answers that quote, 1 stream",
          {.num_prompt_tokens = 1024, .quotes = true, .speculation = {SpeculationMethod::kPromptLookup, 8}}, 2.0);
}

void measure_oracle(BenchModel& model) {
  for (const auto& [num_streams, least] : {std::pair(1, 1.9), std::pair(4, 1.4), std::pair(8, 1.0)}) {
    measure(model, model, "oracle of 70 %, 4 drafted, " + std::to_string(num_streams) + " streams",
            {.num_streams = num_streams, .speculation = {SpeculationMethod::kPromptLookup, 4}}, least, 70);
  }
}

void measure_wrong(BenchModel& model) {
  for (const int num_streams : {1, 8, 32}) {
    measure(model, model, "drafts that are all wrong, 8 drafted, " + std::to_string(num_streams) + " streams",
            {.num_streams = num_streams, .speculation = {SpeculationMethod::kPromptLookup, 8}}, 0.97, 0);
  }
}

// A stream per question: short answers that the demo hybrid was trained on.
void measure_mtp(BenchModel& plain, const char* path) {
  BenchModel model(path, true);
  if (model.model->drafts_by() != DraftsBy::kNextTokens) return;
  for (int question = 0; question < 5; ++question) {
    measure(
        plain, model, std::string("MTP block, 1 stream, '") + kQuestions[question] + "'",
        {.first_stream = question, .num_tokens = 160, .asks = true, .speculation = {SpeculationMethod::kNextTokens, 4}},
        1.4);
  }
}

// The block of a file of random weights (`quire synth --next-tokens`), whose drafts an oracle replaces: measures the
// cost and gain of drafting with it if a step is bound by its weights.
void measure_block(BenchModel& plain, const char* path) {
  struct Case {
    std::uint32_t percent;
    std::int64_t part;  // divisor of the vocabulary
    double least;
  };
  for (const Case& its : {Case{70, 1, 1.4}, Case{70, 8, 1.4}, Case{0, 8, 0.97}}) {
    BenchModel model(path, true);
    if (model.model->drafts_by() != DraftsBy::kNextTokens) return;
    const Scene scene{.num_tokens = 128, .speculation = {SpeculationMethod::kNextTokens, 4}};
    const std::int64_t num_looked_at = model.model->vocab_size() / its.part / kOutputStep * kOutputStep;
    auto block = std::make_unique<OracleBlock>(std::move(model.model), its.percent, num_looked_at);
    block->follow(run(plain, scene, false).texts.at(0), static_cast<std::size_t>(scene.num_prompt_tokens));
    model.model = std::move(block);
    measure(plain, model,
            "MTP block, its drafts right in " + std::to_string(its.percent) + " %, among " +
                std::to_string(num_looked_at) + " tokens, 1 stream",
            scene, its.least);
  }
}

// A smaller model. With synthetic weights it is never right, and may cost no more under load than other drafts; a
// trained one is right as often as it is.
void measure_draft_model(BenchModel& plain, const char* path, const std::string& drafter) {
  BenchModel model(path, false, drafter);
  for (const int num_streams : {1, 8, 32}) {
    measure(plain, model, "draft model, " + std::to_string(num_streams) + " streams",
            {.num_streams = num_streams, .speculation = {SpeculationMethod::kDraftModel, 4}}, 0.97);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::pair<std::string, std::function<void(BenchModel&)>>> all = {
      {"lookup", measure_lookup},
      {"oracle", measure_oracle},
      {"wrong", measure_wrong},
      {"mtp", [&](BenchModel& model) { measure_mtp(model, argv[1]); }},
      {"block", [&](BenchModel& model) { measure_block(model, argv[1]); }}};
  if (argc < 2) {
    std::fprintf(stderr, "bench_draft MODEL [lookup|oracle|wrong|mtp|block|draft:FILE]...\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  BenchModel model(argv[1]);
  for (const auto& [name, measure_it] : all) {
    if (argc == 2 || std::find(argv + 2, argv + argc, name) != argv + argc) measure_it(model);
  }
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.starts_with("draft:")) measure_draft_model(model, argv[1], name.substr(6));
  }
  return 0;
}
