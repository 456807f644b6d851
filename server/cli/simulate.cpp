#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/sim/report.h"
#include "core/sim/step_fit.h"
#include "server/cli/commands.h"

namespace quire::cli {

namespace {

struct Asked {
  std::string trace;
  std::string synthetic;
  double speed = 1.0;
  std::vector<std::string> costs;
  std::vector<std::string> set;
  std::vector<std::string> sweep;
  std::vector<std::string> weights;
  std::int32_t num_replicas = 1;
  std::int32_t num_prefill_replicas = 0;
  std::string route = "round-robin";
  std::int64_t shared_blocks = 0;
  std::string json_file;
  std::string html_file;
  bool keeps_steps = false;
};

[[noreturn]] void refuse(const Error& error) {
  throw StartupError("simulate: " + error.message);
}

template <class T>
T require(Result<T> result) {
  if (!result) refuse(result.error());
  return *std::move(result);
}

std::unique_ptr<sim::TraceSource> open_source(const Asked& asked) {
  if (!asked.trace.empty()) return require(sim::open_trace(asked.trace, asked.speed));
  return sim::make_synthetic(require(sim::parse_synthetic(asked.synthetic)));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (!file) throw StartupError(fmt::format("simulate: cannot write {}", path));
}

using nlohmann::json;

sim::MeasuredStep measured_step(const json& step) {
  const double ms = step.at("ms");
  return {.terms = {step.at("streams"), step.at("prompt_tokens"), step.at("stream_ktokens"), step.at("prompt_ktokens")},
          .seconds = ms / 1000.0};
}

// Adds the steps of a daemon's trace, without those cut short.
void add_traced_steps(const std::string& file, const json& events, std::vector<sim::MeasuredStep>& steps) {
  std::optional<int> engine;
  for (const json& event : events) {
    if (event.at("name") != "step") continue;
    const int process = event.at("pid");
    if (engine.value_or(process) != process)
      throw StartupError(fmt::format("simulate: {} has steps of several models; trace a daemon that serves one", file));
    engine = process;
    const sim::MeasuredStep step = measured_step(event.at("args"));
    if (step.seconds > 0.0) steps.push_back(step);
  }
}

// Reads numbers, or fits the prices to files of `quire bench steps --json` or of a daemon's POST /admin/trace. The
// scatter of a daemon's steps is kept, because they were measured while it served.
void read_price(const std::vector<std::string>& costs, sim::SimOptions& options) {
  if (costs.size() == 1 && !costs[0].ends_with(".json")) {
    options.price = require(sim::parse_price(costs[0]));
    return;
  }
  std::vector<sim::MeasuredStep> steps;
  bool is_traced = false;
  for (const std::string& cost : costs) {
    std::ifstream file(cost);
    const json measured = json::parse(file, nullptr, false);
    try {
      if (measured.contains("traceEvents")) {
        is_traced = true;
        add_traced_steps(cost, measured.at("traceEvents"), steps);
      } else {
        for (const json& step : measured.at("steps"))
          steps.push_back(measured_step(step));
      }
    } catch (const json::exception&) {
      throw StartupError(
          fmt::format("simulate: {} is neither of quire bench steps --json nor of POST /admin/trace", cost));
    }
  }
  const sim::FittedPrice fitted = require(sim::fit_price(steps));
  fmt::print("step price from {}: {} (off by {:.1f}% on average)\n", fmt::join(costs, ", "),
             sim::to_string(fitted.price), 100.0 * fitted.mean_error);
  options.price = fitted.price;
  if (is_traced) options.scatter = sim::scatter_of(steps, fitted.price);
}

std::map<std::string, double> parse_weights(const std::vector<std::string>& items) {
  std::map<std::string, double> weights;
  for (const std::string& item : items) {
    const std::size_t equals = item.find('=');
    char* end = nullptr;
    const double weight = equals == std::string::npos ? 0.0 : std::strtod(item.c_str() + equals + 1, &end);
    if (!(weight > 0.0) || *end != '\0') throw StartupError(fmt::format("simulate: '{}' is not key=weight", item));
    weights[item.substr(0, equals)] = weight;
  }
  return weights;
}

void run(const Asked& asked) {
  sim::SimOptions base;
  base.keeps_steps = asked.keeps_steps;
  if (!asked.costs.empty()) read_price(asked.costs, base);
  base.scheduler.key_weights = parse_weights(asked.weights);
  std::vector<std::string> items = asked.set;
  items.push_back(fmt::format("replicas={}", asked.num_replicas));
  items.push_back(fmt::format("prefill_replicas={}", asked.num_prefill_replicas));
  items.push_back("route=" + asked.route);
  if (asked.shared_blocks > 0) items.push_back(fmt::format("shared_blocks={}", asked.shared_blocks));
  for (const std::string& item : items)
    base = require(sim::make_cases(base, {item})).front().options;
  std::vector<sim::SimCase> cases = require(sim::make_cases(base, asked.sweep));
  for (sim::SimCase& each : cases) {
    const std::unique_ptr<sim::TraceSource> source = open_source(asked);
    each.report = require(sim::simulate(each.options, *source));
  }
  fmt::print("{}", sim::to_table(cases));
  if (!asked.json_file.empty()) write_file(asked.json_file, sim::to_json(cases));
  if (!asked.html_file.empty()) {
    write_file(asked.html_file,
               sim::to_html(cases, "quire simulate: " + (asked.trace.empty() ? asked.synthetic : asked.trace)));
  }
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto* command =
      app.add_subcommand("simulate", "Replay traffic through the scheduler and the KV cache, without a model");
  const auto asked = std::make_shared<Asked>();
  auto* source = command->add_option_group("traffic", "One of:")->require_option(1);
  source->add_option("--trace", asked->trace, "A trace: Azure CSV or Mooncake JSON lines, .gz too");
  source->add_option("--synthetic", asked->synthetic,
                     "Made-up traffic, name=number items with commas and no spaces: requests rate cv prompt prompt_cv "
                     "output output_cv "
                     "max shared groups keys seed");
  command->add_option("--speed", asked->speed, "Replay a trace so many times faster")->check(CLI::PositiveNumber);
  command->add_option("--cost", asked->costs,
                      "Files of quire bench steps --json or of a daemon's POST /admin/trace, or milliseconds: "
                      "base=8,stream=0.3,prompt=1,context=0.05,prompt_context=0.1");
  command->add_option("--set", asked->set,
                      "A setting: num_blocks=4000 (0: unbounded), block_size=, policy=, max_num_seqs=, ...");
  command->add_option("--sweep", asked->sweep,
                      "Settings to combine: --sweep num_blocks=1000,4000 --sweep max_num_seqs=64,256");
  command->add_option("--weight", asked->weights, "Under policy=fair: key=weight");
  command->add_option("--replicas", asked->num_replicas, "Machines in the fleet");
  command->add_option("--prefill-replicas", asked->num_prefill_replicas,
                      "Of these machines, those that compute prompts for the others, through the store of --shared");
  command->add_option("--route", asked->route, "round-robin, least-loaded or prefix");
  command->add_option("--shared", asked->shared_blocks,
                      "KV blocks in a store that the machines share; prices by --set shared_block_ms=, "
                      "shared_latency_ms=");
  command->add_option("--json", asked->json_file, "Write the report as JSON to this file");
  command->add_flag("--steps", asked->keeps_steps, "With --json: the batch of each step");
  command->add_option("--html", asked->html_file, "Write the report as one HTML page to this file");
  command->callback([asked] { run(*asked); });
}

}  // namespace quire::cli
