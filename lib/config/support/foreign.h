// Keys of MindSpore, MindFormers and Megatron outside the lists of upstream.h that have no place in
// our schema: recognised, so that they are "not built yet" or "not carried" rather than unknown.
#pragma once

#include <span>
#include <string_view>

namespace trainctl {

struct ForeignKey {
  enum class Answer { not_built, not_carried };
  std::string_view section;  // of ours; "" for the top level
  std::string_view key;
  Answer answer = Answer::not_built;
  std::string_view plain;    // not_built: the values that ask for nothing, "|" between them
  std::string_view instead;  // what serves the purpose: keys of ours, or "use ..."; may be empty
};

std::span<const ForeignKey> foreign_keys();
/// The entry for a key of a section, or nullptr.
const ForeignKey* find_foreign(std::string_view section, std::string_view key);

}  // namespace trainctl
