// Values under upstream spellings that claim a canonical path. Several spellings may claim the same
// path only if their values are equal.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Canonical path -> dotted key as it was written, for values given under another spelling.
using Spellings = std::map<std::string, std::string>;

/// One value that was written under `spelling` and belongs at `path`.
struct Claim {
  std::string path;
  std::string spelling;  // as written: "parallel_config.model_parallel"
  Span key_span;
  int node = 0;
  bool weak = false;     // another value wins, unless the two contradict each other: full_batch
  bool derived = false;  // the value was made from another one (fp16: true), so messages about it
                         // do not use the spelling
};

class Claims {
 public:
  Claims(YamlTree& tree, int root, Diagnostics& diagnostics)
      : tree_(tree), root_(root), diagnostics_(diagnostics) {}

  /// Adds a claim; a map is split into one claim for each of its keys.
  void add(const Claim& claim);
  /// A new node with the same content, which takes over the mark to override, if any.
  int copy(int node);
  /// Puts the winner of each path into the tree; adds "two-spellings".
  Spellings settle();

 private:
  void add_parts(const Claim& claim, int depth);
  /// The claims for a path and the value already there, in order of the text.
  std::vector<Claim> rivals(const std::vector<Claim>& given) const;
  const Claim& winner(const std::vector<Claim>& rivals);
  void compare(const Claim& first, const Claim& second);
  bool agree(const Claim& first, const Claim& second) const;
  bool is_set_option(const Claim& claim) const;
  void put(const Claim& claim);
  /// The map under a key, created if there is none; -1 if the key has another kind of value.
  int enter(int map, const std::string& key, const Span& span);

  YamlTree& tree_;
  int root_;
  Diagnostics& diagnostics_;
  std::vector<Claim> list_;
  std::set<int> owned_;  // maps that are shared with no alias
};

/// Whether two nodes mean the same value for the field at `path`: 0x10 and 16, bf16 and bfloat16.
bool same_value(const YamlTree& tree, const std::string& path, int first, int second);
/// A node as flow YAML, shortened.
std::string flow_text(const YamlTree& tree, int node);

}  // namespace trainctl
