// SPDX-License-Identifier: Apache-2.0
// Filters that make numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"

namespace cohort::jinja {
namespace {

// Without white space around it and single underscores between digits.
std::string bare_number(const Value& value, Budget& budget) {
  std::string text = strip(value.text_ptr(), Side::kBoth, std::nullopt, budget)->bytes;
  std::string out;
  const auto digit = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out += text[i];
  }
  return out;
}

std::optional<int64_t> parse_integer(const Value& value, int64_t base, Budget& budget) {
  std::string text = bare_number(value, budget);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.erase(0, 2);
  if (base == 8 && (text.starts_with("0o") || text.starts_with("0O"))) text.erase(0, 2);
  if (base == 2 && (text.starts_with("0b") || text.starts_with("0B"))) text.erase(0, 2);
  if (base < 2 || base > 36) fail("int() base must be >= 2 and <= 36");
  if (text.starts_with('-') || text.empty()) return std::nullopt;
  int64_t result = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), result, static_cast<int>(base));
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) fail("an integer goes beyond 64 bits");
  return negative ? -result : result;
}

std::optional<double> parse_double(const Value& value, Budget& budget) {
  std::string text = bare_number(value, budget);
  if (text.starts_with('+')) text.erase(0, 1);
  if (text.empty() || text.starts_with('+') || text.find('(') != std::string::npos) {
    return std::nullopt;
  }
  double result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);
  return result;
}

std::optional<double> to_double(const Value& value, Budget& budget) {
  require_defined(value);
  if (value.is_number()) return value.number();
  return value.is_text() ? parse_double(value, budget) : std::nullopt;
}

Value int_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("int", arguments, {"default", "base"});
  const Value otherwise = given[0] ? *given[0] : Value(int64_t{0});
  Budget& budget = interpreter.budget();
  if (value.is_integer()) return Value(value.integer());
  if (value.is_text()) {
    if (const auto parsed = parse_integer(value, given.integer(1, 10), budget))
      return Value(*parsed);
  }
  const std::optional<double> number = to_double(value, budget);
  if (!number || !std::isfinite(*number)) return otherwise;
  if (std::fabs(*number) >= 9.2e18) fail("an integer goes beyond 64 bits");
  return Value(static_cast<int64_t>(*number));
}

Value float_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("float", arguments, {"default"});
  if (const auto number = to_double(value, interpreter.budget())) return Value(*number);
  return given[0] ? *given[0] : Value(0.0);
}

Value abs_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters given("abs", arguments, {});
  require_defined(value);
  if (!value.is_number())
    fail(std::string("bad operand type for abs(): '") + value.type_name() + "'");
  if (value.is_double()) return Value(std::fabs(value.number()));
  return value.integer() < 0 ? negative(value) : Value(value.integer());
}

// Decimal digits decide, with the exact binary value: as Python's round().
double round_to(double value, int precision) {
  if (precision < 0) {
    const double unit = std::pow(10.0, -precision);
    return std::nearbyint(value / unit) * unit;
  }
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.*f", precision, value);
  return std::strtod(digits, nullptr);
}

Value round_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("round", arguments, {"precision", "method"});
  require_defined(value);
  if (!value.is_number()) fail(std::string("round() needs a number, not ") + value.type_name());
  const std::string method =
      given[1] ? to_text(*given[1], interpreter.budget())->bytes : std::string("common");
  const int precision = static_cast<int>(std::clamp<int64_t>(given.integer(0, 0), -30, 30));
  if (method == "common") {
    if (value.is_integer() && precision >= 0) return Value(value.integer());
    const double rounded = round_to(value.number(), precision);
    return value.is_integer() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, precision), scaled = value.number() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr NamedFilter kFilters[] = {
    {"int", int_filter}, {"float", float_filter}, {"abs", abs_filter}, {"round", round_filter}};

}  // namespace

Filter find_number_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.run;
  }
  return nullptr;
}

}  // namespace cohort::jinja
