// SPDX-License-Identifier: Apache-2.0
#include "model/jinja/value.h"

#include <charconv>
#include <cmath>

#include "model/jinja/unicode.h"

namespace cohort::jinja {
namespace {

// JSON from the outside is at most as deep as templates print in practice; beyond that only
// attacks go.
constexpr int kMaxDepth = 200;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
// Clang 14 does not deduce the arguments of an aggregate by itself.
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

bool sequence_truthy(const Sequence& sequence) {
  return !sequence.sized() || !sequence.items.empty();
}

const char* flavor_name(Flavor flavor) {
  switch (flavor) {
    case Flavor::kList:
      return "list";
    case Flavor::kTuple:
      return "tuple";
    case Flavor::kRange:
      return "range";
    case Flavor::kKeys:
      return "dict_keys";
    case Flavor::kValues:
      return "dict_values";
    case Flavor::kItems:
      return "dict_items";
    case Flavor::kIterator:
      return "generator";
  }
  return "object";
}

}  // namespace

void fail(std::string message) { throw TemplateError{Code::kInvalidArgument, std::move(message)}; }
void fail_unsupported(std::string message) {
  throw TemplateError{Code::kUnimplemented, std::move(message)};
}
void fail_limit(std::string message) {
  throw TemplateError{Code::kResourceExhausted, std::move(message)};
}

Value Value::undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

bool Value::truthy() const {
  if (is_text()) return !text().bytes.empty();
  if (is_number()) return number() != 0;
  if (const auto* list = sequence()) return sequence_truthy(**list);
  if (const auto* map = dict()) return !(*map)->entries.empty();
  return object() != nullptr;
}

const char* Value::type_name() const {
  return std::visit(Overloaded{[](const Undefined&) { return "Undefined"; },
                               [](const None&) { return "NoneType"; }, [](bool) { return "bool"; },
                               [](int64_t) { return "int"; }, [](double) { return "float"; },
                               [](const TextPtr&) { return "str"; },
                               [](const SequencePtr& list) { return flavor_name(list->flavor); },
                               [](const DictPtr&) { return "dict"; },
                               [](const ObjectPtr& object) { return object->type_name(); }},
                    data_);
}

int Value::depth() const {
  if (const auto* list = sequence()) return (*list)->depth;
  if (const auto* map = dict()) return (*map)->depth;
  if (const auto* thing = object()) return (*thing)->depth();
  return 0;
}

int depth_around(int inner) {
  if (inner >= kMaxDepth) fail_limit("lists and dicts are nested too deeply");
  return inner + 1;
}

Value make_sequence(Flavor flavor, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  int inner = 0;
  for (const Value& item : items) inner = std::max(inner, item.depth());
  sequence->depth = depth_around(inner);
  sequence->flavor = flavor;
  sequence->items = std::move(items);
  return Value(std::move(sequence));
}

std::string hash_key(const Value& value) {
  if (value.is_text()) return "s" + value.text().bytes;
  if (value.is_none()) return "n";
  if (value.is_undefined()) return "u";
  if (value.is_integer()) return "i" + std::to_string(value.integer());
  if (value.is_double()) {
    const double number = value.number();
    if (number == std::floor(number) && std::fabs(number) < 9e18) {
      return "i" + std::to_string(static_cast<int64_t>(number));
    }
    return "f" + std::to_string(number) + std::to_string(std::hash<double>()(number));
  }
  const auto* list = value.sequence();
  if (list && (*list)->flavor == Flavor::kTuple) {
    std::string key = "t";
    for (const Value& item : (*list)->items) {
      const std::string part = hash_key(item);
      key += std::to_string(part.size()) + ":" + part;
    }
    return key;
  }
  if (const auto* object = value.object()) {
    return "o" + std::to_string(reinterpret_cast<uintptr_t>(object->get()));
  }
  fail(std::string("unhashable type: '") + value.type_name() + "'");
}

const Value* Dict::find(const Value& key) const {
  const auto found = index.find(hash_key(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find("s" + std::string(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(Value key, Value value) {
  depth = std::max(depth, depth_around(std::max(key.depth(), value.depth())));
  const auto [found, added] = index.try_emplace(hash_key(key), entries.size());
  if (added) {
    entries.emplace_back(std::move(key), std::move(value));
  } else {
    entries[found->second].second = std::move(value);
  }
}

Value Object::call(Interpreter&, const Arguments&) {
  fail(std::string("'") + type_name() + "' object is not callable");
}
const Value* Object::attribute(std::string_view) { return nullptr; }

void require_defined(const Value& value) {
  if (value.is_undefined()) fail(*value.undefined_value().why);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.sequence() || value.dict();
}

SequencePtr iterate(const Value& value, Budget& budget) {
  if (const auto* list = value.sequence(); list && (*list)->sized()) {
    budget.step();
    return *list;
  }
  auto items = std::make_shared<Sequence>();
  if (const auto* list = value.sequence()) {
    auto& source = **list;
    items->items.assign(source.items.begin() + static_cast<std::ptrdiff_t>(source.next),
                        source.items.end());
    source.next = source.items.size();
  } else if (const auto* map = value.dict()) {
    for (const auto& entry : (*map)->entries) items->items.push_back(entry.first);
  } else if (value.is_text()) {
    const TextPtr& text = value.text_ptr();
    for (size_t at = 0; at < text->bytes.size();) {
      const size_t length = decode_utf8(text->bytes, at).length;
      budget.step();
      items->items.emplace_back(cut(text, at, at + length, budget));
      at += length;
    }
  } else if (!value.is_undefined()) {
    fail(std::string("'") + value.type_name() + "' object is not iterable");
  }
  budget.step(static_cast<int64_t>(items->items.size()));
  items->depth = std::max(1, value.depth());
  return items;
}

int64_t length(const Value& value, Budget& budget) {
  if (value.is_text()) {
    budget.scan(value.text().bytes.size());
    return static_cast<int64_t>(count_characters(value.text().bytes));
  }
  if (value.is_undefined()) return 0;
  if (const auto* map = value.dict()) return static_cast<int64_t>((*map)->entries.size());
  const auto* list = value.sequence();
  if (list && (*list)->sized()) return static_cast<int64_t>((*list)->items.size());
  fail(std::string("object of type '") + value.type_name() + "' has no len()");
}

namespace {

bool dicts_equal(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (!other || !equal(value, *other, budget)) return false;
  }
  return true;
}

bool sequences_equal(const SequencePtr& a, const SequencePtr& b, Budget& budget) {
  if (a == b) return true;
  const bool views = !a->indexable() || a->flavor != b->flavor;
  if (views || a->items.size() != b->items.size()) return false;
  for (size_t i = 0; i < a->items.size(); ++i) {
    if (!equal(a->items[i], b->items[i], budget)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.is_text() && b.is_text()) {
    const std::string &x = a.text().bytes, &y = b.text().bytes;
    if (x.size() != y.size()) return false;
    budget.scan(x.size());
    return x == y;
  }
  if (a.is_none() && b.is_none()) return true;
  if (a.is_undefined() && b.is_undefined()) return true;
  if (a.dict() && b.dict()) return dicts_equal(**a.dict(), **b.dict(), budget);
  if (a.sequence() && b.sequence()) return sequences_equal(*a.sequence(), *b.sequence(), budget);
  if (a.object() && b.object()) return *a.object() == *b.object();
  return false;
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_text() && b.is_text()) {  // UTF-8 sorts as its code points do
    budget.scan(std::min(a.text().bytes.size(), b.text().bytes.size()));
    return a.text().bytes < b.text().bytes;
  }
  require_defined(a);
  require_defined(b);
  const auto *x = a.sequence(), *y = b.sequence();
  if (x && y && (*x)->flavor == (*y)->flavor && (*x)->flavor <= Flavor::kTuple) {
    const auto &left = (*x)->items, &right = (*y)->items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!equal(left[i], right[i], budget)) return less(left[i], right[i], budget);
    }
    return left.size() < right.size();
  }
  fail(std::string("'<' not supported between instances of '") + a.type_name() + "' and '" +
       b.type_name() + "'");
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_text()) {
    if (!item.is_text()) {
      require_defined(item);
      fail(std::string("'in <string>' requires string as left operand, not ") + item.type_name());
    }
    budget.scan(container.text().bytes.size());
    return container.text().bytes.find(item.text().bytes) != std::string::npos;
  }
  if (const auto* map = container.dict()) return (*map)->find(item) != nullptr;
  for (const SequencePtr held = iterate(container, budget); const Value& candidate : held->items) {
    if (equal(candidate, item, budget)) return true;
  }
  return false;
}

}  // namespace cohort::jinja
