// ArgumentMembers: an object's members in any order, each at most once as far as that is held, with the required ones
// among them. One thread at a time; throws Refusal. Members that a form writes come as pairs of rules: followed by
// another member, or by the object's end.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/grammar/cfg/arguments.h"
#include "core/grammar/json_schema/builder.h"

namespace quire::grammar {

struct Member {
  std::u32string name;  // empty: any other name
  Goal goal;
  bool required = false;
};

struct ObjectMembers {
  std::vector<Member> named;
  bool open = false;  // others are allowed
  Member other;

  // What the alternative allows; exact: what cannot be held is refused with the pointer. `order`: of names, as far as
  // it is known.
  static ObjectMembers of(const ObjectAlternative& object, const std::vector<std::u32string>& order, bool exact,
                          const std::string& pointer);
};

struct MemberForm {
  std::function<Expr(const Member&)> followed;  // a member and what stands before the next one
  std::function<Expr(const Member&)> last;      // a member and the object's end
  Expr none;                                    // the object's end where it has no member
  Expr first;                                   // what stands before the first member
};

Expr make_members(const ObjectMembers& members, const MemberForm& form, Bodies& bodies);

}  // namespace quire::grammar
