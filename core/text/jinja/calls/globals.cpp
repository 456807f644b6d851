// The global functions of a template: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <algorithm>
#include <ctime>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/repr.h"

namespace quire::jinja {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // Jinja2's sandbox

Value make_range(Evaluator&, const Arguments& arguments) {
  const Bound bound("range", arguments, "start,stop,step,/", 1);
  const auto bounded = [&bound](std::size_t index, Integer fallback) {
    const Integer limit = std::int64_t{1} << 40;
    return static_cast<std::int64_t>(std::clamp(bound.integer(index, fallback), -limit, limit));
  };
  Range range{bounded(0, 0), bounded(1, 0), bounded(2, 1)};
  if (!bound.has(1)) range = {0, range.start, 1};
  if (range.step == 0) fail("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return Value::range(range);
}

// dict() and namespace(): an optional mapping or sequence of pairs, then keywords.
Dict collect_members(Evaluator& evaluator, const Arguments& arguments) {
  Dict members;
  if (arguments.positional.size() > 1)
    fail("expected at most 1 argument, got " + std::to_string(arguments.positional.size()));
  for (const auto& source : arguments.positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().entries())
        members.set(key, value);
      continue;
    }
    for (const auto& item : evaluator.iterate(source)) {
      const auto pair = evaluator.iterate(item);
      if (pair.size() != 2) fail("dictionary update sequence elements must have length 2");
      members.set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.keywords)
    members.set(Value::string(name), value);
  evaluator.charge(members.size());
  return members;
}

Value make_dict(Evaluator& evaluator, const Arguments& arguments) {
  return Value::dict(collect_members(evaluator, arguments));
}

Value make_namespace(Evaluator& evaluator, const Arguments& arguments) {
  const auto space = evaluator.make_namespace();
  const Dict members = collect_members(evaluator, arguments);
  for (const auto& [key, value] : members.entries())
    space->set(key, value);
  return Value::object(space);
}

Value raise_exception(Evaluator& evaluator, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, "message", 1);
  fail(to_text(evaluator, bound[0]).bytes());
}

std::tm calendar_time(std::chrono::sys_seconds now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm calendar{};
  gmtime_r(&seconds, &calendar);
  return calendar;
}

// A naive datetime has no zone and here no microseconds; std::strftime does the rest in the C locale, as Python does.
Value strftime_now(Evaluator& evaluator, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, "format", 1);
  const std::string format = bound.text(0, "").bytes();
  std::string prepared;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') prepared += "000000";
    if (next == 'f' || next == 'z' || next == 'Z') {
      ++i;
    } else {
      prepared += format[i];
      if (next == '%') prepared += format[++i];
    }
  }
  if (prepared.size() > 1000) fail("the date format is too long");
  const std::tm calendar = calendar_time(evaluator.now());
  std::string out(prepared.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), prepared.c_str(), &calendar));
  return Value::string(out);
}

class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : Object(nesting_of(items)), items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }

  std::optional<Value> attribute(Evaluator&, std::string_view name) override {
    if (name == "current") return items_[position_];
    if (name != "next" && name != "reset") return std::nullopt;
    const bool advances = name == "next";
    const auto body = [self = shared_from_this(), advances](Evaluator&, const Arguments&) {
      if (!advances) return self->reset();
      const Value value = self->items_[self->position_];
      self->position_ = (self->position_ + 1) % self->items_.size();
      return value;
    };
    return Value::object(std::make_shared<Function>(std::string(name), body, "method", nesting() + 1));
  }

 private:
  Value reset() {
    position_ = 0;
    return Value::none();
  }

  std::vector<Value> items_;
  std::size_t position_ = 0;
};

Value make_cycler(Evaluator&, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(arguments.positional));
}

Value make_joiner(Evaluator& evaluator, const Arguments& arguments) {
  const Bound bound("joiner", arguments, "sep");
  const Value separator = Value::string(bound.has(0) ? to_text(evaluator, bound[0]) : Text(", ", true));
  const auto body = [separator, used = std::make_shared<bool>(false)](Evaluator&, const Arguments&) {
    return std::exchange(*used, true) ? separator : Value::string(Text());
  };
  return Value::object(std::make_shared<Function>("joiner", body, "Joiner"));
}

using GlobalBody = Value (*)(Evaluator&, const Arguments&);
struct GlobalEntry {
  std::string_view name;
  GlobalBody body;
};
constexpr GlobalEntry kGlobals[] = {
    {"range", make_range},          {"dict", make_dict},     {"namespace", make_namespace},
    {"cycler", make_cycler},        {"joiner", make_joiner}, {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  const auto found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                  [name](const GlobalEntry& entry) { return entry.name == name; });
  if (found == std::end(kGlobals)) return std::nullopt;
  return Value::object(std::make_shared<Function>(std::string(name), found->body, "function"));
}

}  // namespace quire::jinja
