// What a configuration may read from its environment: the text of an included file and the value of
// an environment variable. Tests and the fuzz target supply their own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace trainctl {

struct Surroundings {
  struct Loaded {
    std::optional<std::string> text;
    std::string why;  // if there is no text: the reason, "no such file"
  };
  /// The text of an included file; the path is relative to the working directory, or absolute.
  /// Empty: includes are refused.
  std::function<Loaded(const std::string& path)> load;
  /// The value of ${NAME}, or nothing if it is unset. Empty: the environment of the process.
  std::function<std::optional<std::string>(const std::string& name)> variable;
};

}  // namespace trainctl
