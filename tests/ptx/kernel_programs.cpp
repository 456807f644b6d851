#include "tests/ptx/kernel_programs.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "kernels/gpu/kernel_list.h"
#include "tests/ptx/machine/read_module.h"

namespace quire::ptx {
namespace {

// Extracts "quire::gpu::Rope" from a mangled name, or a function's.
std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : name;
}

// The kernels' names by the type that kernel_entry is an instance of.
std::map<std::string, std::string> kernels_by_type() {
  std::map<std::string, std::string> out;
  const auto visit = [&](const char* name, auto instance) {
    out[demangled(typeid(typename decltype(instance)::Type).name())] = name;
  };
  gpu::visit_linear_skinny(visit);
  gpu::visit_linear_wide(visit);
  gpu::visit_linear_half(visit);
  gpu::visit_rows(visit);
  gpu::visit_attention(visit);
  gpu::visit_draw(visit);
  gpu::visit_recurrent(visit);
  gpu::visit_attention_tiles(visit);
  return out;
}

// The type in kernel_entry<...> of a function's name.
std::string type_of(const std::string& function) {
  const std::string name = demangled(function);
  const std::size_t begin = name.find("kernel_entry<");
  const std::size_t end = name.find(">(", begin);
  if (begin == std::string::npos || end == std::string::npos) throw PtxError("not an entry of a kernel: " + name);
  std::string type = name.substr(begin + 13, end - begin - 13);
  if (type.ends_with(' ')) type.pop_back();
  return type;
}

}  // namespace

KernelPrograms::KernelPrograms(const std::vector<std::string>& texts) {
  const std::map<std::string, std::string> kernels = kernels_by_type();
  for (const std::string& text : texts) {
    for (Function& function : read_module(text).functions) {
      const auto found = kernels.find(type_of(function.name));
      if (found == kernels.end()) throw PtxError("a kernel that is not in the list: " + function.name);
      functions_[found->second] = std::move(function);
    }
  }
}

const Function& KernelPrograms::of(const std::string& kernel) const {
  const auto found = functions_.find(kernel);
  if (found == functions_.end()) throw PtxError("no PTX of kernel " + kernel);
  return found->second;
}

std::string kernel_of(const std::string& function) {
  const std::map<std::string, std::string> kernels = kernels_by_type();
  const auto found = kernels.find(type_of(function));
  if (found == kernels.end()) throw PtxError("a kernel that is not in the list: " + function);
  return found->second;
}

std::optional<std::vector<std::string>> emitted_texts() {
  const char* const folder = std::getenv("QUIRE_PTX");
  if (folder == nullptr) return std::nullopt;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> out;
  for (const std::filesystem::path& file : files) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    out.push_back(text.str());
  }
  return out;
}

std::string text_of_kernel(const std::vector<std::string>& texts, const std::string& kernel) {
  const std::map<std::string, std::string> kernels = kernels_by_type();
  for (const std::string& text : texts) {
    const std::size_t first = text.find(".visible .entry ");
    for (std::size_t at = first; at != std::string::npos; at = text.find(".visible .entry ", at + 1)) {
      const std::size_t name = at + 16;
      const auto found = kernels.find(type_of(text.substr(name, text.find('(', name) - name)));
      if (found == kernels.end() || found->second != kernel) continue;
      return text.substr(0, first) + text.substr(at, text.find("\n}", at) + 3 - at);
    }
  }
  throw PtxError("no PTX of kernel " + kernel);
}

}  // namespace quire::ptx
