// SPDX-License-Identifier: Apache-2.0
// Filters that order, cut and join sequences.
#include <algorithm>
#include <unordered_set>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/print.h"

namespace cohort::jinja {
namespace {

// What values are compared by: texts in small letters unless told otherwise.
Value sort_key(const Value& value, bool case_sensitive, Budget& budget) {
  if (case_sensitive || !value.is_text()) return value;
  return Value(lower(value.text(), budget));
}

Value first(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("first", arguments, {});
  if (value.is_text() && !value.text().bytes.empty())
    return interpreter.item(value, Value(int64_t{0}));
  const auto* list = value.sequence();
  if (list && !(*list)->sized()) {  // takes one out of the iterator
    Sequence& source = **list;
    if (source.next < source.items.size()) return source.items[source.next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  const SequencePtr items = iterate(value, interpreter.budget());
  if (items->items.empty()) return Value::undefined("No first item, sequence was empty.");
  return items->items.front();
}

Value last(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("last", arguments, {});
  require_defined(value);
  const auto* list = value.sequence();
  if (list && !(*list)->sized()) fail("'generator' object is not reversible");
  if (value.is_text() && !value.text().bytes.empty())
    return interpreter.item(value, Value(int64_t{-1}));
  const SequencePtr items = iterate(value, interpreter.budget());
  if (items->items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items->items.back();
}

Value length_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("length", arguments, {});
  return Value(length(value, interpreter.budget()));
}

Value list(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("list", arguments, {});
  const SequencePtr items = iterate(value, interpreter.budget());
  interpreter.budget().step(static_cast<int64_t>(items->items.size()));
  return make_sequence(Flavor::kList, items->items);
}

Value join_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("join", arguments, {"d", "attribute"});
  Budget& budget = interpreter.budget();
  std::vector<TextPtr> parts;
  for (const SequencePtr held = iterate(value, budget); const Value& item : held->items) {
    parts.push_back(to_text(attribute_of(interpreter, item, given[1]), budget));
  }
  const TextPtr separator = given[0] ? to_text(*given[0], budget) : make_text("");
  return Value(join(parts, *separator, budget));
}

Value items_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("items", arguments, {});
  if (value.is_undefined()) return make_sequence(Flavor::kIterator, {});
  if (!value.dict()) fail("Can only get item pairs from a mapping.");
  const Value view = interpreter.call(interpreter.attribute(value, "items"), {});
  return make_sequence(Flavor::kIterator, (*view.sequence())->items);
}

// Stable; `reverse` keeps the order of equals, as Python does.
std::vector<Value> sorted(const std::vector<Value>& items, const std::vector<Value>& keys,
                          bool reverse, Budget& budget) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(keys[b], keys[a], budget) : less(keys[a], keys[b], budget);
  });
  std::vector<Value> result;
  for (const size_t i : order) result.push_back(items[i]);
  return result;
}

// attribute "a,b": sorted by a, then by b.
Value key_of(Interpreter& interpreter, const Value& item, const Value* attribute,
             bool case_sensitive) {
  Budget& budget = interpreter.budget();
  const bool several =
      attribute && attribute->is_text() && attribute->text().bytes.find(',') != std::string::npos;
  if (!several) return sort_key(attribute_of(interpreter, item, attribute), case_sensitive, budget);
  std::vector<Value> keys;
  for (const TextPtr& part : split(attribute->text_ptr(), ",", -1, false, budget)) {
    const Value name(part);
    keys.push_back(sort_key(attribute_of(interpreter, item, &name), case_sensitive, budget));
  }
  return make_sequence(Flavor::kList, std::move(keys));
}

Value sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const SequencePtr items = iterate(value, interpreter.budget());
  std::vector<Value> keys;
  for (const Value& item : items->items) {
    keys.push_back(key_of(interpreter, item, given[2], given.truthy(1, false)));
  }
  return make_sequence(Flavor::kList,
                       sorted(items->items, keys, given.truthy(0, false), interpreter.budget()));
}

Value dict_sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  require_defined(value);
  if (!value.dict()) fail(std::string("dictsort() needs a dict, not ") + value.type_name());
  const bool by_value = given[1] && given.text(1).bytes == "value";
  if (given[1] && !by_value && given.text(1).bytes != "key") {
    fail("You can only sort by either \"key\" or \"value\"");
  }
  Budget& budget = interpreter.budget();
  std::vector<Value> pairs, keys;
  for (const auto& [name, content] : (*value.dict())->entries) {
    budget.step();
    pairs.push_back(make_sequence(Flavor::kTuple, {name, content}));
    keys.push_back(sort_key(by_value ? content : name, given.truthy(0, false), budget));
  }
  return make_sequence(Flavor::kList, sorted(pairs, keys, given.truthy(2, false), budget));
}

Value unique(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  std::unordered_set<std::string> seen;
  std::vector<Value> result;
  for (const SequencePtr held = iterate(value, interpreter.budget());
       const Value& item : held->items) {
    interpreter.budget().step();
    const Value key = sort_key(attribute_of(interpreter, item, given[1]), given.truthy(0, false),
                               interpreter.budget());
    if (seen.insert(hash_key(key)).second) result.push_back(item);
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

Value reverse_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("reverse", arguments, {});
  if (value.is_text()) return Value(reverse(value.text(), interpreter.budget()));
  if (value.is_undefined()) require_defined(value);
  const auto* sequence = value.sequence();
  const bool was_iterator = sequence && !(*sequence)->sized();
  std::vector<Value> items = iterate(value, interpreter.budget())->items;
  interpreter.budget().step(static_cast<int64_t>(items.size()));
  std::reverse(items.begin(), items.end());
  return make_sequence(was_iterator ? Flavor::kList : Flavor::kIterator, std::move(items));
}

Value batch(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = given.integer(0, 0);
  std::vector<Value> result, row;
  for (const SequencePtr held = iterate(value, interpreter.budget());
       const Value& item : held->items) {
    interpreter.budget().step();
    if (static_cast<int64_t>(row.size()) == size) {
      result.push_back(make_sequence(Flavor::kList, std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    while (given.some(1) && static_cast<int64_t>(row.size()) < size) {
      interpreter.budget().step();
      row.push_back(*given[1]);
    }
    result.push_back(make_sequence(Flavor::kList, std::move(row)));
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

// Into `slices` lists of almost equal length, the longer ones first.
Value slice_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = given.integer(0, 0);
  const SequencePtr source = iterate(value, interpreter.budget());
  const auto size = static_cast<int64_t>(source->items.size());
  if (slices == 0) fail("division by zero");
  std::vector<Value> result;
  auto at = source->items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    interpreter.budget().step(1 + size / slices);
    const bool longer = i < size % slices;
    const auto end = at + size / slices + (longer ? 1 : 0);
    std::vector<Value> part(at, end);
    if (given.some(1) && !longer) part.push_back(*given[1]);
    result.push_back(make_sequence(Flavor::kList, std::move(part)));
    at = end;
  }
  return make_sequence(Flavor::kIterator, std::move(result));
}

template <bool largest>
Value extreme(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  Budget& budget = interpreter.budget();
  const SequencePtr items = iterate(value, budget);
  if (items->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return sort_key(attribute_of(interpreter, item, given[1]), given.truthy(0, false), budget);
  };
  const Value* best = &items->items[0];
  Value best_key = key(*best);
  for (size_t i = 1; i < items->items.size(); ++i) {
    Value candidate = key(items->items[i]);
    if (largest ? less(best_key, candidate, budget) : less(candidate, best_key, budget)) {
      best = &items->items[i];
      best_key = std::move(candidate);
    }
  }
  return *best;
}

Value sum(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  Value total = given[1] ? *given[1] : Value(int64_t{0});
  if (total.is_text()) fail("sum() can't sum strings");
  for (const SequencePtr held = iterate(value, interpreter.budget());
       const Value& item : held->items) {
    total = binary(BinaryOperator::kAdd, total, attribute_of(interpreter, item, given[0]),
                   interpreter.budget());
  }
  return total;
}

constexpr NamedFilter kFilters[] = {
    {"first", first},
    {"last", last},
    {"length", length_filter},
    {"count", length_filter},
    {"list", list},
    {"join", join_filter},
    {"items", items_filter},
    {"sort", sort},
    {"dictsort", dict_sort},
    {"unique", unique},
    {"reverse", reverse_filter},
    {"batch", batch},
    {"slice", slice_filter},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return filter.run;
  }
  return nullptr;
}

}  // namespace cohort::jinja
