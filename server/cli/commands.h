// The subcommands of `quire` other than `serve` and `tokenize`, each a function that adds itself to the command line.
// One thread at a time. A command's callback throws CLI::RuntimeError with the exit code if it fails, and StartupError
// for a bad model.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

void add_bench(CLI::App& app);
void add_completion(CLI::App& app);
void add_help(CLI::App& app);
void add_import(CLI::App& app);
void add_inspect(CLI::App& app);
void add_launch(CLI::App& app);
void add_man(CLI::App& app);
void add_models(CLI::App& app);
void add_probe(CLI::App& app);
void add_pull(CLI::App& app);
void add_simulate(CLI::App& app);
void add_recommend(CLI::App& app);
void add_run(CLI::App& app);
void add_synth(CLI::App& app);

}  // namespace quire::cli
