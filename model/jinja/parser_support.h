// SPDX-License-Identifier: Apache-2.0
// Guards that both halves of the parser use.
#pragma once
#include "model/jinja/parser.h"

namespace cohort::jinja {

class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (--parser_.depth_left_ < 0) {
      ++parser_.depth_left_;
      throw TemplateError{Code::kResourceExhausted, "the template is nested too deeply",
                          parser_.current().line};
    }
  }
  ~Nesting() { ++parser_.depth_left_; }
  Nesting(const Nesting&) = delete;

 private:
  Parser& parser_;
};

// Jinja reports an unknown filter at once, except inside a condition's branches.
class Parser::Soft {
 public:
  Soft(Parser& parser, bool soft) : parser_(parser), before_(parser.soft_) { parser_.soft_ = soft; }
  ~Soft() { parser_.soft_ = before_; }
  Soft(const Soft&) = delete;

 private:
  Parser& parser_;
  bool before_;
};

}  // namespace cohort::jinja
