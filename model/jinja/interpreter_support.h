// SPDX-License-Identifier: Apache-2.0
// Guards that both halves of the interpreter use.
#pragma once
#include "model/jinja/interpreter.h"

namespace cohort::jinja {

class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.nesting_left_ == 0) fail_limit("the template nests too deeply");
    --interpreter_.nesting_left_;
  }
  ~Deeper() { ++interpreter_.nesting_left_; }
  Deeper(const Deeper&) = delete;

 private:
  Interpreter& interpreter_;
};

// Output goes to `text` while it lives.
class Interpreter::Redirect {
 public:
  Redirect(Interpreter& interpreter, TextBuilder& text)
      : interpreter_(interpreter), before_(interpreter.out_) {
    interpreter_.out_ = &text;
  }
  ~Redirect() { interpreter_.out_ = before_; }
  Redirect(const Redirect&) = delete;

 private:
  Interpreter& interpreter_;
  TextBuilder* before_;
};

}  // namespace cohort::jinja
