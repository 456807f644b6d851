// ModelReference: a model on a hub as a person writes it: OWNER/NAME[@REVISION][:WANTED]. Value type; any thread.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace quire::hub {

struct ModelReference {
  std::string repository;         // "OWNER/NAME"
  std::string revision = "main";  // a branch, a tag, or a commit
  std::string wanted;             // a quantisation such as "Q4_K_M", a GGUF file, or "safetensors"; empty: the usual

  // The text that parse_reference() reads.
  std::string text() const;
};

// Accepts a leading "hf.co/", "huggingface.co/" or a URL of either. Nothing in the result can climb out of a folder or
// break a URL.
Result<ModelReference> parse_reference(std::string_view text);

// Returns whether the text is a commit's full hash.
bool is_commit(std::string_view text);

// Returns whether a path stays in its repository: no "..", no leading slash, no control characters.
bool is_safe_path(std::string_view path);

}  // namespace quire::hub
