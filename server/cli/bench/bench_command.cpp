#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>

#include "core/base/json/json.h"
#include "core/base/result.h"
#include "core/sim/step_fit.h"
#include "server/cli/bench/kernel_bench.h"
#include "server/cli/bench/serve_bench.h"
#include "server/cli/bench/steps.h"
#include "server/cli/bench/throughput.h"
#include "server/cli/commands.h"
#include "server/cli/cpu_flags.h"
#include "server/cli/downloads.h"
#include "server/modules/modules.h"

namespace quire::cli {

namespace {

struct ServeArguments {
  bench::ServeBenchOptions run;
  bench::WorkloadOptions workload;
  std::string prompt = "128-512";
  std::string output = "64-128";
  std::string scenario = "words";
  std::string image_size = "256x256,720x1280";
  std::string json_path;
};

void require_range(const std::string& text, const char* flag, bench::Range& range) {
  const auto parsed = bench::parse_range(text);
  if (!parsed) throw CLI::ValidationError(flag, "expected a number or LOW-HIGH, not '" + text + "'");
  range = *parsed;
}

void show_progress(const bench::Progress& progress) {
  const double rate = static_cast<double>(progress.events) / progress.seconds;
  show_progress_line(fmt::format("{:.0f} s  {}/{} requests  {} events ({:.1f}/s)", progress.seconds, progress.done,
                                 progress.total, progress.events, rate),
                     progress.done == progress.total);
}

void run_serve(ServeArguments& arguments) {
  require_range(arguments.prompt, "--prompt", arguments.workload.prompt_words);
  require_range(arguments.output, "--output", arguments.workload.output_tokens);
  arguments.workload.scenario = bench::scenario_of(arguments.scenario).value_or(bench::Scenario::kWords);
  if (arguments.workload.num_images > 0 && !is_built(Module::kImages))
    throw StartupError("--images " + left_out(Module::kImages));
  auto sizes = bench::parse_image_sizes(arguments.image_size);
  if (!sizes) throw CLI::ValidationError("--image-size", sizes.error().message);
  arguments.workload.image_sizes = *std::move(sizes);
  const auto workload = bench::plan_workload(arguments.workload);
  const auto records = workload ? bench::run_serve_bench(arguments.run, *workload, show_progress)
                                : tl::make_unexpected(workload.error());
  if (!records) {
    fmt::print(stderr, "quire bench serve: {}\n", records.error().message);
    throw CLI::RuntimeError(2);
  }
  const bench::ServeReport report = bench::make_report(*records);
  fmt::print("{}", bench::to_table(report));
  if (!arguments.json_path.empty()) std::ofstream(arguments.json_path) << bench::to_json(report).dump(2) << '\n';
  if (report.num_errors > 0) throw CLI::RuntimeError(1);
}

void add_bench_serve(CLI::App& bench) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* serve =
      bench.add_subcommand("serve", "Load any OpenAI-compatible server and measure what its users would see");
  serve->add_option("--url", arguments->run.url, "The server")->capture_default_str();
  serve->add_option("--model", arguments->run.model, "Model name; default: the first that is listed");
  serve->add_option("--api-key", arguments->run.api_key, "Sent as a bearer token");
  serve->add_option("--concurrency", arguments->run.concurrency, "Closed loop: requests in progress at any time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  serve->add_option("--requests", arguments->workload.num_requests, "Requests in all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  serve
      ->add_option("--scenario", arguments->scenario,
                   "What prompts are: words; edit (a text to repeat with changes), agent (turns behind one system "
                   "text), rag (documents and a question)")
      ->check(CLI::IsMember({"words", "edit", "agent", "rag"}))
      ->capture_default_str();
  serve
      ->add_option("--prompt", arguments->prompt,
                   "Words per prompt, N or LOW-HIGH; of a scenario: per text, turn or document")
      ->capture_default_str();
  serve->add_option("--output", arguments->output, "Tokens per answer, N or LOW-HIGH")->capture_default_str();
  serve->add_option("--shared-prefix", arguments->workload.shared_prefix_words,
                    "Number of words that begin every prompt alike; of the system text of agents");
  serve
      ->add_option("--images", arguments->workload.num_images,
                   "Random images in each request, which is then a chat; each image is a new one")
      ->check(CLI::Range(0, 256));
  serve
      ->add_option("--image-size", arguments->image_size,
                   "Sizes of images in pixels, WIDTHxHEIGHT[,WIDTHxHEIGHT...], each as often as the others")
      ->capture_default_str();
  serve->add_option("--rate", arguments->workload.requests_per_second, "Open loop: Poisson arrivals per second");
  serve->add_option("--trace", arguments->workload.trace,
                    "Open loop: recorded arrivals (Azure .csv, Mooncake .jsonl[.gz])");
  serve->add_option("--trace-speed", arguments->workload.trace_speed, "Speed-up of the trace")
      ->check(CLI::PositiveNumber);
  serve->add_option("--temperature", arguments->run.temperature, "Sampling temperature")->capture_default_str();
  serve->add_option("--seed", arguments->workload.seed, "Seed of prompts, lengths and arrivals")->capture_default_str();
  serve->add_flag(
      "--token-ids", arguments->run.token_ids,
      "Ask for the tokens' ids (return_token_ids): a token counts when it is sent, even where its text is not "
      "a whole character yet");
  serve->add_option("--timeout", arguments->run.timeout_seconds, "Seconds for one request")->capture_default_str();
  serve->add_option("--json", arguments->json_path, "Also write the figures to this file");
  serve->callback([arguments] { run_serve(*arguments); });
}

Json to_json(const bench::ThroughputReport& report) {
  Json rows = Json::array();
  for (const bench::ThroughputRow& row : report.rows) {
    rows.push_back({{"sequences", row.num_sequences},
                    {"prompt_tokens_per_second", row.prompt_tokens_per_second},
                    {"decode_tokens_per_second", row.decode_tokens_per_second},
                    {"weight_gigabytes_per_second", row.weight_gigabytes_per_second}});
  }
  return {{"model", report.model}, {"backend", report.backend}, {"file_bytes", report.file_bytes}, {"rows", rows}};
}

struct ThroughputArguments {
  bench::ThroughputOptions run;
  std::string json_path;
};

void run_throughput(const ThroughputArguments& arguments) {
  const auto report =
      bench::run_throughput(arguments.run, [](const std::string& what) { fmt::print(stderr, "{}\n", what); });
  fmt::print("{} on {}, {:.2f} GB of weights; prompts {}, outputs {}\n", report.model, report.backend,
             static_cast<double>(report.file_bytes) * 1e-9, arguments.run.prompt_tokens, arguments.run.output_tokens);
  fmt::print("{:>10}{:>16}{:>16}{:>20}\n", "sequences", "prompt tok/s", "decode tok/s", "weights read GB/s");
  for (const bench::ThroughputRow& row : report.rows) {
    fmt::print("{:>10}{:>16.1f}{:>16.1f}{:>20.2f}\n", row.num_sequences, row.prompt_tokens_per_second,
               row.decode_tokens_per_second, row.weight_gigabytes_per_second);
  }
  if (!arguments.json_path.empty()) std::ofstream(arguments.json_path) << to_json(report).dump(2) << '\n';
}

void add_bench_throughput(CLI::App& bench) {
  auto arguments = std::make_shared<ThroughputArguments>();
  CLI::App* command =
      bench.add_subcommand("throughput", "Measure the engine without a network: batches of equal requests");
  command->add_option("--model", arguments->run.model, "GGUF file or Hugging Face directory")->required();
  add_cpu_flags(*command, arguments->run.backend.cpu);
  add_kv_dtype_flag(*command, arguments->run.kv_dtype);
  command->add_option("--prompt", arguments->run.prompt_tokens, "Tokens per prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--output", arguments->run.output_tokens, "Tokens per answer")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--sequences", arguments->run.batch_sizes, "Batch sizes, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--max-num-batched-tokens", arguments->run.max_num_batched_tokens, "Tokens computed in one step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--repeats", arguments->run.repeats, "Passes; medians are printed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json_path, "Also write the figures to this file");
  command->callback([arguments] { run_throughput(*arguments); });
}

struct KernelArguments {
  bench::KernelBenchOptions run;
  std::string json_path;
};

void run_kernel(KernelArguments& arguments) {
  std::vector<std::string> levels;
  for (const std::string& level : arguments.run.levels) {
    if (level != "all") {
      levels.push_back(level);
      continue;
    }
    for (const IsaLevel& known : cpu_isa_levels()) {
      if (known.supported) levels.push_back(known.name);
    }
  }
  arguments.run.levels = levels;
  try {
    const auto report =
        bench::run_kernel_bench(arguments.run, [](const std::string& what) { show_progress_line(what, false); });
    show_progress_line("done", true);
    fmt::print("{}", bench::to_table(report));
    if (!arguments.json_path.empty()) std::ofstream(arguments.json_path) << bench::to_json(report).dump(2) << '\n';
  } catch (const std::runtime_error& error) {  // the option names something unknown
    throw StartupError(std::string("quire bench kernel: ") + error.what());
  }
}

void add_bench_kernel(CLI::App& bench) {
  auto arguments = std::make_shared<KernelArguments>();
  CLI::App* command =
      bench.add_subcommand("kernel", "Measure single operations, and the limits of this machine beside them");
  const auto list = [&](const char* flag, auto& values, const char* what) {
    command->add_option(flag, values, what)->delimiter(',')->capture_default_str();
  };
  list("--isa", arguments->run.levels, "Levels, comma-separated, or all");
  list("--type", arguments->run.types, "Types of weights, comma-separated");
  list("--operation", arguments->run.operations, "Operations, comma-separated");
  list("--rows", arguments->run.rows, "Rows of activations");
  list("--shape", arguments->run.shapes, "Outputs x inputs of weights");
  list("--context", arguments->run.contexts, "Tokens of context");
  for (const char* flag : {"--rows", "--context"})
    command->get_option(flag)->check(CLI::Range(1, 1 << 17));
  command->get_option("--operation")
      ->check(CLI::IsMember({"linear", "attention", "elementwise", "experts", "masked-attention", "recurrent"}));
  command->add_option("--threads", arguments->run.cpu.threads, "Compute threads; 0: all cores")->capture_default_str();
  command->add_option("--passes", arguments->run.passes, "Passes; medians are printed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json_path, "Also write the figures to this file");
  command->callback([arguments] { run_kernel(*arguments); });
}

struct StepsArguments {
  bench::StepsOptions run;
  std::string json_path;
};

Json to_json(const bench::StepsReport& report) {
  Json steps = Json::array();
  for (const sim::MeasuredStep& step : report.steps) {
    steps.push_back({{"streams", step.terms.num_streams},
                     {"prompt_tokens", step.terms.num_prompt_tokens},
                     {"stream_ktokens", step.terms.stream_ktokens},
                     {"prompt_ktokens", step.terms.prompt_ktokens},
                     {"ms", 1000.0 * step.seconds}});
  }
  return {{"model", report.model}, {"backend", report.backend}, {"steps", steps}};
}

void run_steps(const StepsArguments& arguments) {
  const auto report =
      bench::run_steps(arguments.run, [](const std::string& what) { fmt::print(stderr, "{}\n", what); });
  fmt::print("{} on {}\n{:>10}{:>16}{:>16}{:>16}{:>12}\n", report.model, report.backend, "streams", "prompt tokens",
             "stream ktokens", "prompt ktokens", "ms");
  for (const sim::MeasuredStep& step : report.steps) {
    fmt::print("{:>10}{:>16}{:>16.2f}{:>16.2f}{:>12.3f}\n", step.terms.num_streams, step.terms.num_prompt_tokens,
               step.terms.stream_ktokens, step.terms.prompt_ktokens, 1000.0 * step.seconds);
  }
  const auto fitted = sim::fit_price(report.steps);
  if (!fitted) throw StartupError("quire bench steps: " + fitted.error().message);
  fmt::print("quire simulate --cost {}   (off by {:.1f}% on average)\n", sim::to_string(fitted->price),
             100.0 * fitted->mean_error);
  if (!arguments.json_path.empty()) std::ofstream(arguments.json_path) << to_json(report).dump(2) << '\n';
}

void add_bench_steps(CLI::App& bench) {
  auto arguments = std::make_shared<StepsArguments>();
  CLI::App* command = bench.add_subcommand("steps", "Measure what a step costs, as a price for quire simulate");
  command->add_option("--model", arguments->run.model, "GGUF file or Hugging Face directory")->required();
  add_cpu_flags(*command, arguments->run.backend.cpu);
  add_kv_dtype_flag(*command, arguments->run.kv_dtype);
  command->add_option("--max-streams", arguments->run.max_streams, "Most decoding streams of a step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--max-prompt", arguments->run.max_prompt, "Longest prompt chunk of a step")
      ->check(CLI::Range(16, 8192))
      ->capture_default_str();
  command->add_option("--max-context", arguments->run.max_context, "Longest context of a stream")
      ->check(CLI::Range(1024, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeats", arguments->run.repeats, "Passes; the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", arguments->json_path, "Also write the steps here, for quire simulate --cost");
  command->callback([arguments] { run_steps(*arguments); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine, this engine, or any server");
  bench->require_subcommand(1);
  add_bench_serve(*bench);
  add_bench_throughput(*bench);
  add_bench_kernel(*bench);
  add_bench_steps(*bench);
}

}  // namespace quire::cli
