#include <utf8proc.h>

#include <array>
#include <string>
#include <utility>

#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

// Long names of general categories (UAX #44), to the prefix of utf8proc's two-letter abbreviation.
constexpr std::array<std::pair<const char*, const char*>, 37> kCategories{{
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Private_Use", "Co"},
}};

bool is_category(const std::string& abbreviation) {
  for (const auto& [name, value] : kCategories) {
    if (abbreviation == value) return true;
  }
  return abbreviation == "Cn";
}

}  // namespace

CharSet class_escape(char32_t letter) {
  CharSet set;
  switch (letter | 0x20) {
    case 'd': set.add('0', '9'); break;
    case 'w':
      set.add('0', '9');
      set.add('A', 'Z');
      set.add('a', 'z');
      set.add('_', '_');
      break;
    default:
      for (const CodeRange range : {CodeRange{0x09, 0x0D},
                                    {0x20, 0x20},
                                    {0xA0, 0xA0},
                                    {0x1680, 0x1680},
                                    {0x2000, 0x200A},
                                    {0x2028, 0x2029},
                                    {0x202F, 0x202F},
                                    {0x205F, 0x205F},
                                    {0x3000, 0x3000},
                                    {0xFEFF, 0xFEFF}}) {
        set.add(range.lo, range.hi);
      }
  }
  return letter < 'a' ? set.complement() : set;
}

CharSet dot_set() {
  CharSet ends('\n', '\n');
  ends.add('\r', '\r');
  ends.add(0x2028, 0x2029);
  return ends.complement();
}

CharSet unicode_property(const std::string& name) {
  std::string wanted = name;
  for (const char* prefix : {"General_Category=", "gc="}) {
    if (wanted.starts_with(prefix)) wanted.erase(0, std::string(prefix).size());
  }
  if (wanted == "Any") return CharSet::any();
  if (wanted == "ASCII") return CharSet(0, 0x7F);
  for (const auto& [long_name, abbreviation] : kCategories) {
    if (wanted == long_name) wanted = abbreviation;
  }
  if (!is_category(wanted)) throw Refusal("the regex property \\p{" + name + "} is not supported");
  CharSet set;
  char32_t first = 0;
  bool inside = false;
  for (char32_t c = 0; c <= kMaxCodePoint + 1; ++c) {
    const bool member =
        c <= kMaxCodePoint &&
        std::string_view(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))).starts_with(wanted);
    if (member && !inside) first = c;
    if (!member && inside) set.add(first, c - 1);
    inside = member;
  }
  return set;
}

}  // namespace quire::grammar
