// Bytes written as a string.
#pragma once

#include <initializer_list>
#include <string>

/// A text of these bytes.
inline std::string bytes(std::initializer_list<int> list) {
  std::string text;
  for (const int byte : list) text += static_cast<char>(byte);
  return text;
}
