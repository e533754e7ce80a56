#include "thorough.h"

#include <cstdlib>
#include <string>

bool thorough() {
  const char* value = std::getenv("TRAINCTL_THOROUGH");
  return value != nullptr && std::string(value) != "0";
}
