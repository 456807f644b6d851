// KernelPrograms: the functions that nvcc made of the kernels of kernel_list.h, by the kernels' names. Immutable after
// construction; any thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/ptx/machine/program.h"

namespace quire::ptx {

class KernelPrograms {
 public:
  // Throws PtxError where a text is not understood.
  explicit KernelPrograms(const std::vector<std::string>& texts);

  // Throws PtxError if there is none.
  const Function& of(const std::string& kernel) const;
  void replace(const std::string& kernel, Function function) { functions_[kernel] = std::move(function); }

 private:
  std::map<std::string, Function> functions_;
};

// The texts of all families, $QUIRE_PTX/*.ptx, in the order of their names; nothing if that is not set (run.sh sets
// it).
std::optional<std::vector<std::string>> emitted_texts();

// The name of the kernel that a function of nvcc is, by the function's mangled name. Throws PtxError.
std::string kernel_of(const std::string& function);

// The text of one kernel's function, of its family's text, with all that it refers to.
std::string text_of_kernel(const std::vector<std::string>& texts, const std::string& kernel);

}  // namespace quire::ptx
