// TextTasks: what a model's files say about embedding, scoring and classifying texts: the prefixes of inputs, the form
// of a pair, the names of labels. Plain values; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer.h"

namespace quire {

struct TextTasks {
  std::int64_t num_labels = 0;      // labels of its classifier; 0: none
  std::vector<std::string> labels;  // the labels' names, if the file has them
  // The text around a pair, with {query}, {document} and perhaps {instruction} in it; empty: the tokenizer's own form.
  std::string pair_prompt;
  // The tokens of "yes" and "no": a model without classifier that was trained to answer with them.
  std::optional<std::pair<TokenId, TokenId>> answers;
  std::vector<std::pair<std::string, std::string>> prompts;  // text before an input, by name ("query")
};

// `path`: a GGUF file or a Hugging Face directory. Throws StartupError with one line that begins with the path.
TextTasks read_text_tasks(const std::filesystem::path& path, const Tokenizer& tokenizer);

}  // namespace quire
