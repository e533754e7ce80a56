// Keys of other projects, with our counterparts: for hints about unknown keys, and for `migrate
// --from`, from other_keys.txt. upstream.h has the upstream keys that our configurations accept.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// A list of keys in other_keys.txt. mindformers: keys of whole files, while upstream.h has the
/// parallel sections; trainers: keys of axolotl, LLaMA-Factory, Lightning, Accelerate and others;
/// usual: common words that belong to no project.
using Project =
    OneOf<"hugging_face|nanogpt|torchtitan|llmc|megatron|deepspeed|mindformers|trainers|usual">;

/// The project's name in messages, such as "Hugging Face".
std::string_view name_of(Project project);

struct OtherKey {
  std::string key;  // as the project writes it, such as torchtitan's "training.steps"
  // our keys, separated by blanks; "path=value" has a fixed value, whatever theirs is; empty if
  // there is no counterpart
  std::string paths;
  // our words for theirs where they differ: "bfloat16=bf16|float16=fp16". "true=" means that the
  // value asks for nothing; "*" accepts all other values unchanged; "#split" and "#other" name
  // special conversions of convert()
  std::string words{};
  std::string note{};  // difference to ours, or reason for no counterpart
};

std::span<const OtherKey> other_keys(Project project);
/// Keys of a whole MindFormers file that each have a single counterpart; `key` is the whole path in
/// the file. A value that is not among the words has no counterpart.
std::span<const OtherKey> carried_keys();

/// The row of a key, with any hyphens, underscores and capitals; nullptr if the project has no such
/// key. `key` may omit the section of torchtitan or DeepSpeed unless its last word is ambiguous.
const OtherKey* find_other_key(Project project, std::string_view key);

/// Converts a value of theirs: "#split" makes 949,50,1 the fraction 0.05. Returns "" if the value
/// asks for nothing; none if it has no counterpart or does not suffice to find it.
std::optional<std::string> convert(const OtherKey& row, const std::string& value);

/// A key of ours and the text of its value, "" if unknown.
struct HintValue {
  std::string path;
  std::string text;
};
struct Hint {
  std::string
      text;  // "write model.num_layers: 12 (nanoGPT's n_layer)"; "" if no project has the key
  std::string without_values;  // `text` without values
  std::vector<HintValue> values;
};
/// The hint for an unknown key, which may have its section before a dot. `value`: as written; a
/// list as [1, 2], empty for a map.
Hint hint_for(const std::string& key, const std::string& value);

/// The hint of one row; none if the row does not cover the value.
std::optional<Hint> hint_for_row(const OtherKey& row, const std::string& value);
/// Hints for a value that the key `path` of ours refuses, the likeliest first. `exact`: only rows
/// that name the value itself.
std::vector<Hint> hints_for_value(const std::string& path, const std::string& value, bool exact);
/// The rows for hints_for_value; their `key` is a path of ours.
std::span<const OtherKey> local_value_rows();

/// The keys in `paths` of a row, each with the value after its "=".
std::vector<HintValue> assignments_of(const OtherKey& row);
/// The keys in `paths` of a row, without values.
std::vector<std::string> paths_of(const OtherKey& row);

}  // namespace trainctl
