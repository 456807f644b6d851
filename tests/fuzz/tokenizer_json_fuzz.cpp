#include <cstddef>
#include <cstdint>
#include <string>

#include "core/text/detokenizer.h"
#include "core/text/tokenizer_data.h"
#include "core/text/unicode.h"
#include "kernels/check.h"
#include "tests/fuzz/refusal.h"

// A tokenizer.json: refused, or a tokenizer that encodes any text and whose decoding is valid UTF-8.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::TokenizerFiles files;
  files.tokenizer_json.assign(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = quire::make_tokenizer(files);
    quire::Detokenizer detokenizer(*tokenizer, {.skip_special_tokens = false, .at_text_start = true});
    std::string text;
    for (const quire::TokenId id :
         tokenizer->encode("Hey you, it's 12 \xC3\xA9\xF0\x9F\x98\x80 <s>\n\xFF", true, true)) {
      text += detokenizer.push(id);
    }
    text += detokenizer.finish();
    QUIRE_CHECK(quire::unicode::is_valid(text), "decoded text is valid");
  } catch (const quire::StartupError&) {
    // Its reader makes one bounded line of the message.
  }
  return 0;
}
