// SPDX-License-Identifier: Apache-2.0
// The variable `loop` of a for loop.
#pragma once
#include <optional>

#include "model/jinja/interpreter.h"

namespace cohort::jinja {

class LoopObject : public Object {
 public:
  LoopObject(const For& loop, ScopePtr outside, SequencePtr items, int depth)
      : loop_(loop), outside_(std::move(outside)), items_(std::move(items)), depth_(depth) {}

  void move_to(size_t index) { index_ = index; }

  const char* type_name() const override { return "LoopContext"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;  // recursive loops
  const Value* attribute(std::string_view name) override;
  int depth() const override { return depth_around(items_->depth); }

  // loop.cycle(...) and loop.changed(...).
  Value cycle(const Arguments& arguments) const;
  bool changed(const Arguments& arguments, Budget& budget);

 private:
  Value compute(std::string_view name);

  const For& loop_;
  ScopePtr outside_;  // null if the loop is not recursive
  SequencePtr items_;
  int depth_;
  size_t index_ = 0;
  Value shown_;           // the attribute that was asked for last
  TextPtr last_changed_;  // how the arguments of changed() printed; no reference to them is kept
};

}  // namespace cohort::jinja
