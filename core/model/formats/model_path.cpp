#include "core/model/formats/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/base/printable.h"
#include "core/base/result.h"

namespace quire {

namespace {

// "Qwen/Qwen2.5-0.5B-Instruct": an owner and a name, and no file of either.
bool looks_like_repository(const std::string& text) {
  const auto slashes = std::count(text.begin(), text.end(), '/');
  return slashes == 1 && !text.starts_with('/') && !text.starts_with('.') && !text.ends_with('/') &&
         !text.ends_with(".gguf") && !std::filesystem::exists(std::filesystem::path(text).parent_path());
}

}  // namespace

void require_model_path(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return;
  const std::string text = printable(path.string());
  if (looks_like_repository(text)) {
    throw StartupError(
        fmt::format("{0}: no such file; --hf {0} downloads and serves the Hugging Face repository of that name", text));
  }
  throw StartupError(fmt::format("{}: no such file or directory", text));
}

}  // namespace quire
