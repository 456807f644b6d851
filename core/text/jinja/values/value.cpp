#include "core/text/jinja/values/value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/object.h"

namespace quire::jinja {
namespace {

constexpr std::size_t kIndexFrom = 12;

void check_bounds(std::size_t nesting, std::size_t weight) {
  if (nesting > kMaxNesting) fail("a value is nested more than " + std::to_string(kMaxNesting) + " deep");
  if (weight > kMaxWeight) fail("a value has more than " + std::to_string(kMaxWeight) + " parts");
}

const std::shared_ptr<const Text>& empty_text() {
  static const auto kEmpty = std::make_shared<const Text>();
  return kEmpty;
}

}  // namespace

std::int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Value::undefined(std::string reason) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(reason))}));
}

Value Value::long_integer(std::string digits) {
  if (const auto integer = parse_integer(digits, 10)) return Value::integer(*integer);
  const double value = std::strtod(digits.c_str(), nullptr);
  return Value(Data(Real{value, std::make_shared<const std::string>(std::move(digits))}));
}

Value Value::string(Text text, bool markup) {
  if (text.empty()) return Value(Data(String{empty_text(), markup}));
  return Value(Data(String{std::make_shared<const Text>(std::move(text)), markup}));
}

Value Value::sequence(SequenceKind kind, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const auto& item : items) {
    sequence->nesting = std::max(sequence->nesting, item.nesting() + 1);
    sequence->weight += item.weight();
  }
  sequence->items = std::move(items);
  check_bounds(sequence->nesting, sequence->weight);
  return Value(Data(std::shared_ptr<const Sequence>(std::move(sequence))));
}

Value Value::dict(Dict dict) {
  check_bounds(dict.nesting(), dict.weight());
  return Value(Data(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(dict)))));
}

Value Value::range(Range range) {
  return Value(Data(std::make_shared<const Range>(range)));
}

Value Value::object(std::shared_ptr<Object> object) {
  check_bounds(object->nesting(), 1);
  return Value(Data(std::move(object)));
}

const std::string& Value::undefined_reason() const {
  static const std::string kUnnamed = "value is undefined";
  const auto& reason = std::get<Undefined>(data_).reason;
  return reason ? *reason : kUnnamed;
}

std::size_t Value::nesting() const {
  if (is_sequence()) return sequence().nesting;
  if (is_object()) return object()->nesting();
  return is_dict() ? dict().nesting() : 0;
}

std::size_t Value::weight() const {
  if (is_sequence()) return sequence().weight;
  if (is_dict()) return dict().weight();
  return is_string() ? 1 + text().size() / 32 : 1;
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kSequence: return &sequence() == &other.sequence();
    case Kind::kDict: return &dict() == &other.dict();
    case Kind::kObject: return object() == other.object();
    case Kind::kUndefined: return true;
    default: return equal(*this, other);
  }
}

std::ptrdiff_t Dict::position_of(const Value& key) const {
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (equal(entries_[i].first, key)) return static_cast<std::ptrdiff_t>(i);
    }
    return -1;
  }
  const auto [begin, end] = index_.equal_range(hash_of(key));
  for (auto at = begin; at != end; ++at) {
    if (equal(entries_[at->second].first, key)) return static_cast<std::ptrdiff_t>(at->second);
  }
  return -1;
}

void Dict::set(Value key, Value value) {
  if (!hashable(key)) fail("unhashable type: '" + type_name(key) + "'");
  nesting_ = std::max({nesting_, value.nesting() + 1, key.nesting() + 1});
  weight_ += key.weight() + value.weight();
  if (const auto position = position_of(key); position >= 0) {
    entries_[static_cast<std::size_t>(position)].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash_of(entries_.back().first), entries_.size() - 1);
  } else if (entries_.size() > kIndexFrom) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      index_.emplace(hash_of(entries_[i].first), i);
  }
}

const Value* Dict::find(const Value& key) const {
  if (!hashable(key)) return nullptr;
  const auto position = position_of(key);
  return position < 0 ? nullptr : &entries_[static_cast<std::size_t>(position)].second;
}

const Value* Dict::find(std::string_view key) const {
  return find(Value::string(key));
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_integer() != 0;
    case Kind::kFloat: return value.as_double() != 0.0;
    case Kind::kString: return !value.text().empty();
    case Kind::kSequence: return value.is_sequence(SequenceKind::kGenerator) || !value.items().empty();
    case Kind::kDict: return value.dict().size() != 0;
    case Kind::kRange: return value.range().size() != 0;
    case Kind::kObject: return true;
  }
  return false;
}

namespace {

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
  return a.as_double() == b.as_double();
}

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == SequenceKind::kGenerator || a.kind == SequenceKind::kDictValues) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&b](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size() != b.size()) return false;
  return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString: return a.bytes() == b.bytes();
    case Kind::kSequence: return equal_sequences(a.sequence(), b.sequence());
    case Kind::kDict: return equal_dicts(a.dict(), b.dict());
    case Kind::kRange: return equal_ranges(a.range(), b.range());
    case Kind::kObject: return a.object() == b.object();
    default: return true;
  }
}

bool hashable(const Value& value) {
  if (value.is_dict() || value.is_list()) return false;
  return !value.is_tuple() || std::all_of(value.items().begin(), value.items().end(), hashable);
}

std::size_t hash_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt: return std::hash<double>{}(static_cast<double>(value.as_integer()));
    case Kind::kFloat: return std::hash<double>{}(value.as_double());
    case Kind::kString: return std::hash<std::string>{}(value.bytes());
    case Kind::kSequence: {
      std::size_t hash = value.items().size();
      for (const auto& item : value.items())
        hash = hash * 1'000'003 + hash_of(item);
      return hash;
    }
    case Kind::kObject: return std::hash<const void*>{}(value.object().get());
    default: return static_cast<std::size_t>(value.kind());
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return value.digits() == nullptr ? "float" : "int";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kSequence: {
      static constexpr const char* kNames[] = {"list",      "tuple",       "_GroupTuple", "generator",
                                               "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<std::size_t>(value.sequence().kind)];
    }
    case Kind::kDict: return "dict";
    case Kind::kRange: return "range";
    case Kind::kObject: return std::string(value.object()->type_name());
  }
  return {};
}

}  // namespace quire::jinja
