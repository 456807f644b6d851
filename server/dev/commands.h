// The commands of `quire-dev`, each a function that adds itself to the command line; see server/cli/commands.h.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace quire::dev {

void add_api(CLI::App& app);
void add_architectures(CLI::App& app);
void add_grammar(CLI::App& app);
void add_parse_tools(CLI::App& app);
void add_render(CLI::App& app);
void add_tokenize(CLI::App& app);

}  // namespace quire::dev
