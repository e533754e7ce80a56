// Keys of MindSpore, MindFormers and Megatron that are not in the lists of upstream.h and have no
// counterpart in our schema: recognised, so that an error or a warning says what they are.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/yaml/tree.h"

namespace trainctl {

struct ForeignKey {
  enum class Answer {
    not_built,  // other values than the plain ones ask for something that is not built
    changes,    // other values than the plain ones would change the model, the data, the optimizer,
                // the schedule or how a run starts: an error
    idle,       // nothing here depends on it: ignored with a warning in a MindFormers file
  };
  std::string_view section;  // ours, or that of a MindFormers file; "" for the top level
  std::string_view key;
  Answer answer = Answer::not_built;
  std::string_view plain;    // the values that ask for nothing, "|" between them
  std::string_view instead;  // what to use instead: keys of ours, or "use ..."; may be empty. idle:
                             // why nothing depends on it
};

std::span<const ForeignKey> foreign_keys();
/// Those of a whole MindFormers file: its top level and its sections for the runner, the data and
/// the model.
std::span<const ForeignKey> foreign_mindformers_keys();
/// The entry for a key of a section, or nullptr.
const ForeignKey* find_foreign(std::string_view section, std::string_view key);
/// Whether the value asks for nothing: it is plain, null, an empty text, map or list.
bool asks_nothing(const ForeignKey& foreign, const YamlNode& value);
/// "write parallel.context_parallel", "use trainctl plan" or "remove it".
std::string help_of(const ForeignKey& foreign);

}  // namespace trainctl
