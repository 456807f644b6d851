#include <CLI/CLI.hpp>
#include <memory>

#include "core/base/log.h"
#include "server/cli/commands.h"
#include "server/serve.h"

namespace quire::cli {

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  auto log_options = std::make_shared<LogOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP");
  command->add_option("--model", options->model.path, "A GGUF file or a Hugging Face directory")->required();
  command->add_option("--alias", options->model.alias, "Names the model answers to");
  command->add_option("--host", options->server.host, "Address to listen on");
  command->add_option("--port", options->server.port, "Port to listen on; 0: any");
  command->add_option("--isa", options->backend.cpu.isa, "auto, scalar, avx2, avx512, amx");
  command->add_option("--threads", options->backend.cpu.threads, "Compute threads; 0: the cores there are");
  command->add_option("--max-num-seqs", options->engine.scheduler.max_num_seqs, "Sequences in one step");
  command->add_option("--max-num-batched-tokens", options->engine.scheduler.max_num_batched_tokens,
                      "Tokens in one step");
  command->add_option("--max-model-len", options->engine.scheduler.max_model_len,
                      "Tokens of one sequence; 0: the model's");
  command->add_option("--num-blocks", options->engine.kv_cache.num_blocks, "KV blocks; 0: as many as fit");
  command->add_option("--log-level", log_options->level, "trace, debug, info, warn, error, off");
  command->callback([options, log_options] {
    log::configure(*log_options);
    throw CLI::RuntimeError(serve(*options));
  });
}

}  // namespace quire::cli
