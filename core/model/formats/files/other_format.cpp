#include "core/model/formats/files/model_path.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/base/ascii.h"

namespace quire {

namespace {

using namespace std::string_view_literals;

constexpr std::size_t kLooked = 512;

struct Beginning {
  std::string_view bytes;
  const char* sentence;
};
constexpr const char* kOldGgml = "it is a GGML file of the time before GGUF: convert the model again";
constexpr const char* kArchive = "it is a compressed archive: unpack it first";
constexpr Beginning kBeginnings[] = {
    {"version https://git-lfs.github.com/spec/",
     "it is a Git LFS pointer, not the file itself: run 'git lfs pull' in its repository, or download it again"},
    {"PK\x03\x04", "it is a zip archive, as PyTorch's checkpoints are: convert the model to safetensors or GGUF"},
    {"\x80\x02",
     "it is a pickle of Python, as older PyTorch checkpoints are: convert the model to safetensors or GGUF"},
    {"lmgg", kOldGgml},
    {"fmgg", kOldGgml},
    {"tjgg", kOldGgml},
    {"algg", kOldGgml},
    {"\x1F\x8B", kArchive},
    {"\x28\xB5\x2F\xFD", kArchive},
    {"\xFD"
     "7zXZ",
     kArchive},
};

bool is_page(std::string_view text) {
  const std::string lower = lowered(text.substr(0, text.find('\0')));
  return lower.starts_with("<!doctype html") || lower.starts_with("<html") ||
         (lower.starts_with("<") && lower.find("<html") != std::string::npos);
}

bool is_text(std::string_view head) {
  return std::ranges::all_of(
      head, [](unsigned char c) { return c >= 0x20 ? c != 0x7F : c == '\n' || c == '\r' || c == '\t'; });
}

// Eight bytes with a length below 2^32, then a JSON object.
bool is_safetensors(std::string_view head) {
  return head.size() > 8 && head.substr(4, 4) == "\0\0\0\0"sv && head[8] == '{';
}

}  // namespace

std::string other_format(std::span<const std::byte> bytes, FileFormat wanted) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLooked));
  const auto* const known =
      std::ranges::find_if(kBeginnings, [&](const Beginning& row) { return head.starts_with(row.bytes); });
  if (known != std::end(kBeginnings)) return known->sentence;
  const std::size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string_view text = head.substr(first);
  if (is_page(text))
    return "it is an HTML page, which a server sent in place of the file: download it again, with a token if its "
           "repository asks for one";
  const auto is = [&](FileFormat format, bool looks_like) { return wanted != format && looks_like; };
  if (is(FileFormat::kGguf, head.starts_with("GGUF")))
    return "it is a GGUF file under another name: give its path as the model";
  if (is(FileFormat::kSafetensors, is_safetensors(head)))
    return "it is a safetensors file: give the path of the folder that holds it and its config.json";
  if (is(FileFormat::kJson, text.starts_with("{") && is_text(head)))
    return "it is a JSON file: give the path of the folder that holds it, or download the file again";
  if (wanted != FileFormat::kJson && head.size() >= 16 && is_text(head))
    return "it is a text, such as a server's error message: download the file again";
  if (head.size() >= 64 && head.find_first_not_of('\0') == std::string_view::npos)
    return "it begins with zeros, as an unfinished download does: download it again";
  return "";
}

}  // namespace quire
