#include "core/grammar/cfg/argument_members.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

namespace {

// Most members whose order is free: each set of members seen so far is a rule of its own.
constexpr std::size_t kMostInAnyOrder = 6;
constexpr std::size_t kMostRequired = 60;

bool is_never(const Goal& goal) {
  return std::any_of(goal.begin(), goal.end(), [](const Literal& l) { return l.json == nullptr && l.negated; });
}

class Writer {
 public:
  Writer(const ObjectMembers& members, const MemberForm& form, Bodies& bodies)
      : members_(members), form_(form), bodies_(bodies) {
    const auto& named = members.named;
    const auto num_required = static_cast<std::size_t>(
        std::count_if(named.begin(), named.end(), [](const Member& member) { return member.required; }));
    in_order_ = num_required > kMostInAnyOrder;
    for (const Member& member : named)
      tracked_.push_back(named.size() <= kMostInAnyOrder || member.required);
    for (std::size_t i = 0; i < named.size(); ++i)
      pairs_.push_back(pair(named[i]));
    if (members.open) other_ = pair(members.other);
  }

  Expr run() {
    std::vector<Expr> all;
    if (met(0)) all.push_back(form_.none);
    if (!pairs_.empty() || members_.open) all.push_back(make_concat({form_.first, state(0)}));
    if (all.empty()) throw Refusal("no text satisfies the grammar");
    return make_alternate(std::move(all));
  }

 private:
  struct Pair {
    Expr followed, last;
  };

  Pair pair(const Member& member) { return {bodies_.add(form_.followed(member)), bodies_.add(form_.last(member))}; }

  std::uint64_t bit(std::size_t member) const { return tracked_[member] ? std::uint64_t{1} << places_of(member) : 0; }

  // Index of the member's bit: tracked members have consecutive bits.
  std::size_t places_of(std::size_t member) const {
    return static_cast<std::size_t>(
        std::count(tracked_.begin(), tracked_.begin() + static_cast<std::ptrdiff_t>(member), true));
  }

  // Whether the member may come next. Required members keep their order: exactly those before it have come.
  bool may_come(std::size_t member, std::uint64_t seen) const {
    const std::uint64_t own = bit(member);
    if ((seen & own) != 0) return false;
    if (!in_order_ || !tracked_[member]) return true;
    return seen == own - 1;
  }

  bool met(std::uint64_t seen) const {
    for (std::size_t i = 0; i < members_.named.size(); ++i) {
      if (members_.named[i].required && (seen & bit(i)) == 0) return false;
    }
    return true;
  }

  // Rule for the place where a member begins, after the members in `seen`.
  Expr state(std::uint64_t seen) {
    if (const auto known = states_.find(seen); known != states_.end()) return Bodies::call(known->second);
    const std::uint32_t place = bodies_.reserve();
    states_[seen] = place;
    std::vector<Expr> all;
    const auto add = [&](const Pair& written, std::uint64_t then) {
      if (met(then)) all.push_back(written.last);
      all.push_back(make_concat({written.followed, state(then)}));
    };
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (may_come(i, seen)) add(pairs_[i], seen | bit(i));
    }
    if (members_.open) add(other_, seen);
    bodies_.bodies[place] = all.empty() ? make_set(CharSet()) : make_alternate(std::move(all));
    return Bodies::call(place);
  }

  const ObjectMembers& members_;
  const MemberForm& form_;
  Bodies& bodies_;
  bool in_order_ = false;
  std::vector<bool> tracked_;  // by member; the others may be repeated
  std::vector<Pair> pairs_;    // by member
  Pair other_;
  std::map<std::uint64_t, std::uint32_t> states_;
};

}  // namespace

ObjectMembers ObjectMembers::of(const ObjectAlternative& object, const std::vector<std::u32string>& order, bool exact,
                                const std::string& pointer) {
  const bool has_patterns = std::any_of(object.every.begin(), object.every.end(),
                                        [](const NameRule& rule) { return !rule.names->patterns.empty(); });
  if (exact &&
      (has_patterns || !object.some.empty() || object.min > object.required.size() || object.max != kUnbounded)) {
    throw Refusal("in calls of this model an object can be held to named properties only", pointer);
  }
  std::vector<std::u32string> names = order;
  const auto add_name = [&names](const std::u32string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const NameRule& rule : object.every) {
    for (const std::u32string& name : rule.names->texts)
      add_name(name);
  }
  for (const std::u32string& name : object.required)
    add_name(name);
  ObjectMembers members;
  std::size_t num_required = 0;
  for (const std::u32string& name : names) {
    Member member{name, object.goal_of(name), object.required.contains(name)};
    if (member.required && ++num_required > kMostRequired) {
      if (exact) throw Refusal("an object requires too many properties for a call of this model", pointer);
      member.required = false;
    }
    if (!is_never(member.goal)) {
      members.named.push_back(std::move(member));
    } else if (member.required) {
      throw Refusal("a required property has no value", pointer);
    }
  }
  for (const NameRule& rule : object.every) {
    if (rule.names->negated && rule.names->patterns.empty()) add_literal(members.other.goal, rule.value);
  }
  members.open = !is_never(members.other.goal);
  return members;
}

Expr make_members(const ObjectMembers& members, const MemberForm& form, Bodies& bodies) {
  return Writer(members, form, bodies).run();
}

}  // namespace quire::grammar
