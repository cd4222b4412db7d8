#include "doubles/nvml/json_value.h"

#include <cstdlib>

namespace pymon::doubles {
namespace {

constexpr int kMaxDepth = 32;

class Parser {
 public:
  explicit Parser(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool document(JsonValue* out) {
    if (!value(out, 0)) return false;
    space();
    return at_ == end_;
  }

 private:
  void space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  bool take(char wanted) {
    space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool word(std::string_view wanted) {
    if (std::string_view(at_, static_cast<size_t>(end_ - at_)).substr(0, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  bool value(JsonValue* out, int depth) {
    space();
    if (at_ == end_ || depth > kMaxDepth) return false;
    switch (*at_) {
      case '{': return object(out, depth);
      case '[': return array(out, depth);
      case '"': out->kind = JsonValue::Kind::kString; return string(&out->text);
      case 't': out->kind = JsonValue::Kind::kBool; out->number = 1; return word("true");
      case 'f': out->kind = JsonValue::Kind::kBool; return word("false");
      case 'n': return word("null");
      default: return number(out);
    }
  }

  bool object(JsonValue* out, int depth) {
    out->kind = JsonValue::Kind::kObject;
    ++at_;
    if (take('}')) return true;
    do {
      space();
      std::string key;
      if (at_ == end_ || *at_ != '"' || !string(&key) || !take(':')) return false;
      if (!value(&out->members[key], depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  bool array(JsonValue* out, int depth) {
    out->kind = JsonValue::Kind::kArray;
    ++at_;
    if (take(']')) return true;
    do {
      if (!value(&out->items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool number(JsonValue* out) {
    const char* begin = at_;
    while (at_ != end_ && std::string_view("+-.0123456789eE").find(*at_) != std::string_view::npos) ++at_;
    out->kind = JsonValue::Kind::kNumber;
    out->text.assign(begin, at_);
    char* parsed = nullptr;
    out->number = std::strtod(out->text.c_str(), &parsed);
    return begin != at_ && *parsed == '\0';
  }

  // \u escapes below 256 become that byte, so that a test can put any garbage into a string.
  bool string(std::string* out) {
    for (++at_; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ != '\\') {
        *out += *at_;
        continue;
      }
      if (++at_ == end_) return false;
      if (*at_ == 'n') {
        *out += '\n';
      } else if (*at_ == 'u') {
        if (end_ - at_ < 5) return false;
        *out += static_cast<char>(std::strtoul(std::string(at_ + 1, 4).c_str(), nullptr, 16));
        at_ += 4;
      } else {
        *out += *at_;
      }
    }
    if (at_ == end_) return false;
    ++at_;
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace

const JsonValue& JsonValue::at(std::string_view key) const {
  static const JsonValue none;
  const auto found = members.find(key);
  return found == members.end() ? none : found->second;
}

std::optional<JsonValue> parse_json(std::string_view text) {
  JsonValue out;
  if (!Parser(text).document(&out)) return std::nullopt;
  return out;
}

}  // namespace pymon::doubles
