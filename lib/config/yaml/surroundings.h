// What a configuration may ask of the world around it: the text of an included file and the value
// of an environment variable. Tests and the fuzz target bring their own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace trainctl {

struct Surroundings {
  struct Loaded {
    std::optional<std::string> text;
    std::string why;  // without a text: the reason, "no such file"
  };
  /// The text of an included file; the path is relative to the working folder, or absolute. Empty:
  /// includes are refused.
  std::function<Loaded(const std::string& path)> load;
  /// The value of ${NAME}, nothing where it is unset. Empty: the process's environment.
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

}  // namespace trainctl
