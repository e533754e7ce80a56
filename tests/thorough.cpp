#include "thorough.h"

#include <cstdlib>
#include <string>

bool watched() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

bool thorough() {
  const char* value = std::getenv("TRAINCTL_THOROUGH");
  return value != nullptr && std::string(value) != "0";
}
