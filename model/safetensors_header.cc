// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace cohort {
namespace {

// What nlohmann's SAX parser calls; every callback returns false to stop. Accepts exactly
// {name: {"dtype": string, "shape": [integers], "data_offsets": [begin, end]}} and one
// "__metadata__" object of strings.
class HeaderReader {
 public:
  explicit HeaderReader(const SafetensorsLimits& limits) : limits_(limits) {}

  std::vector<HeaderEntry>& entries() { return entries_; }
  const std::string& error() const { return error_; }

  bool key(std::string& text) {
    if (place_ == Place::top) return begin_value(text);
    if (place_ == Place::metadata) return true;
    field_ = text == "dtype"          ? Field::type
             : text == "shape"        ? Field::shape
             : text == "data_offsets" ? Field::offsets
                                      : Field::none;
    if (field_ == Field::none) return fail("unknown key '" + text + "'");
    if (seen_ & unsigned(field_)) return fail("'" + text + "' occurs twice");
    seen_ |= unsigned(field_);
    return true;
  }

  bool start_object(size_t) {
    if (place_ == Place::start) return enter(Place::top);
    if (place_ == Place::top) return enter(metadata_ ? Place::metadata : Place::entry);
    return fail("an object where a plain value is expected");
  }

  bool end_object() {
    if (place_ == Place::top) return enter(Place::end);
    if (place_ == Place::entry && !finish_entry()) return false;
    return enter(Place::top);
  }

  bool start_array(size_t) {
    if (place_ != Place::entry || field_ == Field::type) return fail("an array out of place");
    return enter(field_ == Field::shape ? Place::shape : Place::offsets);
  }

  bool end_array() { return enter(Place::entry); }

  bool number_unsigned(uint64_t value) {
    if (place_ == Place::offsets) {
      if (offsets_ == 2) return fail("more than two data_offsets");
      (offsets_++ == 0 ? entries_.back().begin : entries_.back().end) = value;
      return true;
    }
    if (place_ != Place::shape) return fail("a number out of place");
    if (value > uint64_t(std::numeric_limits<int64_t>::max())) return fail("absurd shape");
    if (entries_.back().shape.size() == limits_.rank)
      return fail(concat("more than ", limits_.rank, " dimensions"));
    entries_.back().shape.push_back(int64_t(value));
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::entry || field_ != Field::type) return fail("a string out of place");
    entries_.back().type_name = std::move(text);
    return true;
  }

  bool number_integer(int64_t) { return fail("a negative number"); }
  bool number_float(double, const std::string&) { return fail("a number that is not whole"); }
  bool null() { return fail("null out of place"); }
  bool boolean(bool) { return fail("a truth value out of place"); }
  bool binary(std::vector<uint8_t>&) { return fail("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    return fail(concat("not valid JSON at byte ", position));
  }

 private:
  enum class Place { start, top, metadata, entry, shape, offsets, end };
  enum class Field : unsigned { none = 0, type = 1, shape = 2, offsets = 4 };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  bool fail(const std::string& why) {
    if (!error_.empty()) return false;
    const bool in_entry =
        place_ == Place::entry || place_ == Place::shape || place_ == Place::offsets;
    error_ =
        in_entry ? concat("header: tensor '", entries_.back().name, "': ", why) : "header: " + why;
    return false;
  }

  bool begin_value(std::string& name) {
    metadata_ = name == "__metadata__";
    if (metadata_)
      return had_metadata_ ? fail("'__metadata__' occurs twice") : (had_metadata_ = true);
    if (entries_.size() == limits_.tensors)
      return fail(concat("more than ", limits_.tensors, " tensors"));
    entries_.push_back({});
    entries_.back().name = std::move(name);
    seen_ = 0;
    offsets_ = 0;
    return true;
  }

  bool finish_entry() {
    if (seen_ != 7) return fail("dtype, shape or data_offsets is missing");
    if (offsets_ != 2) return fail("data_offsets needs two numbers");
    return true;
  }

  const SafetensorsLimits& limits_;
  std::vector<HeaderEntry> entries_;
  std::string error_;
  Place place_ = Place::start;
  Field field_ = Field::none;
  unsigned seen_ = 0;  // of the entry's fields
  int offsets_ = 0;    // numbers of data_offsets so far
  bool metadata_ = false, had_metadata_ = false;
};

}  // namespace

Result<std::vector<HeaderEntry>> read_safetensors_header(std::string_view json,
                                                         const SafetensorsLimits& limits) {
  HeaderReader reader(limits);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader))
    return invalid_argument(reader.error());
  return std::move(reader.entries());
}

}  // namespace cohort
