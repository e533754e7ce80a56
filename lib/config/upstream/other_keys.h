// Keys that people know from other projects, with ours: hints for unknown keys, and `migrate
// --from`. The keys that configurations of ours accept under their upstream names are in
// upstream.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

enum class Project {
  hugging_face,
  nanogpt,
  torchtitan,
  llmc,
  megatron,
  deepspeed,
  mindformers,  // its whole file; its parallel sections are in upstream.h
  trainers,     // keys of axolotl, LLaMA-Factory, Lightning, Accelerate and others
  usual,        // short and usual words that no project owns
};

/// "Hugging Face", as messages call it.
std::string_view name_of(Project project);

struct OtherKey {
  std::string_view key;  // as written there; torchtitan's with its section: "training.steps"
  // ours, a space between several; "path=value" has a value of its own, whatever theirs is; empty:
  // there is no counterpart
  std::string_view paths;
  // "bfloat16=bf16|float16=fp16": our words for theirs, where they differ. "true=" says that the
  // value asks for nothing, "*" takes all others as they are; "#split" and "#other" name what no
  // table says (convert()).
  std::string_view words = {};
  std::string_view note = {};  // what differs, or why there is no counterpart
};

std::span<const OtherKey> other_keys(Project project);

/// The row of a key, in whatever mixture of hyphens, underscores and capitals; nullptr if the
/// project has no such key. `key` may lack torchtitan's or DeepSpeed's section unless
/// the word says nothing without it.
const OtherKey* find_other_key(Project project, std::string_view key);

/// Our spelling of their value: "#split" makes 949,50,1 the fraction 0.05. "" where it asks for
/// nothing; none where one value alone does not say it, or has no counterpart.
std::optional<std::string> convert(const OtherKey& row, const std::string& value);

/// One key of ours with what to write there; "" where the value is not known.
struct HintValue {
  std::string path;
  std::string text;
};
struct Hint {
  std::string
      text;  // "write model.num_layers: 12 (nanoGPT's n_layer)"; "" if no project has the key
  std::string without_values;  // the same without the values
  std::vector<HintValue> values;
};
/// A hint for an unknown key, which may have its section before a dot: what to write instead.
/// `value`: as written, a list as [1, 2], empty for maps.
Hint hint_for(const std::string& key, const std::string& value);

/// The hint that one row gives; none if the row says nothing of the value.
std::optional<Hint> hint_for_row(const OtherKey& row, const std::string& value);
/// Hints for a value that a key of ours does not take, the likelier first: what to write instead.
/// `exact`: only where a row names the value itself.
std::vector<Hint> hints_for_value(const std::string& path, const std::string& value, bool exact);
/// The rows behind it, whose `key` is a path of ours.
std::span<const OtherKey> local_value_rows();

/// `paths` one by one, each with the value after its "=".
std::vector<HintValue> assignments_of(const OtherKey& row);
/// `paths` one by one, without the values.
std::vector<std::string> paths_of(const OtherKey& row);

}  // namespace trainctl
