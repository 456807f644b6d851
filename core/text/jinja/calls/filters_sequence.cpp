#include <algorithm>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {

Value ignore_case(const Value& value) {
  return value.is_string() ? Value::string(to_lower(value.text())) : value;
}

Getter attribute_getter(Evaluator& evaluator, const Value& attribute, const Value* fallback) {
  std::vector<Value> parts;
  if (attribute.is_string()) {
    const std::string& path = attribute.bytes();
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      const std::string part = path.substr(begin, end - begin);
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      const auto index = digits ? parse_integer(part, 10) : std::nullopt;
      parts.push_back(index ? Value::integer(*index) : Value::string(part));
      begin = end + 1;
    }
  } else if (!attribute.is_none()) {
    parts.push_back(attribute);
  }
  const bool has_fallback = fallback != nullptr && !fallback->is_none();
  return [&evaluator, parts, has_fallback, other = fallback != nullptr ? *fallback : Value()](const Value& item) {
    Value value = item;
    for (const auto& part : parts) {
      value = evaluator.item(value, part);
      if (has_fallback && value.is_undefined()) value = other;
    }
    return value;
  };
}

namespace {

Value filter_list(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("list", arguments, "");
  return Value::list(evaluator.iterate(input));
}

Value filter_first(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("first", arguments, "");
  const Value none = Value::undefined("No first item, sequence was empty.");
  if (input.is_sequence(SequenceKind::kGenerator)) {
    const auto& generator = input.sequence();
    return generator.num_consumed < generator.items.size() ? generator.items[generator.num_consumed++] : none;
  }
  const auto items = evaluator.iterate(input);
  return items.empty() ? none : items.front();
}

Value filter_last(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("last", arguments, "");
  if (input.is_sequence(SequenceKind::kGenerator)) fail("'generator' object is not reversible");
  const auto items = evaluator.iterate(input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_join(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("join", arguments, "d,attribute");
  const Text separator = bound.has(0) ? to_text(evaluator, bound[0]) : Text();
  const auto getter = attribute_getter(evaluator, bound.value_or(1, Value::none()));
  Text out;
  bool first = true;
  for (const auto& item : evaluator.iterate(input)) {
    if (!first) out.append(separator);
    first = false;
    out.append(to_text(evaluator, getter(item)));
    evaluator.check_length(out.size());
  }
  evaluator.charge(out.size() / 32);
  return Value::string(std::move(out));
}

Value filter_reverse(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("reverse", arguments, "");
  if (input.is_string()) return slice(evaluator, input, Value::none(), Value::none(), Value::integer(-1));
  auto items = evaluator.iterate(input);
  std::reverse(items.begin(), items.end());
  const bool copied = input.is_undefined() || input.is_sequence(SequenceKind::kGenerator);
  return copied ? Value::list(std::move(items)) : Value::generator(std::move(items));
}

// Sorts by keys made once; the order is Python's, and stable in either direction.
std::vector<Value> sorted_by(Evaluator& evaluator, std::vector<Value> items, const Getter& key, bool reverse) {
  std::vector<std::pair<Value, std::size_t>> keys;
  for (std::size_t i = 0; i < items.size(); ++i)
    keys.emplace_back(key(items[i]), i);
  std::stable_sort(keys.begin(), keys.end(), [&evaluator, reverse](const auto& a, const auto& b) {
    evaluator.charge(1 + std::min(a.first.weight(), b.first.weight()));
    return reverse ? order(evaluator, b.first, a.first) < 0 : order(evaluator, a.first, b.first) < 0;
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const auto& entry : keys)
    sorted.push_back(items[entry.second]);
  return sorted;
}

// Makes a getter for each attribute between commas; the key is the list of the values they find.
Getter sort_key(Evaluator& evaluator, const Value& attribute, bool case_sensitive) {
  std::vector<Getter> getters;
  if (attribute.is_string()) {
    const Value parts = find_method(attribute, "split")(evaluator, attribute, {{Value::string(",")}, {}});
    for (const auto& part : parts.items())
      getters.push_back(attribute_getter(evaluator, part));
  } else {
    getters.push_back(attribute_getter(evaluator, attribute));
  }
  return [getters, case_sensitive](const Value& item) {
    std::vector<Value> key;
    for (const auto& getter : getters)
      key.push_back(case_sensitive ? getter(item) : ignore_case(getter(item)));
    return Value::list(std::move(key));
  };
}

Value filter_sort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("sort", arguments, "reverse,case_sensitive,attribute");
  const auto key = sort_key(evaluator, bound.value_or(2, Value::none()), bound.flag(1));
  return Value::list(sorted_by(evaluator, evaluator.iterate(input), key, bound.flag(0)));
}

Value filter_dictsort(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, "case_sensitive,by,reverse");
  const std::string by = bound.text(1, "key").bytes();
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!input.is_dict())
    fail(input.is_undefined() ? input.undefined_reason() : "dictsort needs a mapping, not " + type_name(input));
  const std::size_t index = by == "key" ? 0 : 1;
  const bool case_sensitive = bound.flag(0);
  const auto key = [index, case_sensitive](const Value& item) {
    return case_sensitive ? item.items()[index] : ignore_case(item.items()[index]);
  };
  const Value items = find_method(input, "items")(evaluator, input, {});
  return Value::list(sorted_by(evaluator, items.items(), key, bound.flag(2)));
}

Value filter_unique(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("unique", arguments, "case_sensitive,attribute");
  const auto getter = attribute_getter(evaluator, bound.value_or(1, Value::none()));
  Dict seen;
  std::vector<Value> kept;
  for (const auto& item : evaluator.iterate(input)) {
    const Value key = bound.flag(0) ? getter(item) : ignore_case(getter(item));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    kept.push_back(item);
  }
  return Value::generator(std::move(kept));
}

template <bool Largest>
Value filter_extreme(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound(Largest ? "max" : "min", arguments, "case_sensitive,attribute");
  const auto getter = attribute_getter(evaluator, bound.value_or(1, Value::none()));
  const auto items = evaluator.iterate(input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&bound, &getter](const Value& item) {
    return bound.flag(0) ? getter(item) : ignore_case(getter(item));
  };
  std::size_t best = 0;
  Value best_key = key_of(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (Largest ? compare(evaluator, ">", key, best_key) : compare(evaluator, "<", key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value filter_sum(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("sum", arguments, "attribute,start");
  const auto getter = attribute_getter(evaluator, bound.value_or(0, Value::none()));
  Value total = bound.value_or(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const auto& item : evaluator.iterate(input))
    total = binary(evaluator, "+", total, getter(item));
  return total;
}

Value filter_batch(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("batch", arguments, "linecount,fill_with", 1);
  const Integer size = bound.integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (auto& item : evaluator.iterate(input)) {
    if (static_cast<Integer>(batch.size()) == size) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (bound.has(1) && !bound[1].is_none() && size > static_cast<Integer>(batch.size())) {
      if (size > static_cast<Integer>(kMaxWeight)) fail("the batch size is too large");
      evaluator.charge(static_cast<std::size_t>(size));
      batch.resize(static_cast<std::size_t>(size), bound[1]);
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return Value::generator(std::move(batches));
}

Value filter_slice(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("slice", arguments, "slices,fill_with", 1);
  const auto items = evaluator.iterate(input);
  const Integer count = bound.integer(0, 1);
  if (count == 0) fail("integer division or modulo by zero");
  if (count > static_cast<Integer>(kMaxWeight)) fail("the number of slices is too large");
  const auto slices = static_cast<std::size_t>(std::max<Integer>(count, 0));
  evaluator.charge(slices);
  std::vector<Value> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const bool extra = i < items.size() % slices;
    const std::size_t end = begin + items.size() / slices + (extra ? 1 : 0);
    std::vector<Value> slice_items(items.begin() + static_cast<std::ptrdiff_t>(begin),
                                   items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!extra && bound.has(1) && !bound[1].is_none()) slice_items.push_back(bound[1]);
    out.push_back(Value::list(std::move(slice_items)));
    begin = end;
  }
  return Value::generator(std::move(out));
}

Value filter_groupby(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Bound bound("groupby", arguments, "attribute,default,case_sensitive", 1);
  const Value fallback = bound.value_or(1, Value::none());
  const auto getter = attribute_getter(evaluator, bound[0], &fallback);
  const bool case_sensitive = bound.flag(2);
  const auto key_of = [&getter, case_sensitive](const Value& item) {
    return case_sensitive ? getter(item) : ignore_case(getter(item));
  };
  const auto items = sorted_by(evaluator, evaluator.iterate(input), key_of, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < items.size();) {
    const Value key = key_of(items[begin]);
    std::size_t end = begin + 1;
    while (end < items.size() && equal(key_of(items[end]), key))
      ++end;
    std::vector<Value> members(items.begin() + static_cast<std::ptrdiff_t>(begin),
                               items.begin() + static_cast<std::ptrdiff_t>(end));
    groups.push_back(Value::sequence(SequenceKind::kGroup, {getter(items[begin]), Value::list(std::move(members))}));
    begin = end;
  }
  return Value::list(std::move(groups));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"list", filter_list},         {"first", filter_first},     {"last", filter_last},
    {"join", filter_join},         {"reverse", filter_reverse}, {"sort", filter_sort},
    {"dictsort", filter_dictsort}, {"unique", filter_unique},   {"min", filter_extreme<false>},
    {"max", filter_extreme<true>}, {"sum", filter_sum},         {"batch", filter_batch},
    {"slice", filter_slice},       {"groupby", filter_groupby},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace quire::jinja
