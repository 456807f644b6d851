#include "core/grammar/json_schema/formats.h"

#include <array>
#include <cstdio>

#include "core/grammar/limits.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kMaxHostName = 253;

const char* const kDate =
    R"((?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))"
    R"(|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29))";
const char* const kIpv4 = R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

// A leap second is the last second of a day in UTC: with an offset it falls on another local time. Only offsets in
// whole quarters of an hour are in use.
std::string leap_seconds() {
  std::string result = R"(23:59:60(?:\.\d+)?[zZ])";
  for (int offset = 0; offset < 24 * 60; offset += 15) {
    for (const int sign : {1, -1}) {
      const int local = (23 * 60 + 59 + sign * offset + 24 * 60) % (24 * 60);
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), R"(|%02d:%02d:60(?:\.\d+)?\%c%02d:%02d)", local / 60, local % 60,
                    sign > 0 ? '+' : '-', offset / 60, offset % 60);
      result += text.data();
    }
  }
  return result;
}

std::string time_of_day() {
  return R"((?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)|)" + leap_seconds() +
         ")";
}

std::string duration() {
  const std::string time = R"(T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))";
  return R"(P(?:\d+W|(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:)" + time + ")?|" + time + ")";
}

std::string ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}";
  const std::string last = "(?:" + h + ":" + h + "|" + kIpv4 + ")";
  const auto groups = [&](const std::string& count) { return "(?:" + h + ":)" + count; };
  std::string result = "(?:" + groups("{6}") + last;
  result += "|::" + groups("{5}") + last;
  result += "|(?:" + h + ")?::" + groups("{4}") + last;
  result += "|(?:" + groups("{0,1}") + h + ")?::" + groups("{3}") + last;
  result += "|(?:" + groups("{0,2}") + h + ")?::" + groups("{2}") + last;
  result += "|(?:" + groups("{0,3}") + h + ")?::" + h + ":" + last;
  result += "|(?:" + groups("{0,4}") + h + ")?::" + last;
  result += "|(?:" + groups("{0,5}") + h + ")?::" + h;
  return result + "|(?:" + groups("{0,6}") + h + ")?::)";
}

// A label has hyphens as its third and fourth characters only if they announce Punycode.
std::string host_name() {
  const std::string alnum = "[a-zA-Z0-9]";
  const std::string inner = "[a-zA-Z0-9-]";
  const std::string puny = "[xX][nN]--" + alnum + "(?:" + inner + "{0,57}" + alnum + ")?";
  const std::string tail = inner + "{0,58}" + alnum;
  const std::string four = "(?:" + alnum + alnum + "|-" + alnum + ")(?:" + tail + ")?";
  const std::string label = "(?:" + alnum + "|" + alnum + alnum + "|" + alnum + inner + alnum + "|" + alnum + inner +
                            four + "|" + alnum + inner + alnum + "-" + tail + "|" + puny + ")";
  return label + "(?:\\." + label + ")*";
}

std::string email(bool international) {
  const std::string extra = international ? R"(\u0080-\u{10FFFF})" : "";
  const std::string atom = R"([a-zA-Z0-9!#$%&'*+/=?^_`{|}~)" + extra + R"(\-]+)";
  const std::string quoted = R"("(?:[ !#-\[\]-~)" + extra + R"(]|\\[ -~])*")";
  const std::string label =
      international
          ? R"([a-zA-Z0-9\u0080-\u{10FFFF}](?:[a-zA-Z0-9\u0080-\u{10FFFF}-]{0,61}[a-zA-Z0-9\u0080-\u{10FFFF}])?)"
          : R"([a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)";
  const std::string literal = R"(\[(?:)" + std::string(kIpv4) + "|IPv6:" + ipv6() + R"()\])";
  return "(?:" + atom + R"((?:\.)" + atom + ")*|" + quoted + ")@(?:" + label + R"((?:\.)" + label + ")*|" + literal +
         ")";
}

// The grammar of RFC 3986, or of RFC 3987 if `extra` holds the characters beyond ASCII.
class UriGrammar {
 public:
  explicit UriGrammar(bool international) {
    if (!international) return;
    extra_ = R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF)";
    for (int plane = 1; plane <= 14; ++plane) {
      std::array<char, 64> range{};
      std::snprintf(range.data(), range.size(), R"(\u{%X%s}-\u{%XFFFD})", static_cast<unsigned>(plane),
                    plane == 14 ? "1000" : "0000", static_cast<unsigned>(plane));
      extra_ += range.data();
    }
    private_ = R"(\uE000-\uF8FF\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD})";
  }

  std::string absolute() const {
    return R"([a-zA-Z][a-zA-Z0-9+.\-]*:(?://)" + authority() + "(?:/" + pchars("*") + ")*|/(?:" + pchars("+") + "(?:/" +
           pchars("*") + ")*)?|" + pchars("+") + "(?:/" + pchars("*") + ")*|)" + tail();
  }

  std::string reference() const {
    const std::string no_colon = "(?:[" + unreserved() + sub_delims() + "@]|" + kEscaped + ")+";
    return "(?:" + absolute() + "|(?://" + authority() + "(?:/" + pchars("*") + ")*|/(?:" + pchars("+") + "(?:/" +
           pchars("*") + ")*)?|" + no_colon + "(?:/" + pchars("*") + ")*|)" + tail() + ")";
  }

 private:
  static constexpr const char* kEscaped = "%[0-9a-fA-F]{2}";
  std::string unreserved() const { return R"(a-zA-Z0-9._~\-)" + extra_; }
  static std::string sub_delims() { return "!$&'()*+,;="; }
  std::string pchars(const std::string& count) const {
    return "(?:[" + unreserved() + sub_delims() + ":@]|" + kEscaped + ")" + count;
  }
  std::string authority() const {
    const std::string user = "(?:(?:[" + unreserved() + sub_delims() + ":]|" + kEscaped + ")*@)?";
    const std::string future = "[vV][0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:\\-]+";
    const std::string host =
        "(?:\\[(?:" + ipv6() + "|" + future + ")\\]|(?:[" + unreserved() + sub_delims() + "]|" + kEscaped + ")*)";
    return user + host + "(?::[0-9]*)?";
  }
  // Query and fragment.
  std::string tail() const {
    const std::string part = "(?:[" + unreserved() + sub_delims() + ":@/?";
    return "(?:\\?" + part + private_ + "]|" + kEscaped + ")*)?(?:#" + part + "]|" + kEscaped + ")*)?";
  }

  std::string extra_;
  std::string private_;
};

std::string uri_template() {
  const std::string varchar = "(?:[A-Za-z0-9_]|%[0-9a-fA-F]{2})";
  const std::string spec = varchar + "(?:\\.?" + varchar + ")*(?::[1-9][0-9]{0,3}|\\*)?";
  const std::string literal =
      R"([!#$&-;=?-\[\]_a-z~\u00A0-\uD7FF\uE000-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{10FFFD}]|%[0-9a-fA-F]{2})";
  return "(?:" + literal + R"(|\{[+#./;?&=,!@|]?)" + spec + "(?:," + spec + R"()*\})*)";
}

}  // namespace

std::optional<Format> find_format(std::string_view name) {
  const auto text = [](std::string regex) { return Format{std::move(regex), kUnbounded}; };
  if (name == "date") return text(kDate);
  if (name == "time") return text(time_of_day());
  if (name == "date-time") return text(std::string(kDate) + "[tT]" + time_of_day());
  if (name == "duration") return text(duration());
  if (name == "email") return text(email(false));
  if (name == "idn-email") return text(email(true));
  if (name == "hostname") return Format{host_name(), kMaxHostName};
  if (name == "ipv4") return text(kIpv4);
  if (name == "ipv6") return text(ipv6());
  if (name == "uuid") return text("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}");
  if (name == "uri") return text(UriGrammar(false).absolute());
  if (name == "uri-reference") return text(UriGrammar(false).reference());
  if (name == "iri") return text(UriGrammar(true).absolute());
  if (name == "iri-reference") return text(UriGrammar(true).reference());
  if (name == "uri-template") return text(uri_template());
  if (name == "json-pointer") return text(R"((?:/(?:[^~/]|~[01])*)*)");
  if (name == "relative-json-pointer") return text(R"((?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*))");
  if (name == "regex" || name == "idn-hostname") {
    throw Refusal("the format " + std::string(name) + " cannot be enforced");
  }
  return std::nullopt;
}

}  // namespace quire::grammar
