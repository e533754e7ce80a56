// Keys of MindSpore, MindFormers and Megatron that are not in the lists of upstream.h and have no
// counterpart in our schema: recognised, so that they are "not built" or "not carried", not
// unknown.
#pragma once

#include <span>
#include <string_view>

namespace trainctl {

struct ForeignKey {
  enum class Answer { not_built, not_carried };
  std::string_view section;  // of ours; "" for the top level
  std::string_view key;
  Answer answer = Answer::not_built;
  std::string_view plain;    // not_built: the values that need no support, "|" between them
  std::string_view instead;  // what to use instead: keys of ours, or "use ..."; may be empty
};

std::span<const ForeignKey> foreign_keys();
/// The entry for a key of a section, or nullptr.
const ForeignKey* find_foreign(std::string_view section, std::string_view key);

}  // namespace trainctl
