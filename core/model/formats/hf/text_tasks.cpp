#include "core/model/formats/hf/text_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/ascii.h"
#include "core/base/result.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {
namespace {

using nlohmann::json;

// The prompt that Qwen3-Reranker was trained on; its chat template lacks it.
constexpr const char* kYesNoPrompt =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. "
    "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
    "{instruction}\n<Query>: "
    "{query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

bool names_a_reranker(std::string_view name) {
  return lowered(name).find("reranker") != std::string::npos;
}

// Finds the answer tokens of a generating model whose name says reranker.
void find_answers(const std::string& name, const Tokenizer& tokenizer, TextTasks& tasks) {
  const auto yes = tokenizer.find_token("yes");
  const auto no = tokenizer.find_token("no");
  if (!names_a_reranker(name) || !yes || !no || !tokenizer.find_token("<|im_start|>")) return;
  tasks.answers = {*yes, *no};
  if (tasks.pair_prompt.empty()) tasks.pair_prompt = kYesNoPrompt;
}

TextTasks from_gguf(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  const auto file = GgufFile::open(path);
  TextTasks tasks;
  const auto architecture = std::string(file->get_string("general.architecture").value_or(""));
  if (const auto* labels = file->get_strings(architecture + ".classifier.output_labels"))
    tasks.labels.assign(labels->begin(), labels->end());
  tasks.pair_prompt = file->get_string("tokenizer.chat_template.rerank").value_or("");
  // A classifier's file has this pooling type; its labels are then yes and no.
  if (file->get_int(architecture + ".pooling_type").value_or(0) != 4) {
    find_answers(std::string(file->get_string("general.name").value_or("")) + path.stem().string(), tokenizer, tasks);
  } else if (tasks.pair_prompt.empty() && tasks.labels == std::vector<std::string>{"yes", "no"} &&
             tokenizer.find_token("<|im_start|>")) {
    tasks.pair_prompt = kYesNoPrompt;
  }
  return tasks;
}

void read_labels(const json& config, TextTasks& tasks) {
  const auto names = config.find("id2label");
  if (names == config.end() || !names->is_object()) return;
  for (std::size_t id = 0; id < names->size(); ++id) {
    const auto name = names->find(std::to_string(id));
    if (name == names->end() || !name->is_string()) return tasks.labels.clear();
    tasks.labels.push_back(name->get<std::string>());
  }
}

bool generates(const json& config) {
  const auto classes = config.find("architectures");
  return classes != config.end() && classes->is_array() && !classes->empty() && classes->front().is_string() &&
         classes->front().get_ref<const std::string&>().find("ForCausalLM") != std::string::npos;
}

TextTasks from_directory(const std::filesystem::path& directory, const Tokenizer& tokenizer) {
  TextTasks tasks;
  if (const auto config = read_json_file(directory / "config.json")) {
    read_labels(*config, tasks);
    if (generates(*config)) find_answers(directory.filename().string(), tokenizer, tasks);
  }
  const auto path = directory / "config_sentence_transformers.json";
  const auto texts = read_json_file(path);
  if (!texts || !texts->contains("prompts")) return tasks;
  for (const auto& [name, prompt] : texts->at("prompts").items()) {
    if (!prompt.is_string()) throw StartupError(fmt::format("{}: the prompt '{}' is no text", path.string(), name));
    tasks.prompts.emplace_back(name, prompt.get<std::string>());
  }
  return tasks;
}

}  // namespace

TextTasks read_text_tasks(const std::filesystem::path& path, const Tokenizer& tokenizer) {
  return std::filesystem::is_directory(path) ? from_directory(path, tokenizer) : from_gguf(path, tokenizer);
}

}  // namespace quire
