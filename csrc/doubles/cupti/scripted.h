// What the environment scripts for a call of a double: VARIABLE="function=number,...".
#pragma once

#include <cstdlib>
#include <string>

// The number, or 0 where nothing is scripted.
inline int scripted(const char* variable, const char* function) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  const std::string all = text, key = std::string(function) + "=";
  const auto at = all.find(key);
  return at == std::string::npos ? 0 : std::atoi(all.c_str() + at + key.size());
}
