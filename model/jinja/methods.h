// SPDX-License-Identifier: Apache-2.0
// Methods by name; the tables of the two families. Used by bound_method() only.
#pragma once
#include <string_view>

#include "model/jinja/value.h"

namespace cohort::jinja {

using Method = Value (*)(Interpreter&, const Value& self, const Arguments&);
struct NamedMethod {
  std::string_view name;
  Method run;
};
Method find_text_method(std::string_view name);
Method find_text_question(std::string_view name);  // isdigit and its like

}  // namespace cohort::jinja
