// SPDX-License-Identifier: Apache-2.0
// Tests: `value is name(argument)`.
#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"

namespace cohort::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value& value, const Value* argument);

int64_t integer_of(const Value& value) {
  require_defined(value);
  if (!value.is_integer()) fail(std::string("a number is needed, not ") + value.type_name());
  return value.integer();
}

bool has_remainder(Interpreter& interpreter, const Value& value, const Value& divisor,
                   int64_t remainder) {
  const Value rest = binary(BinaryOperator::kModulo, value, divisor, interpreter.budget());
  return equal(rest, Value(remainder), interpreter.budget());
}

bool same(Interpreter& interpreter, const Value& value, const Value* other) {
  if (std::string_view(value.type_name()) != other->type_name()) return false;
  if (value.dict()) return *value.dict() == *other->dict();
  if (value.sequence()) return *value.sequence() == *other->sequence();
  return equal(value, *other, interpreter.budget());
}

bool question(Interpreter& interpreter, const Value& value, const char* method) {
  const Value text = call_filter(interpreter, "string", value, {});
  return interpreter.call(interpreter.attribute(text, method), {}).truthy();
}

template <Comparator comparator>
bool compares(Interpreter& interpreter, const Value& value, const Value* other) {
  return compare(comparator, value, *other, interpreter.budget());
}

struct NamedTest {
  std::string_view name;
  bool takes_argument;
  Test run;
};

#define COHORT_JINJA_TEST(name, expression)                                       \
  {                                                                               \
    name, false, [](Interpreter& interpreter, const Value& value, const Value*) { \
      (void)interpreter;                                                          \
      return bool(expression);                                                    \
    }                                                                             \
  }

constexpr NamedTest kTests[] = {
    COHORT_JINJA_TEST("defined", !value.is_undefined()),
    COHORT_JINJA_TEST("undefined", value.is_undefined()),
    COHORT_JINJA_TEST("none", value.is_none()),
    COHORT_JINJA_TEST("string", value.is_text()),
    COHORT_JINJA_TEST("mapping", value.dict()),
    COHORT_JINJA_TEST("number", value.is_number()),
    COHORT_JINJA_TEST("integer", value.is_integer() && !value.is_bool()),
    COHORT_JINJA_TEST("float", value.is_double()),
    COHORT_JINJA_TEST("boolean", value.is_bool()),
    COHORT_JINJA_TEST("true", value.is_bool() && value.integer()),
    COHORT_JINJA_TEST("false", value.is_bool() && !value.integer()),
    COHORT_JINJA_TEST("iterable", is_iterable(value)),
    COHORT_JINJA_TEST("sequence", value.is_undefined() || value.is_text() || value.dict() ||
                                      (value.sequence() && (*value.sequence())->indexable())),
    COHORT_JINJA_TEST("callable",
                      value.is_undefined() || (value.object() && (*value.object())->callable())),
    COHORT_JINJA_TEST("odd", has_remainder(interpreter, value, Value(int64_t{2}), 1)),
    COHORT_JINJA_TEST("even", has_remainder(interpreter, value, Value(int64_t{2}), 0)),
    COHORT_JINJA_TEST("lower", question(interpreter, value, "islower")),
    COHORT_JINJA_TEST("upper", question(interpreter, value, "isupper")),
    COHORT_JINJA_TEST("escaped", value.is_text() && value.text().markup),
    COHORT_JINJA_TEST("filter", value.is_text() && is_filter(value.text().bytes)),
    COHORT_JINJA_TEST("test", value.is_text() && is_test(value.text().bytes)),
    {"divisibleby", true,
     [](Interpreter& interpreter, const Value& value, const Value* divisor) {
       (void)integer_of(*divisor);
       return has_remainder(interpreter, value, *divisor, 0);
     }},
    {"sameas", true, same},
    {"in", true, compares<Comparator::kIn>},
    {"eq", true, compares<Comparator::kEqual>},
    {"equalto", true, compares<Comparator::kEqual>},
    {"==", true, compares<Comparator::kEqual>},
    {"ne", true, compares<Comparator::kNotEqual>},
    {"!=", true, compares<Comparator::kNotEqual>},
    {"lt", true, compares<Comparator::kLess>},
    {"lessthan", true, compares<Comparator::kLess>},
    {"<", true, compares<Comparator::kLess>},
    {"le", true, compares<Comparator::kLessEqual>},
    {"<=", true, compares<Comparator::kLessEqual>},
    {"gt", true, compares<Comparator::kGreater>},
    {"greaterthan", true, compares<Comparator::kGreater>},
    {">", true, compares<Comparator::kGreater>},
    {"ge", true, compares<Comparator::kGreaterEqual>},
    {">=", true, compares<Comparator::kGreaterEqual>},
};

#undef COHORT_JINJA_TEST

const NamedTest* find_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool call_test(Interpreter& interpreter, std::string_view name, const Value& value,
               const Arguments& arguments) {
  interpreter.budget().step();
  const NamedTest* test = find_test(name);
  if (!test) fail("No test named '" + std::string(name) + "' found.");
  const size_t given = arguments.positional.size() + arguments.named.size();
  if (given != (test->takes_argument ? 1 : 0)) {
    fail("the test '" + std::string(name) + "' takes " + (test->takes_argument ? "one" : "no") +
         " argument");
  }
  const Value* argument = !test->takes_argument          ? nullptr
                          : arguments.positional.empty() ? &arguments.named[0].second
                                                         : &arguments.positional[0];
  return test->run(interpreter, value, argument);
}

}  // namespace cohort::jinja
