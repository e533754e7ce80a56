// Values on their way to their canonical place: several spellings may claim one place, and only
// equal ones may.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// Canonical path -> the key as it was written, for values that came through an upstream spelling.
using Spellings = std::map<std::string, std::string>;

/// One value that was written under `spelling` and belongs at `path`.
struct Claim {
  std::string path;
  std::string spelling;  // as written: "parallel_config.model_parallel"
  Span key_span;
  int node = 0;
  bool weak = false;  // gives way to another value, except where that contradicts it: full_batch
};

class Claims {
 public:
  Claims(YamlTree& tree, int root, Diagnostics& diagnostics)
      : tree_(tree), root_(root), diagnostics_(diagnostics) {}

  /// A map is taken apart, so that each of its keys is a claim of its own.
  void add(const Claim& claim);
  /// A node of its own with the same content, which now carries the mark to override, if any.
  int copy(int node);
  /// Puts the winner of each path into the tree; adds "two-spellings".
  Spellings settle();

 private:
  void add_parts(const Claim& claim, int depth);
  /// The claims for a path, with what stands there already, in order of the text.
  std::vector<Claim> rivals(const std::vector<Claim>& given) const;
  const Claim& winner(const std::vector<Claim>& rivals);
  void compare(const Claim& first, const Claim& second);
  bool agree(const Claim& first, const Claim& second) const;
  bool is_set_option(const Claim& claim) const;
  void put(const Claim& claim);
  /// The map behind a key, made where there is none; -1 where something else stands there.
  int enter(int map, const std::string& key, const Span& span);

  YamlTree& tree_;
  int root_;
  Diagnostics& diagnostics_;
  std::vector<Claim> list_;
  std::set<int> owned_;  // maps that no alias shares
};

/// Whether two nodes mean the same value for the field at `path`: 0x10 and 16, bf16 and bfloat16.
bool same_value(const YamlTree& tree, const std::string& path, int first, int second);
/// A node as flow YAML, shortened.
std::string flow_text(const YamlTree& tree, int node);

}  // namespace trainctl
