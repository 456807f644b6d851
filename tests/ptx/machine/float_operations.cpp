
#include "tests/ptx/machine/operations.h"

namespace quire::ptx {
namespace {

// A NaN gives way to a number, and minus zero is below zero.
float smaller(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float larger(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
bool unordered(T a, T b) {
  return std::isnan(a) || std::isnan(b);
}

template <class T>
void add_float_comparisons(Operations& out, const std::string& type) {
  const auto add = [&](const std::string& relation, Handler run) {
    out["setp." + relation + "." + type] = {run, Kind::kSelect};
  };
  add("eq", &binary<T, [](T a, T b) { return a == b; }>);
  add("ne", &binary<T, [](T a, T b) { return a < b || b < a; }>);
  add("lt", &binary<T, [](T a, T b) { return a < b; }>);
  add("le", &binary<T, [](T a, T b) { return a <= b; }>);
  add("gt", &binary<T, [](T a, T b) { return b < a; }>);
  add("ge", &binary<T, [](T a, T b) { return a >= b; }>);
  add("equ", &binary<T, [](T a, T b) { return unordered(a, b) || a == b; }>);
  add("neu", &binary<T, [](T a, T b) { return unordered(a, b) || a != b; }>);
  add("ltu", &binary<T, [](T a, T b) { return unordered(a, b) || a < b; }>);
  add("leu", &binary<T, [](T a, T b) { return unordered(a, b) || a <= b; }>);
  add("gtu", &binary<T, [](T a, T b) { return unordered(a, b) || b < a; }>);
  add("geu", &binary<T, [](T a, T b) { return unordered(a, b) || a >= b; }>);
  add("num", &binary<T, [](T a, T b) { return !unordered(a, b); }>);
  add("nan", &binary<T, [](T a, T b) { return unordered(a, b); }>);
}

// Counted apart from the arithmetic in f32, which the designs of kernels count.
void add_double_operations(Operations& out) {
  out["add.rn.f64"] = {&binary<double, [](double a, double b) { return a + b; }>, Kind::kInteger};
  out["sub.rn.f64"] = {&binary<double, [](double a, double b) { return a - b; }>, Kind::kInteger};
  out["mul.rn.f64"] = {&binary<double, [](double a, double b) { return a * b; }>, Kind::kInteger};
  add_float_comparisons<double>(out, "f64");
}

}  // namespace

void add_float_operations(Operations& out) {
  out["add.rn.f32"] = {&binary<float, [](float a, float b) { return a + b; }>, Kind::kFloat};
  out["sub.rn.f32"] = {&binary<float, [](float a, float b) { return a - b; }>, Kind::kFloat};
  out["mul.rn.f32"] = {&binary<float, [](float a, float b) { return a * b; }>, Kind::kFloat};
  out["fma.rn.f32"] = {&ternary<float, [](float a, float b, float c) { return std::fma(a, b, c); }>, Kind::kFloat};
  out["div.rn.f32"] = {&binary<float, [](float a, float b) { return a / b; }>, Kind::kFloat};
  out["rcp.rn.f32"] = {&unary<float, [](float a) { return 1.0f / a; }>, Kind::kFloat};
  out["sqrt.rn.f32"] = {&unary<float, [](float a) { return std::sqrt(a); }>, Kind::kFloat};
  out["neg.f32"] = {&unary<float, [](float a) { return -a; }>, Kind::kFloat};
  out["abs.f32"] = {&unary<float, [](float a) { return std::fabs(a); }>, Kind::kFloat};
  out["min.f32"] = {&binary<float, &smaller>, Kind::kFloat};
  out["max.f32"] = {&binary<float, &larger>, Kind::kFloat};
  add_float_comparisons<float>(out, "f32");
  add_double_operations(out);
}

}  // namespace quire::ptx
