// What becomes of the values of a MindFormers file: moved, ignored with a reason, or refused.
#pragma once

#include <string>

#include "config/mindformers/tree_editor.h"
#include "config/report/diagnostics.h"
#include "config/upstream/claims.h"

namespace trainctl {

/// Where such a file has its model.
inline const std::string file_model = "model.model_config.";

struct MindformersFile {
  TreeEditor edit;
  Diagnostics& diagnostics;
  Spellings spellings{};  // of what was moved

  /// The value at `path` changes nothing here.
  void ignore(const std::string& path, const std::string& why, const Span& where);
  /// The value at `path` would change what is trained, and nothing here does the same.
  void refuse(const std::string& path, const std::string& what, const std::string& help,
              const Span& where);
  /// Moves the entry at `from` to `to` with another text.
  void move(const std::string& from, const std::string& to, const std::string& text);
  /// Gives a value that follows from others, at a place; nothing where `to` is there.
  void give(const std::string& to, const std::string& text, const Span& where);
};

}  // namespace trainctl
