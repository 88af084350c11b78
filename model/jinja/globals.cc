// SPDX-License-Identifier: Apache-2.0
// Functions that every template sees, and the variable `loop`.
#include <algorithm>
#include <array>

#include "model/jinja/filters.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/loop.h"
#include "model/jinja/print.h"

namespace cohort::jinja {
namespace {

using Function = Value (*)(Interpreter&, const Arguments&);

struct FunctionObject : Object {
  explicit FunctionObject(Function f) : function(f) {}
  const char* type_name() const override { return "function"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return function(interpreter, arguments);
  }
  Function function;
};

// What Jinja's sandbox allows.
constexpr int64_t kMaxRange = 100'000;

Value make_range(Interpreter& interpreter, const Arguments& arguments) {
  const Parameters given("range", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) fail("range() takes no keyword arguments");
  const bool single = arguments.positional.size() == 1;
  const int64_t start = single ? 0 : given.integer(0, 0);
  const int64_t stop = given.integer(single ? 0 : 1, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  const bool up = step > 0;
  const double span = static_cast<double>(stop) - static_cast<double>(start);
  if (span / static_cast<double>(step) > static_cast<double>(kMaxRange)) {
    fail("Range too big. At most " + std::to_string(kMaxRange) + " items are allowed.");
  }
  std::vector<Value> items;
  for (int64_t at = start; up ? at < stop : at > stop;) {
    interpreter.budget().step();
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_sequence(Flavor::kRange, std::move(items));
}

// Entries of a mapping or of pairs, then the named arguments.
std::shared_ptr<Dict> dict_of(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict expected at most 1 argument");
  auto result = std::make_shared<Dict>();
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* dict = source.dict()) {
      interpreter.budget().step(static_cast<int64_t>((*dict)->entries.size()));
      *result = **dict;
    } else {
      for (const SequencePtr held = iterate(source, interpreter.budget());
           const Value& pair : held->items) {
        const SequencePtr parts = iterate(pair, interpreter.budget());
        if (parts->items.size() != 2) fail("dict() needs pairs of keys and values");
        result->set(parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) result->set(Value::text(name), value);
  return result;
}

Value make_dict(Interpreter& interpreter, const Arguments& arguments) {
  return Value(DictPtr(dict_of(interpreter, arguments)));
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  const auto entries = dict_of(interpreter, arguments);
  auto space = interpreter.make_namespace();
  for (const auto& [key, value] : entries->entries) {
    if (!key.is_text()) fail("names in a namespace must be strings");
    const std::string& name = key.text().bytes;
    if (name.starts_with('_')) {
      fail("a namespace takes no attribute whose name begins with an underscore: '" + name + "'");
    }
    space->values[name] = value;
  }
  return Value(ObjectPtr(std::move(space)));
}

Value raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  const Parameters given("raise_exception", arguments, {"message"}, 1);
  fail(to_text(*given[0], interpreter.budget())->bytes);
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const Parameters given("strftime_now", arguments, {"format"}, 1);
  const std::string& format = given.text(0).bytes;
  if (format.size() > 1000) fail_limit("the format of strftime_now is too long");
  if (format.empty()) return Value::text("");
  const std::time_t now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 65536> out;
  const size_t size = std::strftime(out.data(), out.size(), format.c_str(), &local);
  return Value::text(std::string(out.data(), size));
}

struct Cycler : Object {
  std::vector<Value> items;
  Value current;
  size_t at = 0;
  int inner = 0;

  const char* type_name() const override { return "Cycler"; }
  bool callable() const override { return false; }
  const Value* attribute(std::string_view name) override {
    if (name != "current") return nullptr;
    current = items[at];
    return &current;
  }
  int depth() const override { return depth_around(inner); }
};

Value make_cycler(Interpreter&, const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>();
  cycler->items = arguments.positional;
  for (const Value& item : cycler->items) cycler->inner = std::max(cycler->inner, item.depth());
  return Value(ObjectPtr(std::move(cycler)));
}

// Gives its separator every time but the first.
struct Joiner : Object {
  Value separator;
  bool used = false;

  const char* type_name() const override { return "Joiner"; }
  Value call(Interpreter&, const Arguments&) override {
    if (std::exchange(used, true)) return separator;
    return Value::text("");
  }
  int depth() const override { return depth_around(separator.depth()); }
};

Value make_joiner(Interpreter&, const Arguments& arguments) {
  const Parameters given("joiner", arguments, {"sep"});
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = given[0] ? *given[0] : Value::text(", ");
  return Value(ObjectPtr(std::move(joiner)));
}

// A method of an object that lives as long as the method.
struct ObjectMethod : Object {
  using Run = Value (*)(Object&, Interpreter&, const Arguments&);
  ObjectMethod(ObjectPtr s, Run r) : self(std::move(s)), run(r) {}
  const char* type_name() const override { return "method"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return run(*self, interpreter, arguments);
  }
  int depth() const override { return depth_around(self->depth()); }
  ObjectPtr self;
  Run run;
};

ObjectMethod::Run find_object_method(Object& object, std::string_view name) {
  if (dynamic_cast<LoopObject*>(&object)) {
    if (name == "cycle") {
      return [](Object& self, Interpreter&, const Arguments& arguments) {
        return static_cast<LoopObject&>(self).cycle(arguments);
      };
    }
    if (name == "changed") {
      return [](Object& self, Interpreter& interpreter, const Arguments& arguments) {
        return Value(static_cast<LoopObject&>(self).changed(arguments, interpreter.budget()));
      };
    }
  }
  if (dynamic_cast<Cycler*>(&object)) {
    if (name == "next") {
      return [](Object& self, Interpreter&, const Arguments&) {
        auto& cycler = static_cast<Cycler&>(self);
        Value value = cycler.items[cycler.at];
        cycler.at = (cycler.at + 1) % cycler.items.size();
        return value;
      };
    }
    if (name == "reset") {
      return [](Object& self, Interpreter&, const Arguments&) {
        static_cast<Cycler&>(self).at = 0;
        return Value();
      };
    }
  }
  return nullptr;
}

}  // namespace

ObjectPtr bound_object_method(const ObjectPtr& object, std::string_view name) {
  const auto run = find_object_method(*object, name);
  return run ? std::make_shared<ObjectMethod>(object, run) : nullptr;
}

std::vector<std::pair<std::string_view, Value>> global_functions() {
  static constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"range", make_range},          {"dict", make_dict},
      {"namespace", make_namespace},  {"raise_exception", raise_exception},
      {"strftime_now", strftime_now}, {"cycler", make_cycler},
      {"joiner", make_joiner},
  };
  std::vector<std::pair<std::string_view, Value>> globals;
  for (const auto& [name, function] : kFunctions) {
    globals.emplace_back(name, Value(ObjectPtr(std::make_shared<FunctionObject>(function))));
  }
  return globals;
}

Value LoopObject::compute(std::string_view name) {
  const auto& items = items_->items;
  const auto size = static_cast<int64_t>(items.size()), at = static_cast<int64_t>(index_);
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(size - at);
  if (name == "revindex0") return Value(size - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{depth_});
  if (name == "depth0") return Value(int64_t{depth_ - 1});
  if (name == "previtem")
    return at > 0 ? items[index_ - 1] : Value::undefined("there is no previous item");
  return at + 1 < size ? items[index_ + 1] : Value::undefined("there is no next item");
}

const Value* LoopObject::attribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {"index",  "index0",   "revindex", "revindex0",
                                                "first",  "last",     "length",   "depth",
                                                "depth0", "previtem", "nextitem"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return nullptr;
  shown_ = compute(name);
  return &shown_;
}

Value LoopObject::call(Interpreter& interpreter, const Arguments& arguments) {
  if (!loop_.recursive) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  const Parameters given("loop", arguments, {"iterable"}, 1);
  return interpreter.run_loop_again(loop_, outside_, *given[0], depth_ + 1);
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

bool LoopObject::changed(const Arguments& arguments, Budget& budget) {
  TextPtr now = to_text(make_sequence(Flavor::kTuple, arguments.positional), budget);
  if (last_changed_ && now->bytes == last_changed_->bytes) return false;
  last_changed_ = std::move(now);
  return true;
}

}  // namespace cohort::jinja
