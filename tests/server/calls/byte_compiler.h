// byte_compiler: a GrammarCompiler for a vocabulary of bytes, as the tests' tokenizer has it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/grammar/compiler.h"
#include "tests/server/fake_tokenizer.h"

namespace quire::test {

inline GrammarCompiler byte_compiler() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes.emplace_back(1, static_cast<char>(byte));
  bytes.resize(260);
  return GrammarCompiler(std::make_shared<TokenVocabulary>(bytes, std::vector<TokenId>{kEos, kImEnd}));
}

}  // namespace quire::test
