// SPDX-License-Identifier: Apache-2.0
// Values of the template language: Python's, as far as templates meet them. Everything but
// namespaces and iterators is immutable. Containers know how deep they nest, which is bounded, so
// that recursive functions (printing, comparing, freeing) need no guard of their own.
#pragma once
#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/budget.h"
#include "model/jinja/text.h"

namespace cohort::jinja {

class Value;
class Interpreter;
struct Sequence;
struct Dict;
struct Object;
using SequencePtr = std::shared_ptr<Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;

struct Undefined {
  std::shared_ptr<const std::string> why;  // what a use of it reports
};
struct None {};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(None) : data_(None{}) {}
  Value(Undefined value) : data_(std::move(value)) {}
  template <std::same_as<bool> Bool>  // no pointer becomes true unasked
  Value(Bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(TextPtr value) : data_(std::move(value)) {}
  Value(SequencePtr value) : data_(std::move(value)) {}
  Value(DictPtr value) : data_(std::move(value)) {}
  Value(ObjectPtr value) : data_(std::move(value)) {}
  static Value undefined(std::string why);
  static Value text(std::string bytes) { return Value(make_text(std::move(bytes))); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_double() const { return std::holds_alternative<double>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_) || is_bool(); }
  bool is_number() const { return is_integer() || is_double(); }
  bool is_text() const { return std::holds_alternative<TextPtr>(data_); }

  // These need the kind that they name.
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const { return is_double() ? std::get<double>(data_) : double(integer()); }
  const TextPtr& text_ptr() const { return std::get<TextPtr>(data_); }
  const Text& text() const { return *text_ptr(); }
  const Undefined& undefined_value() const { return std::get<Undefined>(data_); }

  // Null if it is of another kind.
  const SequencePtr* sequence() const { return std::get_if<SequencePtr>(&data_); }
  const DictPtr* dict() const { return std::get_if<DictPtr>(&data_); }
  const ObjectPtr* object() const { return std::get_if<ObjectPtr>(&data_); }

  bool truthy() const;
  const char* type_name() const;  // Python's
  int depth() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, TextPtr, SequencePtr, DictPtr, ObjectPtr>
      data_;
};

enum class Flavor { kList, kTuple, kRange, kKeys, kValues, kItems, kIterator };

// Everything that can be walked through but strings and dicts.
struct Sequence {
  Flavor flavor = Flavor::kList;
  std::vector<Value> items;
  int depth = 1;
  size_t next = 0;  // iterators: what is left begins here

  bool sized() const { return flavor != Flavor::kIterator; }
  bool indexable() const { return flavor <= Flavor::kRange; }
};
Value make_sequence(Flavor flavor, std::vector<Value> items);

// In order of insertion, as Python has it.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;  // by hash_key
  int depth = 1;

  const Value* find(const Value& key) const;  // null if absent
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
};
// Equal for keys that Python takes as equal. Fails for what cannot be a key.
std::string hash_key(const Value& value);

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Functions, macros, namespaces, loops.
struct Object {
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  virtual bool callable() const { return true; }
  virtual Value call(Interpreter& interpreter, const Arguments& arguments);
  // Null if there is none of that name.
  virtual const Value* attribute(std::string_view name);
  virtual int depth() const { return 0; }
};

// Depth of a container around these; fails where it is too deep.
int depth_around(int inner);

// The items of what can be iterated over, without taking them out of an iterator that is used
// again later: an iterator is empty afterwards. Fails for other kinds.
SequencePtr iterate(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
// Fails for what has no length.
int64_t length(const Value& value, Budget& budget);

bool equal(const Value& a, const Value& b, Budget& budget);
// a < b. Fails for kinds that have no order between them.
bool less(const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// Fails with the reason if `value` is undefined.
void require_defined(const Value& value);

}  // namespace cohort::jinja
