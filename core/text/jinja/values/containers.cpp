// Subscripts, slices and iteration of Python's containers.
#include <algorithm>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

std::optional<std::int64_t> slice_bound(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (value.is_undefined()) fail(value.undefined_reason());
  if (!value.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
  const Integer limit = std::int64_t{1} << 40;
  return static_cast<std::int64_t>(std::clamp(value.as_integer(), -limit, limit));
}

// The indices a slice picks out of `size` elements, as Python's slice.indices() does.
Range slice_range(std::int64_t size, const Value& start, const Value& stop, const Value& step) {
  Range range;
  range.step = slice_bound(step).value_or(1);
  if (range.step == 0) fail("slice step cannot be zero");
  const std::int64_t low = range.step > 0 ? 0 : -1;
  const std::int64_t high = range.step > 0 ? size : size - 1;
  const auto place = [size, low, high](std::optional<std::int64_t> bound, std::int64_t fallback) {
    if (!bound) return fallback;
    return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
  };
  range.start = place(slice_bound(start), range.step > 0 ? low : high);
  range.stop = place(slice_bound(stop), range.step > 0 ? high : low);
  return range;
}

Value slice_text(Evaluator& evaluator, const Value& value, const Value& start, const Value& stop, const Value& step) {
  const Text& text = value.text();
  evaluator.charge(text.size() / 32);
  const auto offsets = code_point_offsets(text.bytes());
  const Range range = slice_range(static_cast<std::int64_t>(offsets.size()) - 1, start, stop, step);
  const std::int64_t count = range.size();
  if (count == 0) return Value::string(Text(), value.is_markup());
  const auto offset = [&offsets](std::int64_t index) { return offsets[static_cast<std::size_t>(index)]; };
  if (range.step == 1)
    return Value::string(text.part(offset(range.start), offset(range.stop) - offset(range.start)), value.is_markup());
  Text out;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = range.at(i);
    out.append(text, offset(index), offset(index + 1) - offset(index));
  }
  return Value::string(std::move(out), value.is_markup());
}

std::optional<std::size_t> place_index(const Value& key, std::size_t size) {
  if (!key.is_integral()) return std::nullopt;
  Integer index = key.as_integer();
  if (index < 0) index += static_cast<Integer>(size);
  if (index < 0 || index >= static_cast<Integer>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> character_at(const Value& value, const Value& key) {
  const std::string& bytes = value.bytes();
  const auto index = place_index(key, num_code_points(bytes));
  if (!index) return std::nullopt;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < *index; ++i)
    next_code_point(bytes, begin);
  std::size_t end = begin;
  next_code_point(bytes, end);
  return Value::string(value.text().part(begin, end - begin), value.is_markup());
}

}  // namespace

Value slice(Evaluator& evaluator, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail(object.undefined_reason());
  if (object.is_string()) return slice_text(evaluator, object, start, stop, step);
  if (object.is_range()) {
    const Range& whole = object.range();
    const Range range = slice_range(whole.size(), start, stop, step);
    return Value::range({whole.at(range.start), whole.at(range.stop), whole.step * range.step});
  }
  if (!object.is_list() && !object.is_tuple())
    fail("'" + type_name(object) + "' object is not subscriptable by a slice");
  const auto& items = object.items();
  const Range range = slice_range(static_cast<std::int64_t>(items.size()), start, stop, step);
  std::vector<Value> out;
  for (std::int64_t i = 0; i < range.size(); ++i)
    out.push_back(items[static_cast<std::size_t>(range.at(i))]);
  evaluator.charge(out.size());
  return Value::sequence(object.sequence().kind, std::move(out));
}

std::optional<Value> subscript(const Value& object, const Value& key) {
  if (object.is_dict()) {
    const Value* found = object.dict().find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (object.is_string()) return character_at(object, key);
  if (object.is_object()) return object.object()->item(key);
  if (object.is_list() || object.is_tuple()) {
    const auto index = place_index(key, object.items().size());
    return index ? std::optional<Value>(object.items()[*index]) : std::nullopt;
  }
  if (object.is_range()) {
    const auto index = place_index(key, static_cast<std::size_t>(object.range().size()));
    if (index) return Value::integer(object.range().at(static_cast<std::int64_t>(*index)));
  }
  return std::nullopt;
}

Value undefined_member(const Value& object, const Value& key) {
  const std::string owner = object.is_none() ? "'None'" : "'" + type_name(object) + " object'";
  if (key.is_string()) return Value::undefined(owner + " has no attribute '" + key.bytes() + "'");
  if (key.is_int())
    return Value::undefined(owner + " has no element " + std::to_string(static_cast<std::int64_t>(key.as_integer())));
  return Value::undefined(owner + " has no such element");
}

std::vector<Value> characters(const Text& text) {
  std::vector<Value> out;
  const std::string& bytes = text.bytes();
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t begin = i;
    next_code_point(bytes, i);
    out.push_back(Value::string(text.part(begin, i - begin)));
  }
  return out;
}

std::vector<Value> iterate_value(Evaluator& evaluator, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return {};
    case Kind::kString:
      evaluator.charge(value.text().size() * 4);  // a character is much smaller than its value
      return characters(value.text());
    case Kind::kSequence: {
      const auto& sequence = value.sequence();
      if (sequence.kind != SequenceKind::kGenerator) return sequence.items;
      const std::size_t begin = std::exchange(sequence.num_consumed, sequence.items.size());
      return {sequence.items.begin() + static_cast<std::ptrdiff_t>(begin), sequence.items.end()};
    }
    case Kind::kDict: {
      std::vector<Value> keys;
      for (const auto& entry : value.dict().entries())
        keys.push_back(entry.first);
      return keys;
    }
    case Kind::kRange: {
      const Range& range = value.range();
      evaluator.charge(static_cast<std::size_t>(range.size()));
      std::vector<Value> out;
      for (std::int64_t i = 0; i < range.size(); ++i)
        out.push_back(Value::integer(range.at(i)));
      return out;
    }
    default: fail("'" + type_name(value) + "' object is not iterable");
  }
}

std::optional<std::size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return num_code_points(value.bytes());
    case Kind::kSequence:
      if (value.is_sequence(SequenceKind::kGenerator)) return std::nullopt;
      return value.items().size();
    case Kind::kDict: return value.dict().size();
    case Kind::kRange: return static_cast<std::size_t>(value.range().size());
    default: return std::nullopt;
  }
}

}  // namespace quire::jinja
