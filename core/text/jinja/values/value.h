// Value: a Python value inside a template. Copies are cheap and share. Immutable, except generators and objects, which
// belong to one rendering; so constants in a parsed template may be read by any thread. Invariants: nesting is at most
// kMaxNesting and the nodes reachable (shared ones counted each time) at most kMaxWeight, so that comparing, printing
// and destroying a value are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/text/jinja/values/text.h"

namespace quire::jinja {

// Python's integers are unbounded; arithmetic beyond 128 bits is an error. A longer integer of a request is a float
// that keeps its digits and is written with them.
__extension__ typedef __int128 Integer;

inline constexpr std::size_t kMaxNesting = 500;
inline constexpr std::size_t kMaxWeight = 16'000'000;

class Dict;
class Object;
class Value;
struct Sequence;

enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kSequence, kDict, kRange, kObject };

// A group is what `groupby` makes: a tuple whose members also have names.
enum class SequenceKind { kList, kTuple, kGroup, kGenerator, kDictKeys, kDictValues, kDictItems };

struct Range {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t size() const;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string reason);
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(Integer value) { return Value(Data(value)); }
  static Value count(std::size_t value) { return integer(static_cast<Integer>(value)); }
  static Value real(double value) { return Value(Data(Real{value, nullptr})); }
  static Value long_integer(std::string digits);
  static Value string(Text text, bool markup = false);
  static Value string(std::string_view trusted) { return string(Text(std::string(trusted), true)); }
  static Value sequence(SequenceKind kind, std::vector<Value> items);
  static Value list(std::vector<Value> items) { return sequence(SequenceKind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(SequenceKind::kTuple, std::move(items)); }
  static Value generator(std::vector<Value> items) { return sequence(SequenceKind::kGenerator, std::move(items)); }
  static Value dict(Dict dict);
  static Value range(Range range);
  static Value object(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_integral() const { return is_bool() || is_int(); }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_markup() const { return is_string() && std::get<String>(data_).markup; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_sequence(SequenceKind which) const;
  bool is_list() const { return is_sequence(SequenceKind::kList); }
  bool is_tuple() const { return is_sequence(SequenceKind::kTuple) || is_sequence(SequenceKind::kGroup); }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_range() const { return kind() == Kind::kRange; }
  bool is_object() const { return kind() == Kind::kObject; }

  // Each is valid for its kind only.
  const std::string& undefined_reason() const;
  bool as_bool() const { return std::get<bool>(data_); }
  Integer as_integer() const { return is_bool() ? static_cast<Integer>(as_bool()) : std::get<Integer>(data_); }
  double as_double() const { return is_float() ? std::get<Real>(data_).value : static_cast<double>(as_integer()); }
  // The digits of a long integer; null for other floats.
  const std::string* digits() const { return is_float() ? std::get<Real>(data_).digits.get() : nullptr; }
  const Text& text() const { return *std::get<String>(data_).text; }
  const std::string& bytes() const { return text().bytes(); }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const std::vector<Value>& items() const;
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const Range& range() const { return *std::get<std::shared_ptr<const Range>>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }

  std::size_t nesting() const;
  std::size_t weight() const;
  bool same_as(const Value& other) const;  // Python's `is`

 private:
  struct Undefined {
    std::shared_ptr<const std::string> reason;
  };
  struct None {};
  struct Real {
    double value = 0.0;
    std::shared_ptr<const std::string> digits;
  };
  struct String {
    std::shared_ptr<const Text> text;
    bool markup = false;
  };
  using Data = std::variant<Undefined, None, bool, Integer, Real, String, std::shared_ptr<const Sequence>,
                            std::shared_ptr<const Dict>, std::shared_ptr<const Range>, std::shared_ptr<Object>>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  std::size_t nesting = 1;
  std::size_t weight = 1;
  mutable std::size_t num_consumed = 0;  // a generator can be read once
};

inline bool Value::is_sequence(SequenceKind which) const {
  return is_sequence() && sequence().kind == which;
}
inline const std::vector<Value>& Value::items() const {
  return sequence().items;
}

// An insertion-ordered dict with Python's key equality (1, 1.0 and True are one key).
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  void set(Value key, Value value);           // fails on an unhashable key
  const Value* find(const Value& key) const;  // null for an unhashable key too
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  std::size_t nesting() const { return nesting_; }
  std::size_t weight() const { return weight_; }

 private:
  std::ptrdiff_t position_of(const Value& key) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash to entry, used from kIndexFrom entries on
  std::size_t nesting_ = 1;
  std::size_t weight_ = 1;
};

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
bool hashable(const Value& value);
std::size_t hash_of(const Value& value);  // requires a hashable value
// Python's name of the type: 'int', 'str', 'list', ...
std::string type_name(const Value& value);

}  // namespace quire::jinja
