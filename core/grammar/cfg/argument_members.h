// ArgumentMembers: an object's members in any order, required ones included; a member is not repeated as far as rules
// can count. One thread at a time; throws Refusal. A form writes each member as a pair of rules: one for a member
// before another, one for the last member.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/grammar/cfg/arguments.h"
#include "core/grammar/json_schema/builder.h"

namespace quire::grammar {

struct Member {
  std::u32string name;  // empty: all other names
  Goal goal;
  bool required = false;
};

struct ObjectMembers {
  std::vector<Member> named;
  bool open = false;  // other names are allowed
  Member other;

  // The members that the alternative allows. exact: a keyword that rules cannot enforce is refused with the pointer.
  // `order`: the names' order, as far as it is known.
  static ObjectMembers of(const ObjectAlternative& object, const std::vector<std::u32string>& order, bool exact,
                          const std::string& pointer);
};

struct MemberForm {
  std::function<Expr(const Member&)> followed;  // a member and the text before the next one
  std::function<Expr(const Member&)> last;      // a member and the object's end
  Expr none;                                    // the end of an object without members
  Expr first;                                   // the text before the first member
};

Expr make_members(const ObjectMembers& members, const MemberForm& form, Bodies& bodies);

}  // namespace quire::grammar
