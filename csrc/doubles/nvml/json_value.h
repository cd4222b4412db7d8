// A JSON document as a tree, for the double's state file. Text that is wrong gives nothing at all.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pymon::doubles {

struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  double number = 0;  // also of a bool; whole numbers are exact up to 2^53, larger ones stand in `text`
  std::string text;   // of a string, and a number as it was written
  std::vector<JsonValue> items;
  std::map<std::string, JsonValue, std::less<>> members;

  // The member of an object; null where there is none.
  const JsonValue& at(std::string_view key) const;
  bool is_null() const { return kind == Kind::kNull; }
};

std::optional<JsonValue> parse_json(std::string_view text);

}  // namespace pymon::doubles
