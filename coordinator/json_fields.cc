// SPDX-License-Identifier: Apache-2.0
#include "coordinator/json_fields.h"

#include <cmath>

namespace cohort {

using Json = nlohmann::ordered_json;

void reject(std::string message, std::string param) {
  throw RequestError{invalid_request(std::move(message), std::move(param))};
}

const Json* JsonFields::find(const char* key) const {
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<int64_t> JsonFields::integer(const char* key, int64_t least, int64_t most) const {
  const Json* value = find(key);
  if (!value) return {};
  const std::string range = concat("an integer from ", least, " to ", most);
  // 3.0 is an integer in JSON's eyes; some clients send it.
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (std::trunc(number) == number && number >= static_cast<double>(least) &&
        number <= static_cast<double>(most) && std::abs(number) < 0x1p53)
      return static_cast<int64_t>(number);
  }
  if (!value->is_number_integer()) reject(concat("'", key, "' must be ", range), key);
  const bool too_big = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
  const int64_t integer = too_big ? 0 : value->get<int64_t>();
  if (too_big || integer < least || integer > most)
    reject(concat("'", key, "' must be ", range), key);
  return integer;
}

std::optional<double> JsonFields::number(const char* key, double least, double most) const {
  const Json* value = find(key);
  if (!value) return {};
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most))  // also NaN
    reject(concat("'", key, "' must be a number from ", least, " to ", most), key);
  return number;
}

bool JsonFields::boolean(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) reject(concat("'", key, "' must be true or false"), key);
  return value->get<bool>();
}

std::string JsonFields::text(const char* key, size_t most_bytes) const {
  const Json* value = find(key);
  if (!value) return {};
  if (!value->is_string()) reject(concat("'", key, "' must be a string"), key);
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > most_bytes)
    reject(concat("'", key, "' must be at most ", most_bytes, " bytes long"), key);
  return text;
}

// Depth is checked before parsing: trees that are too deep are never built, copied or destroyed.
static bool too_deep(std::string_view body, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Json parse_json_object(std::string_view body, const RequestLimits& limits) {
  if (body.size() > limits.body_bytes)
    reject(concat("the body has ", body.size(), " bytes; at most ", limits.body_bytes,
                  " are accepted"),
           {});
  if (too_deep(body, limits.json_depth))
    reject(concat("the body is nested deeper than ", limits.json_depth, " levels"), {});
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::exception& e) {
    reject(concat("the body is not valid JSON: ", e.what()), {});
  }
  if (!json.is_object()) reject("the body must be a JSON object", {});
  return json;
}

TokenId token_id(const Json& value, int vocab, const char* param) {
  const bool integer = value.is_number_integer() &&
                       !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
  const int64_t id = integer ? value.get<int64_t>() : -1;
  if (id < 0 || id >= vocab)
    reject(concat("'", param, "' holds ", value.is_number() ? value.dump() : value.type_name(),
                  ", which is not a token id: the vocabulary has ids 0 to ", vocab - 1),
           param);
  return static_cast<TokenId>(id);
}

}  // namespace cohort
