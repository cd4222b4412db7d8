// A JSON scanner over bytes that may end anywhere and may be wrong.
//
// Three answers: a token was read, the bytes ran out (feed more and start again), or the text is wrong here. It is lenient
// where real traces are wrong but the meaning is plain: raw control characters and bad UTF-8 in strings, unknown escapes,
// NaN and Infinity, a comma before a closing bracket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pymon::trace {

enum class Scan : uint8_t { kOk, kMore, kBad };

struct Text {
  std::string_view raw;  // between the quotes, escapes as they stand
  bool escaped = false;
};

class Json {
 public:
  Json(const char* begin, const char* end) : at_(begin), end_(end) {}

  const char* at() const { return at_; }
  void move_to(const char* where) { at_ = where; }

  void skip_space();
  // The next character after white space, '\0' where the bytes ran out.
  char peek();
  bool take(char wanted);
  Scan string(Text* out);
  // A number, true, false, null, NaN and the like, as it stands.
  Scan bare(std::string_view* out);
  // Any value, passed over.
  Scan skip_value();

 private:
  const char* at_;
  const char* end_;
};

// The text with its escapes resolved; `scratch` holds it where there were any. Unknown escapes stay as they are.
std::string_view plain(const Text& text, std::string* scratch);

// An integer, also one in quotes or with a fraction of zeros; false where it is none or beyond 63 bits.
bool to_int(std::string_view text, int64_t* out);

// Microseconds with up to three decimals as nanoseconds, exactly; false where it is no number or beyond 63 bits.
bool to_ns(std::string_view text, int64_t* out);

}  // namespace pymon::trace
