// Errors as values: the core never throws, so that nothing can unwind through a trainer's stack.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace pymon {

// `code` is an errno where a system call failed, else 0; `text` says in one line what went wrong.
struct Error {
  int code = 0;
  std::string text;

  static Error system(const char* what, int code) {
    return {code, std::string(what) + ": " + std::strerror(code)};
  }
  static Error because(std::string text) { return {0, std::move(text)}; }
};

// A value or the reason there is none. `value()` may be asked only where `ok()`, `error()` only where not.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return state_.index() == 0; }
  T& value() noexcept { return *std::get_if<0>(&state_); }
  const Error& error() const noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace pymon
