// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON object that a stranger sent. Absent and null are the same; a wrong
// type or range throws RequestError, which names the field. Parsers catch it at their edge.
// Private to the .cc files of the HTTP front.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/failure.h"
#include "coordinator/request.h"

namespace cohort {

struct RequestError {
  Failure failure;
};
[[noreturn]] void reject(std::string message, std::string param);

class JsonFields {
 public:
  explicit JsonFields(const nlohmann::ordered_json& object) : object_(object) {}

  // Null if absent or null.
  const nlohmann::ordered_json* find(const char* key) const;
  std::optional<int64_t> integer(const char* key, int64_t least, int64_t most) const;
  std::optional<double> number(const char* key, double least, double most) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key, size_t most_bytes) const;  // "" if absent

 private:
  const nlohmann::ordered_json& object_;
};

// Parses a body: an object, of bounded depth. Throws RequestError.
nlohmann::ordered_json parse_json_object(std::string_view body, const RequestLimits& limits);
// A JSON integer as a token id within [0, vocab). Throws RequestError.
TokenId token_id(const nlohmann::ordered_json& value, int vocab, const char* param);

}  // namespace cohort
