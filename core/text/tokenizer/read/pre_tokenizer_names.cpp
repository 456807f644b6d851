#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/base/result.h"
#include "core/text/tokenizer/pre_tokenizer.h"

// The patterns are those of the published tokenizer.json files of the models named.
namespace quire {

namespace {

constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)|\\s+";
constexpr std::string_view kQwen35 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|"
    "'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
    "ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSeedCoder =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "
    "?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDigit = "\\p{N}";
constexpr std::string_view kUpToThreeDigits = "\\p{N}{1,3}";
constexpr std::string_view kFalconPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = "[\\r\\n]";
constexpr std::string_view kHanAndHangul = "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
constexpr std::string_view kPoro = " ?[^(\\s|.,!?…。，、।۔،)]+";
// Letters with case, in the Unicode version that DeepSeek's file was made with.
constexpr std::string_view kDeepseekLetters =
    "\\s?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+";
constexpr std::string_view kDeepseekPunctuation =
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
constexpr std::string_view kTrailingSpace = "\\s+$";
constexpr std::string_view kDigitRun = "\\p{N}+";
constexpr std::string_view kDeepseek3Cjk = "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr std::string_view kDeepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr std::string_view kKimiK2 =
    "\\p{Han}+"
    "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
    "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
    "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kYoutuScripts =
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"
    "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"
    "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr std::string_view kYoutu =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|"
    "'d)?"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
    "ll|'d)?"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// Scripts that are written without spaces.
constexpr std::string_view kAfmoeScripts =
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{"
    "FF9F}"
    "\\x{2F00}-\\x{2FDF}\\x{E00}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"
    "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+";
constexpr std::string_view kExaoneMoe =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kJais2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"
    "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}";
constexpr std::string_view kSpark =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kUfakzeka =
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";

// Grouping of digits before a recipe's patterns.
enum class Digits : std::uint8_t { kAsPatternsSay, kNumbers, kDecimals, kDecimalsAtWordEnd };

// A recipe is its patterns, applied one after another, each isolating its matches.
struct Recipe {
  std::array<std::string_view, 6> patterns;
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
  bool add_separator = false;
  Digits digits = Digits::kAsPatternsSay;
};

constexpr Recipe kGpt2Recipe{{kGpt2Pattern}};
constexpr Recipe kGpt2NfcRecipe{.patterns = {kGpt2Pattern}, .nfc = true};
constexpr Recipe kDigitsGpt2Recipe{{kDigit, kGpt2Pattern}};
constexpr Recipe kDigitsGpt2NfcRecipe{.patterns = {kDigit, kGpt2Pattern}, .nfc = true};
constexpr Recipe kLlama3Recipe{.patterns = {kLlama3}, .ignore_merges = true, .add_bos = true};
constexpr Recipe kLlama3PatternRecipe{{kLlama3}};
constexpr Recipe kQwen2Recipe{.patterns = {kQwen2}, .nfc = true};
constexpr Recipe kQwen2PatternRecipe{{kQwen2}};
constexpr Recipe kQwen35Recipe{.patterns = {kQwen35}, .nfc = true};
constexpr Recipe kTekkenRecipe{.patterns = {kTekken}, .ignore_merges = true, .add_bos = true};
constexpr Recipe kGpt4oRecipe{{kGpt4o}};
constexpr Recipe kBailingRecipe{{kBailing}};
constexpr Recipe kSeedCoderRecipe{{kSeedCoder}};
constexpr Recipe kFalconRecipe{{kFalconPunctuation, kGpt2Pattern, kThreeDigits}};
constexpr Recipe kDefaultRecipe{{"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2Pattern, kDigitRun, kThreeDigits}};
constexpr Recipe kDeepseekLlmRecipe{
    {kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kHanAndHangul, kDigitRun}};
constexpr Recipe kDeepseekCoderRecipe{{kLineBreak, "\\s?\\p{L}+", "\\s?\\p{P}+", kHanAndHangul, kDigit}};
constexpr Recipe kDeepseek3Recipe{{kUpToThreeDigits, kDeepseek3Cjk, kDeepseek3}};
constexpr Recipe kMinicpm5Recipe{.patterns = {kUpToThreeDigits, kLlama3}, .ignore_merges = true};
constexpr Recipe kPoroRecipe{{kPoro}};
constexpr Recipe kVikingRecipe{{kPoro, kDigit}};
constexpr Recipe kChameleonRecipe{.patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                               "([\\t\\n]|    |  )", kDigit, "[\\p{P}!-/:-@\\[-`{-~]", kGpt2Pattern},
                                  .add_bos = true};

constexpr Recipe kRobertaRecipe{.patterns = {kGpt2Pattern}, .add_separator = true};
constexpr Recipe kKimiK2Recipe{{kKimiK2}};
constexpr Recipe kYoutuRecipe{.patterns = {kYoutuScripts, kYoutu}, .ignore_merges = true};
constexpr Recipe kAfmoeRecipe{.patterns = {kAfmoeScripts, kDeepseek3}, .digits = Digits::kNumbers};
constexpr Recipe kTinyAyaRecipe{.patterns = {kGpt4o}, .digits = Digits::kDecimalsAtWordEnd};
constexpr Recipe kSuperBpeRecipe{.patterns = {kDigitRun}, .digits = Digits::kDecimals};
constexpr Recipe kExaoneMoeRecipe{{kExaoneMoe}};
constexpr Recipe kJais2Recipe{{kJais2}};
constexpr Recipe kSparkRecipe{{kUpToThreeDigits, kDeepseek3Cjk, kSpark, kDigit}};
constexpr Recipe kUfakzekaRecipe{{kUfakzeka}};
constexpr Recipe kLagunaRecipe{{kLines, kQwen2}};
constexpr Recipe kGraniteEmbeddingRecipe{.patterns = {kGpt4o}, .ignore_merges = true};

struct Named {
  std::string_view name;
  const Recipe* recipe;
};

constexpr std::array kNames{
    Named{"default", &kDefaultRecipe},
    Named{"gpt-2", &kGpt2Recipe},
    Named{"phi-2", &kGpt2Recipe},
    Named{"jina-es", &kGpt2Recipe},
    Named{"jina-de", &kGpt2Recipe},
    Named{"jina-v1-en", &kRobertaRecipe},
    Named{"jina-v2-es", &kGpt2Recipe},
    Named{"jina-v2-de", &kGpt2Recipe},
    Named{"jina-v2-code", &kRobertaRecipe},
    Named{"roberta-bpe", &kRobertaRecipe},
    Named{"gigachat", &kGpt2Recipe},
    Named{"a.x-4.0", &kGpt2Recipe},
    Named{"mellum", &kGpt2Recipe},
    Named{"exaone4", &kGpt2Recipe},
    Named{"jais", &kGpt2Recipe},
    Named{"trillion", &kGpt2Recipe},
    Named{"granite-docling", &kGpt2Recipe},
    Named{"mpt", &kGpt2NfcRecipe},
    Named{"olmo", &kGpt2NfcRecipe},
    Named{"modern-bert", &kGpt2NfcRecipe},
    Named{"starcoder", &kDigitsGpt2Recipe},
    Named{"refact", &kDigitsGpt2Recipe},
    Named{"smollm", &kDigitsGpt2Recipe},
    Named{"codeshell", &kDigitsGpt2Recipe},
    Named{"exaone", &kDigitsGpt2Recipe},
    Named{"minerva-7b", &kDigitsGpt2Recipe},
    Named{"command-r", &kDigitsGpt2NfcRecipe},
    Named{"llama3", &kLlama3Recipe},
    Named{"llama-v3", &kLlama3Recipe},
    Named{"llama-bpe", &kLlama3Recipe},
    Named{"falcon3", &kLlama3Recipe},
    Named{"falcon-h1", &kLlama3Recipe},
    Named{"pixtral", &kLlama3Recipe},
    Named{"midm-2.0", &kLlama3Recipe},
    Named{"lfm2", &kLlama3Recipe},
    Named{"dbrx", &kLlama3PatternRecipe},
    Named{"smaug-bpe", &kLlama3PatternRecipe},
    Named{"chatglm-bpe", &kLlama3PatternRecipe},
    Named{"glm4", &kLlama3PatternRecipe},
    Named{"qwen2", &kQwen2Recipe},
    Named{"deepseek-r1-qwen", &kQwen2Recipe},
    Named{"f2llmv2", &kQwen2Recipe},
    Named{"kormo", &kQwen2PatternRecipe},
    Named{"megrez", &kQwen2PatternRecipe},
    Named{"stablelm2", &kQwen2Recipe},
    Named{"hunyuan", &kQwen2PatternRecipe},
    Named{"solar-open", &kQwen2PatternRecipe},
    Named{"grok-2", &kQwen2PatternRecipe},
    Named{"qwen35", &kQwen35Recipe},
    Named{"tekken", &kTekkenRecipe},
    Named{"gpt-4o", &kGpt4oRecipe},
    Named{"llama4", &kGpt4oRecipe},
    Named{"kanana2", &kGpt4oRecipe},
    Named{"minimax-m2", &kGpt4oRecipe},
    Named{"bailingmoe", &kBailingRecipe},
    Named{"bailingmoe2", &kBailingRecipe},
    Named{"llada-moe", &kBailingRecipe},
    Named{"seed-coder", &kSeedCoderRecipe},
    Named{"falcon", &kFalconRecipe},
    Named{"deepseek-llm", &kDeepseekLlmRecipe},
    Named{"deepseek-coder", &kDeepseekCoderRecipe},
    Named{"deepseek-v3", &kDeepseek3Recipe},
    Named{"hunyuan-dense", &kDeepseek3Recipe},
    Named{"minicpm5", &kMinicpm5Recipe},
    Named{"poro-chat", &kPoroRecipe},
    Named{"bloom", &kPoroRecipe},
    Named{"gpt3-finnish", &kPoroRecipe},
    Named{"viking", &kVikingRecipe},
    Named{"chameleon", &kChameleonRecipe},
    Named{"kimi-k2", &kKimiK2Recipe},
    Named{"youtu", &kYoutuRecipe},
    Named{"afmoe", &kAfmoeRecipe},
    Named{"tiny_aya", &kTinyAyaRecipe},
    Named{"cohere2moe", &kTinyAyaRecipe},
    Named{"superbpe", &kSuperBpeRecipe},
    Named{"exaone-moe", &kExaoneMoeRecipe},
    Named{"jais-2", &kJais2Recipe},
    Named{"spark2_5", &kSparkRecipe},
    Named{"ufakzeka", &kUfakzekaRecipe},
    Named{"laguna", &kLagunaRecipe},
    Named{"granite-embed-multi-97m", &kGraniteEmbeddingRecipe},
    Named{"joyai-llm", &kDeepseek3Recipe},
    Named{"hy_v4", &kDeepseek3Recipe},
    Named{"mellum2", &kDigitsGpt2Recipe},
    Named{"talkie", &kGpt4oRecipe},
    Named{"jina-v5-nano", &kLlama3Recipe},
};

}  // namespace

NamedPreTokenizer make_pre_tokenizer(std::string_view name) {
  const auto* const found = std::find_if(kNames.begin(), kNames.end(), [&](const Named& n) { return n.name == name; });
  if (found == kNames.end()) {
    std::string known;
    for (const Named& each : kNames)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
    throw StartupError(
        fmt::format("the pre-tokenizer '{}' (tokenizer.ggml.pre) is not known; known are: {}", name, known));
  }
  const Recipe& recipe = *found->recipe;
  NamedPreTokenizer named;
  if (recipe.digits != Digits::kAsPatternsSay) {
    named.pre_tokenizer.add(PreTokenizer::DigitGroups{.any_number = recipe.digits == Digits::kNumbers,
                                                      .before_word_end = recipe.digits == Digits::kDecimalsAtWordEnd});
  }
  for (const std::string_view pattern : recipe.patterns) {
    if (!pattern.empty()) named.pre_tokenizer.add(PreTokenizer::Split{Regex::compile(pattern)});
  }
  named.ignore_merges = recipe.ignore_merges;
  named.add_bos = recipe.add_bos;
  named.nfc = recipe.nfc;
  named.add_separator = recipe.add_separator;
  return named;
}

}  // namespace quire
