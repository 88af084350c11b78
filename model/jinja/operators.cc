// SPDX-License-Identifier: Apache-2.0
// Operators with Python's meaning. Integers have 64 bits; what needs more is an error.
#include <cmath>

#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"
#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

[[noreturn]] void fail_overflow() { fail("an integer goes beyond 64 bits"); }

const char* symbol(BinaryOperator op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<int>(op)];
}

Value divide_integers(BinaryOperator op, int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (op == BinaryOperator::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) return op == BinaryOperator::kModulo ? Value(int64_t{0}) : negative(Value(a));
  const int64_t rest = a % b;
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);  // round down, not towards zero
  if (op == BinaryOperator::kModulo) return Value(rest + (adjust ? b : 0));
  return Value(a / b - (adjust ? 1 : 0));
}

Value power_integers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return Value(result);
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

Value on_integers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kPower:
      return power_integers(a, b);
    default:
      return divide_integers(op, a, b);
  }
  if (overflow) fail_overflow();
  return Value(result);
}

Value on_doubles(BinaryOperator op, double a, double b) {
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kFloorDivide ||
                       op == BinaryOperator::kModulo;
  if (divides && b == 0) fail("float division by zero");
  switch (op) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kDivide:
      return Value(a / b);
    case BinaryOperator::kFloorDivide:
      return Value(std::floor(a / b));
    case BinaryOperator::kModulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    case BinaryOperator::kPower:
      break;
  }
  if (a < 0 && b != std::floor(b)) fail_unsupported("complex numbers are not supported");
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a number is too large");
  return Value(result);
}

Value add_texts(const Value& a, const Value& b, Budget& budget) {
  const bool escapes = a.text().markup != b.text().markup;  // as markupsafe has it
  if (!escapes) return Value(concatenate(a.text(), b.text(), budget));
  const TextPtr left = escape_html(a.text_ptr(), budget), right = escape_html(b.text_ptr(), budget);
  return Value(concatenate(*left, *right, budget));
}

Value repeat_sequence(const Sequence& list, int64_t times, Budget& budget) {
  std::vector<Value> items;
  if (times > 0 && !list.items.empty()) {
    const auto size = static_cast<int64_t>(list.items.size());
    int64_t total = 0;
    if (__builtin_mul_overflow(size, times, &total)) fail_limit("a list grows too long");
    budget.step(total);
    for (int64_t i = 0; i < times; ++i) {
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
  }
  return make_sequence(list.flavor, std::move(items));
}

// List or tuple; null otherwise.
const Sequence* plain_sequence(const Value& value) {
  const auto* list = value.sequence();
  return list && (*list)->flavor <= Flavor::kTuple ? list->get() : nullptr;
}

std::optional<Value> on_sequences(BinaryOperator op, const Value& a, const Value& b,
                                  Budget& budget) {
  const Sequence *x = plain_sequence(a), *y = plain_sequence(b);
  if (op == BinaryOperator::kAdd && x && y && x->flavor == y->flavor) {
    budget.step(static_cast<int64_t>(x->items.size() + y->items.size()));
    std::vector<Value> items = x->items;
    items.insert(items.end(), y->items.begin(), y->items.end());
    return make_sequence(x->flavor, std::move(items));
  }
  if (op == BinaryOperator::kMultiply) {
    if (x && b.is_integer()) return repeat_sequence(*x, b.integer(), budget);
    if (y && a.is_integer()) return repeat_sequence(*y, a.integer(), budget);
  }
  return std::nullopt;
}

}  // namespace

Value negative(const Value& value) {
  if (value.is_double()) return Value(-value.number());
  if (value.integer() == INT64_MIN) fail_overflow();
  return Value(-value.integer());
}

Value binary(BinaryOperator op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_integer() && b.is_integer()) return on_integers(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return on_doubles(op, a.number(), b.number());
  if (a.is_text() && op == BinaryOperator::kModulo) {
    return Value(format_percent(a.text(), b, budget));
  }
  if (a.is_text() && b.is_text() && op == BinaryOperator::kAdd) return add_texts(a, b, budget);
  if (op == BinaryOperator::kMultiply) {
    if (a.is_text() && b.is_integer()) return Value(repeat(a.text(), b.integer(), budget));
    if (b.is_text() && a.is_integer()) return Value(repeat(b.text(), a.integer(), budget));
  }
  if (auto result = on_sequences(op, a, b, budget)) return *std::move(result);
  require_defined(a);
  require_defined(b);
  fail(std::string("unsupported operand type(s) for ") + symbol(op) + ": '" + a.type_name() +
       "' and '" + b.type_name() + "'");
}

bool compare(Comparator comparator, const Value& a, const Value& b, Budget& budget) {
  switch (comparator) {
    case Comparator::kEqual:
      return equal(a, b, budget);
    case Comparator::kNotEqual:
      return !equal(a, b, budget);
    case Comparator::kIn:
      return contains(b, a, budget);
    case Comparator::kNotIn:
      return !contains(b, a, budget);
    case Comparator::kLess:
      return less(a, b, budget);
    case Comparator::kGreater:
      return less(b, a, budget);
    // Not the negation of the opposite: comparisons with NaN are all false.
    case Comparator::kLessEqual:
      return less(a, b, budget) || equal(a, b, budget);
    case Comparator::kGreaterEqual:
      return less(b, a, budget) || equal(a, b, budget);
  }
  return false;
}

namespace {

struct Bounds {
  int64_t start, stop, step;
};

std::optional<int64_t> slice_index(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (!value.is_integer()) {
    require_defined(value);
    fail("slice indices must be integers or None");
  }
  return value.integer();
}

// Python's rules for what is left out, negative, or outside.
Bounds bounds_of(const Value& start, const Value& stop, const Value& step, int64_t size) {
  Bounds bounds{};
  bounds.step = slice_index(step).value_or(1);
  if (bounds.step == 0) fail("slice step cannot be zero");
  const bool up = bounds.step > 0;
  const int64_t low = up ? 0 : -1, high = up ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> index, int64_t otherwise) {
    if (!index) return otherwise;
    if (*index < 0) return std::max(*index + size, low);
    return std::min(*index, high);
  };
  bounds.start = clamp(slice_index(start), up ? low : high);
  bounds.stop = clamp(slice_index(stop), up ? high : low);
  return bounds;
}

template <class Take>
void walk(const Bounds& bounds, Budget& budget, const Take& take) {
  for (int64_t at = bounds.start; bounds.step > 0 ? at < bounds.stop : at > bounds.stop;) {
    budget.step();
    take(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, bounds.step, &at)) return;
  }
}

Value slice_text(const TextPtr& text, const Bounds& bounds, Budget& budget) {
  if (bounds.start >= bounds.stop && bounds.step > 0) return Value::text("");
  const std::string_view bytes = text->bytes;
  budget.scan(bytes.size());
  if (bounds.step == 1) {
    const size_t begin = character_offset(bytes, static_cast<size_t>(bounds.start));
    const size_t count = static_cast<size_t>(bounds.stop - bounds.start);
    return Value(cut(text, begin, begin + character_offset(bytes.substr(begin), count), budget));
  }
  std::vector<size_t> offsets;  // of every character, and the end
  budget.step(static_cast<int64_t>(bytes.size() / 16));
  for (size_t at = 0; at < bytes.size(); ++at) {
    if ((bytes[at] & 0xC0) != 0x80) offsets.push_back(at);
  }
  offsets.push_back(bytes.size());
  TextBuilder out(budget);
  walk(bounds, budget, [&](size_t at) { out.append(*text, offsets[at], offsets[at + 1]); });
  return Value(out.take(text->markup));
}

}  // namespace

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step,
            Budget& budget) {
  require_defined(value);
  const auto* list = value.sequence();
  if (!value.is_text() && !(list && (*list)->indexable())) {
    fail(std::string("'") + value.type_name() + "' object cannot be sliced");
  }
  const Bounds bounds = bounds_of(start, stop, step, length(value, budget));
  if (value.is_text()) return slice_text(value.text_ptr(), bounds, budget);
  std::vector<Value> items;
  walk(bounds, budget, [&](size_t at) { items.push_back((*list)->items[at]); });
  return make_sequence((*list)->flavor, std::move(items));
}

}  // namespace cohort::jinja
