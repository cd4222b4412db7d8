#include "trace/json.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace pymon::trace {
namespace {

constexpr int kMaxDepth = 64;  // deeper is no trace; also bounds what a hostile file can ask for

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\0'; }

bool ends_bare(char c) { return c == ',' || c == '}' || c == ']' || c == ':' || c == '"' || is_space(c); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void put_utf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | (code >> 6)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xe0 | (code >> 12)));
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

bool hex4(std::string_view text, uint32_t* out) {
  if (text.size() < 4) return false;
  uint32_t code = 0;
  for (char c : text.substr(0, 4)) {
    const char low = static_cast<char>(c | 0x20);
    if (is_digit(c)) code = code * 16 + static_cast<uint32_t>(c - '0');
    else if (low >= 'a' && low <= 'f') code = code * 16 + static_cast<uint32_t>(low - 'a' + 10);
    else return false;
  }
  *out = code;
  return true;
}

// value = value * 10 + digit, false on overflow
bool push_digit(int64_t* value, char digit) {
  return !__builtin_mul_overflow(*value, int64_t{10}, value) &&
         !__builtin_add_overflow(*value, static_cast<int64_t>(digit - '0'), value);
}

bool from_double(std::string_view text, double factor, int64_t* out) {
  char buffer[64];
  if (text.empty() || text.size() >= sizeof(buffer)) return false;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  char* stop = nullptr;
  const double value = std::strtod(buffer, &stop) * factor;
  if (stop != buffer + text.size() || !std::isfinite(value) || std::fabs(value) >= 9.2e18) return false;
  *out = static_cast<int64_t>(std::llround(value));
  return true;
}

}  // namespace

void Json::skip_space() {
  while (at_ < end_ && is_space(*at_)) ++at_;
}

char Json::peek() {
  skip_space();
  return at_ < end_ ? *at_ : '\0';
}

bool Json::take(char wanted) {
  if (peek() != wanted) return false;
  ++at_;
  return true;
}

Scan Json::string(Text* out) {
  const char next = peek();
  if (next != '"') return next == '\0' ? Scan::kMore : Scan::kBad;
  const char* begin = at_ + 1;
  out->escaped = false;
  for (const char* at = begin; at < end_; ++at) {
    if (*at == '\\') {
      out->escaped = true;
      ++at;
    } else if (*at == '"') {
      out->raw = std::string_view(begin, static_cast<size_t>(at - begin));
      at_ = at + 1;
      return Scan::kOk;
    }
  }
  return Scan::kMore;
}

Scan Json::bare(std::string_view* out) {
  skip_space();
  const char* begin = at_;
  while (at_ < end_ && !ends_bare(*at_)) ++at_;
  *out = std::string_view(begin, static_cast<size_t>(at_ - begin));
  if (at_ == end_) return Scan::kMore;  // the number may go on in the next bytes
  return out->empty() ? Scan::kBad : Scan::kOk;
}

Scan Json::skip_value() {
  char closers[kMaxDepth];
  int depth = 0;
  do {
    const char next = peek();
    if (next == '\0') return Scan::kMore;
    if (next == '{' || next == '[') {
      if (depth == kMaxDepth) return Scan::kBad;
      closers[depth++] = next == '{' ? '}' : ']';
      ++at_;
    } else if (next == '}' || next == ']') {
      if (depth == 0 || closers[depth - 1] != next) return Scan::kBad;
      --depth;
      ++at_;
    } else if (next == '"') {
      Text ignored;
      const Scan scan = string(&ignored);
      if (scan != Scan::kOk) return scan;
      // A string is followed by a separator: this is where an unescaped quote shows.
      const char after = peek();
      if (after == '\0') return Scan::kMore;
      if (after != ',' && after != ':' && after != '}' && after != ']') return Scan::kBad;
    } else if (next == ',' || next == ':') {
      if (depth == 0) return Scan::kBad;
      ++at_;
    } else {
      std::string_view ignored;
      const Scan scan = bare(&ignored);
      if (scan != Scan::kOk) return scan;
    }
  } while (depth > 0);
  return Scan::kOk;
}

std::string_view plain(const Text& text, std::string* scratch) {
  if (!text.escaped) return text.raw;
  scratch->clear();
  for (size_t i = 0; i < text.raw.size(); ++i) {
    const char c = text.raw[i];
    if (c != '\\' || i + 1 == text.raw.size()) {
      scratch->push_back(c);
      continue;
    }
    const char escape = text.raw[++i];
    uint32_t code = 0;
    if (escape == 'n') scratch->push_back('\n');
    else if (escape == 't') scratch->push_back('\t');
    else if (escape == 'r') scratch->push_back('\r');
    else if (escape == '"' || escape == '\\' || escape == '/') scratch->push_back(escape);
    else if (escape == 'u' && hex4(text.raw.substr(i + 1), &code)) {
      put_utf8(code, scratch);
      i += 4;
    } else {
      scratch->push_back('\\');
      scratch->push_back(escape);
    }
  }
  return *scratch;
}

bool to_int(std::string_view text, int64_t* out) {
  const bool negative = !text.empty() && text[0] == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty()) return false;
  int64_t value = 0;
  for (char c : digits) {
    if (!is_digit(c)) return from_double(text, 1.0, out);
    if (!push_digit(&value, c)) return false;
  }
  *out = negative ? -value : value;
  return true;
}

bool to_ns(std::string_view text, int64_t* out) {
  const bool negative = !text.empty() && text[0] == '-';
  int64_t value = 0;
  size_t i = negative ? 1 : 0;
  if (i == text.size()) return false;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    if (!push_digit(&value, text[i])) return false;
  }
  int decimals = 0;
  if (i < text.size() && text[i] == '.') {
    for (++i; i < text.size() && is_digit(text[i]); ++i) {
      if (decimals < 3 && !push_digit(&value, text[i])) return false;
      decimals += decimals < 3;
    }
  }
  if (i != text.size()) return from_double(text, 1e3, out);  // an exponent, or no number at all
  for (; decimals < 3; ++decimals) {
    if (!push_digit(&value, '0')) return false;
  }
  *out = negative ? -value : value;
  return true;
}

}  // namespace pymon::trace
