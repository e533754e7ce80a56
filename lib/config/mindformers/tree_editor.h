// Moves values within a document by their dotted paths. Positions stay those of the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/yaml/tree.h"

namespace trainctl {

class TreeEditor {
 public:
  /// `root` is the node of a map.
  TreeEditor(YamlTree& tree, int root) : tree_(tree), root_(root) {}

  /// The entry at a path, or nullptr.
  const YamlEntry* find(std::string_view path) const;
  bool has(std::string_view path) const { return find(path) != nullptr; }
  /// The text of the scalar at a path; "" where there is none.
  std::string text(std::string_view path) const;
  /// The whole number from 1 to a million at a path, `fallback` where the path is absent, none for
  /// any other value.
  std::optional<std::int64_t> count(std::string_view path, std::int64_t fallback) const;
  /// Whether the value at a path is true; `fallback` where the path is absent.
  bool flag(std::string_view path, bool fallback) const;

  void remove(std::string_view path);
  /// Puts a node at a path, in place of another; missing sections are created.
  void put(std::string_view path, const Span& key_span, int value);
  /// A new scalar.
  int scalar(const std::string& text, const Span& span);

  YamlTree& tree() { return tree_; }
  const YamlTree& tree() const { return tree_; }
  int root() const { return root_; }

 private:
  YamlTree& tree_;
  int root_;
};

/// "true" for True and TRUE, "false" likewise; other text as it is.
std::string plain_word(const std::string& text);

}  // namespace trainctl
