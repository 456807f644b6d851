#include "tests/ptx/machine/read_module.h"

#include <algorithm>
#include <charconv>

#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The first word, removed from the text.
std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

// Splits at commas outside of brackets.
std::vector<std::string_view> split_operands(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != ',' || depth > 0) continue;
    out.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (!trimmed(text.substr(begin)).empty()) out.push_back(trimmed(text.substr(begin)));
  return out;
}

template <class T>
T number_of(std::string_view digits, int base) {
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw PtxError("not a number: " + std::string(digits));
  return value;
}

std::uint64_t immediate_of(std::string_view text) {
  if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D"))
    return number_of<std::uint64_t>(text.substr(2), 16);
  if (text.ends_with("U")) text.remove_suffix(1);
  if (text.starts_with("0x")) return number_of<std::uint64_t>(text.substr(2), 16);
  if (text.starts_with("-")) return static_cast<std::uint64_t>(number_of<std::int64_t>(text, 10));
  return number_of<std::uint64_t>(text, 10);
}

// Width in bits; 0 if the type is not a register's.
int width_of(std::string_view type) {
  if (type == ".pred") return 1;
  if (type == ".b64" || type == ".u64" || type == ".s64" || type == ".f64") return 64;
  if (type == ".b32" || type == ".u32" || type == ".s32" || type == ".f32") return 32;
  if (type == ".b16" || type == ".u16" || type == ".s16" || type == ".f16") return 16;
  return type == ".b8" || type == ".u8" || type == ".s8" ? 8 : 0;
}

std::uint64_t mask_of(int bits) {
  return bits == 64 ? ~0ULL : (1ULL << bits) - 1;
}

using Symbols = std::map<std::string, std::uint64_t, std::less<>>;

// Reads one function's body, statement by statement.
class FunctionReader {
 public:
  FunctionReader(Function& out, const Symbols& symbols) : out_(out), symbols_(symbols) {}

  void statement(std::string_view text, int line);
  void label(std::string_view name);
  void finish();

 private:
  struct Register {
    int number;
    int bits;
  };

  void declare(std::string_view type, std::string_view names);
  void declare_local(std::string_view text);
  int add_register(std::string_view name, int bits);
  int width_of_register(int number) const;
  int operand(std::string_view text);
  int constant(std::uint64_t value);
  Address address(std::string_view text);
  void operands(std::string_view text, Instruction& in);
  void instruction(std::string_view text, int line);

  Function& out_;
  Symbols symbols_;
  std::map<std::string, Register, std::less<>> registers_;
  std::vector<int> widths_;  // width of each register, by number
  std::map<std::uint64_t, int> constants_;
  std::map<std::string, int, std::less<>> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;  // instruction, label
};

int FunctionReader::add_register(std::string_view name, int bits) {
  const auto [found, is_new] = registers_.try_emplace(std::string(name), Register{out_.num_registers, bits});
  if (is_new) {
    ++out_.num_registers;
    widths_.resize(static_cast<std::size_t>(out_.num_registers), 64);
    widths_.back() = bits;
  }
  if (found->second.bits != bits) throw PtxError("a register of two types: " + std::string(name));
  return found->second.number;
}

// Constants and special registers are as wide as any.
int FunctionReader::width_of_register(int number) const {
  const auto index = static_cast<std::size_t>(number);
  return index < widths_.size() ? widths_[index] : 64;
}

// "%r<10>" stands for %r0 to %r9.
void FunctionReader::declare(std::string_view type, std::string_view names) {
  const int bits = width_of(type);
  if (bits == 0) throw PtxError("registers of an unknown type: " + std::string(type));
  for (const std::string_view name : split_operands(names)) {
    const std::size_t bracket = name.find('<');
    if (bracket == std::string_view::npos) {
      add_register(name, bits);
      continue;
    }
    const int count = number_of<int>(name.substr(bracket + 1, name.find('>') - bracket - 1), 10);
    for (int i = 0; i < count; ++i)
      add_register(std::string(name.substr(0, bracket)) + std::to_string(i), bits);
  }
}

// ".align 16 .b8 name[16]"
void FunctionReader::declare_local(std::string_view text) {
  const std::size_t bracket = text.find('[');
  if (bracket == std::string_view::npos) throw PtxError("local memory without a size");
  std::string_view before = trimmed(text.substr(0, bracket));
  before = trimmed(before.substr(before.find_last_of(kBlanks)));
  out_.local_bytes = (out_.local_bytes + 15) / 16 * 16;
  symbols_[std::string(before)] = static_cast<std::uint64_t>(out_.local_bytes);
  out_.local_bytes += number_of<int>(text.substr(bracket + 1, text.find(']') - bracket - 1), 10);
}

int FunctionReader::constant(std::uint64_t value) {
  const auto [found, is_new] = constants_.try_emplace(value, out_.num_registers);
  if (is_new) out_.constants.push_back({out_.num_registers++, value});
  return found->second;
}

int FunctionReader::operand(std::string_view text) {
  static constexpr std::string_view kSpecials[] = {"%tid.x",  "%tid.y",   "%tid.z",   "%ntid.x",
                                                   "%laneid", "%ctaid.x", "%ctaid.y", "%ctaid.z"};
  if (std::ranges::find(kSpecials, text) != std::end(kSpecials)) {
    const auto [found, is_new] = out_.specials.try_emplace(std::string(text), out_.num_registers);
    if (is_new) ++out_.num_registers;
    return found->second;
  }
  if (const auto found = registers_.find(text); found != registers_.end()) return found->second.number;
  if (const auto found = symbols_.find(text); found != symbols_.end()) return constant(found->second);
  return constant(immediate_of(text));
}

// "base", "base+offset"; the offset may have a sign of its own.
Address FunctionReader::address(std::string_view text) {
  const std::size_t plus = text.find('+');
  if (plus == std::string_view::npos) return {operand(trimmed(text)), 0};
  return {operand(trimmed(text.substr(0, plus))), number_of<std::int64_t>(trimmed(text.substr(plus + 1)), 10)};
}

void FunctionReader::operands(std::string_view text, Instruction& in) {
  for (const std::string_view part : split_operands(text)) {
    if (part.front() == '[') {
      in.addresses[in.num_addresses++] = address(part.substr(1, part.size() - 2));
    } else if (part.front() == '{') {
      for (const std::string_view element : split_operands(part.substr(1, part.size() - 2)))
        in.registers.push_back(operand(element));
    } else if (const std::size_t bar = part.find('|'); bar != std::string_view::npos) {
      in.registers.push_back(operand(trimmed(part.substr(0, bar))));
      in.registers.push_back(operand(trimmed(part.substr(bar + 1))));
    } else {
      in.registers.push_back(operand(part));
    }
  }
}

void FunctionReader::instruction(std::string_view text, int line) {
  Instruction in;
  in.line = line;
  in.text = text;
  if (text.front() == '@') {
    std::string_view guard = take_word(text).substr(1);
    in.guard_negated = guard.front() == '!';
    if (in.guard_negated) guard.remove_prefix(1);
    in.guard = operand(guard);
  }
  std::string opcode(take_word(text));
  if (opcode.starts_with("mov.") && text.find('{') != std::string_view::npos)
    opcode = (text.front() == '{' ? "unpack." : "pack.") + opcode.substr(4);
  const auto found = operations().find(opcode);
  if (found == operations().end()) throw PtxError("an unknown instruction: " + opcode);
  const Operation& operation = found->second;
  in.run = operation.run;
  in.kind = operation.kind;
  in.flow = operation.flow;
  in.space = operation.space;
  in.bytes = operation.bytes;
  in.is_signed = operation.is_signed;
  in.elements = operation.elements;
  const bool meets = in.flow == Flow::kCollective || in.flow == Flow::kBlockBarrier;
  if (in.guard >= 0 && meets) throw PtxError("a collective instruction under a predicate");
  if (in.flow == Flow::kBranch) {
    branches_.emplace_back(out_.instructions.size(), std::string(text));
  } else {
    operands(text, in);
    if (operation.has_member_mask) in.member_mask = in.registers.back();
  }
  if (!in.registers.empty()) in.dest_mask = mask_of(width_of_register(in.registers[0]));
  out_.instructions.push_back(std::move(in));
}

void FunctionReader::label(std::string_view name) {
  labels_[std::string(name)] = static_cast<int>(out_.instructions.size());
}

void FunctionReader::statement(std::string_view text, int line) {
  try {
    if (text.front() != '.') return instruction(text, line);
    const std::string_view word = take_word(text);
    if (word == ".reg") {
      const std::string_view type = take_word(text);
      declare(type, text);
    } else if (word == ".local") {
      declare_local(text);
    } else if (word != ".pragma" && word != ".loc") {
      throw PtxError("an unknown directive: " + std::string(word));
    }
  } catch (const PtxError& error) {
    throw PtxError("line " + std::to_string(line) + ": " + error.what());
  }
}

void FunctionReader::finish() {
  for (const auto& [number, name] : branches_) {
    const auto found = labels_.find(name);
    if (found == labels_.end()) throw PtxError(out_.name + ": a branch to an unknown label: " + name);
    out_.instructions[number].target = found->second;
  }
  const bool ends = !out_.instructions.empty() && out_.instructions.back().flow != Flow::kNext;
  if (!ends) throw PtxError(out_.name + ": does not end");
}

// Reads the whole text: declarations between functions, and their bodies.
class ModuleReader {
 public:
  explicit ModuleReader(std::string_view text) : text_(without_comments(text)) {}

  Module read() {
    while (at_ < text_.size()) {
      const std::size_t end = text_.find_first_of(";{", at_);
      if (end == std::string::npos) break;
      const std::string_view header = std::string_view(text_).substr(at_, end - at_);
      move_to(end + 1);
      if (text_[end] == ';') {
        declare(header);
      } else {
        read_function(header);
      }
    }
    return std::move(out_);
  }

 private:
  // Comments become blanks, so that lines keep their numbers.
  static std::string without_comments(std::string_view text) {
    std::string out(text);
    for (std::size_t i = 0; i + 1 < out.size(); ++i) {
      if (out[i] != '/' || (out[i + 1] != '/' && out[i + 1] != '*')) continue;
      const bool is_line = out[i + 1] == '/';
      const std::size_t found = out.find(is_line ? "\n" : "*/", i + 2);
      const std::size_t end = std::min(out.size(), is_line ? found : found + 2);
      std::replace_if(
          out.begin() + static_cast<std::ptrdiff_t>(i), out.begin() + static_cast<std::ptrdiff_t>(end),
          [](char c) { return c != '\n'; }, ' ');
      i = end - 1;
    }
    return out;
  }

  void move_to(std::size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  // ".extern .shared .align 16 .b8 name[]" after the lines of version and target.
  void declare(std::string_view text) {
    const std::size_t shared = text.find(".shared");
    const std::size_t bracket = text.find("[]");
    if (shared == std::string_view::npos || bracket == std::string_view::npos)
      throw PtxError("line " + std::to_string(line_) + ": an unknown declaration: " + std::string(trimmed(text)));
    std::string_view name = trimmed(text.substr(0, bracket));
    name = name.substr(name.find_last_of(kBlanks) + 1);
    symbols_[std::string(name)] = kSharedBase;
  }

  // ".param .align 8 .b8 name[72]" or ".param .u64 name", each after the one before.
  static void add_param(std::string_view text, Function& function, Symbols& symbols) {
    int alignment = 0;
    int bytes = 0;
    std::string_view word;
    while (!text.empty()) {
      word = take_word(text);
      if (word == ".align") alignment = number_of<int>(take_word(text), 10);
      if (width_of(word) > 0) bytes = width_of(word) / 8;
    }
    if (alignment == 0) alignment = bytes;
    if (const std::size_t bracket = word.find('['); bracket != std::string_view::npos) {
      bytes *= number_of<int>(word.substr(bracket + 1, word.size() - bracket - 2), 10);
      word = word.substr(0, bracket);
    }
    if (bytes == 0) throw PtxError("an argument of an unknown type: " + std::string(word));
    function.param_bytes = (function.param_bytes + alignment - 1) / alignment * alignment;
    symbols[std::string(word)] = static_cast<std::uint64_t>(function.param_bytes);
    function.param_bytes += bytes;
  }

  void read_function(std::string_view header) {
    const std::size_t entry = header.find(".entry");
    const std::size_t open = header.find('(');
    if (entry == std::string_view::npos) throw PtxError("line " + std::to_string(line_) + ": not a kernel");
    Function function;
    Symbols symbols = symbols_;
    function.name = trimmed(header.substr(entry + 6, std::min(open, header.size()) - entry - 6));
    if (open != std::string_view::npos) {
      for (const std::string_view param : split_operands(header.substr(open + 1, header.find(')') - open - 1)))
        add_param(param, function, symbols);
    }
    FunctionReader reader(function, symbols);
    read_body(reader);
    reader.finish();
    out_.functions.push_back(std::move(function));
  }

  // Braces that begin a statement are scopes of inline assembly.
  void read_body(FunctionReader& reader) {
    int depth = 1;
    while (depth > 0) {
      const std::size_t begin = text_.find_first_not_of(kBlanks, at_);
      if (begin == std::string::npos) throw PtxError("a function does not end");
      move_to(begin);
      if (text_[begin] == '{' || text_[begin] == '}') {
        depth += text_[begin] == '{' ? 1 : -1;
        move_to(begin + 1);
        continue;
      }
      const std::size_t end = text_.find_first_of(";:", begin);
      if (end == std::string::npos) throw PtxError("a statement does not end");
      const std::string_view text = std::string_view(text_).substr(begin, end - begin);
      if (text_[end] == ':') {
        reader.label(trimmed(text));
      } else {
        reader.statement(trimmed(text), line_);
      }
      move_to(end + 1);
    }
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  Module out_;
  Symbols symbols_;
};

}  // namespace

Module read_module(std::string_view text) {
  return ModuleReader(text).read();
}

}  // namespace quire::ptx
