// Parts of the reader of MindFormers files: the moved and refused values, the model, and Muon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/upstream/upstream.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// "true" for True and TRUE, "false" for False and FALSE; returns other text unchanged.
std::string plain_word(const std::string& text);

// Values of a MindFormers file: each is moved, ignored with a reason, or refused.

/// The section of a MindFormers file that describes the model.
inline const std::string file_model = "model.model_config.";

struct MindformersFile {
  YamlTree& tree;
  int root;  // the node of a map in `tree`
  Diagnostics& diagnostics;
  Spellings spellings{};  // original spellings of moved values

  /// The entry at a dotted path, or nullptr.
  const YamlEntry* find(std::string_view path) const { return tree.find_path(root, path); }
  bool has(std::string_view path) const { return find(path) != nullptr; }
  bool is_map(std::string_view path) const;
  /// The text of the scalar at a path; "" if there is none.
  std::string text(std::string_view path) const { return tree.text_at(root, path); }
  /// The integer from 1 to 1,000,000 at a path; `fallback` if the path is absent, none for any
  /// other value.
  std::optional<std::int64_t> count(std::string_view path, std::int64_t fallback) const;
  /// Whether the value at a path is true; `fallback` if the path is absent.
  bool flag(std::string_view path, bool fallback) const;
  void remove(std::string_view path);
  /// Puts the node `value` at a path or replaces the one there; creates missing sections.
  void put(std::string_view path, const Span& key_span, int value);

  /// Ignores the value at `path`, which has no effect here, with a warning.
  void ignore(const std::string& path, const std::string& why, const Span& where);
  /// Refuses the value at `path`, which affects training but has no counterpart here.
  void refuse(const std::string& path, const std::string& what, const std::string& help,
              const Span& where);
  /// Moves the entry at `from` to `to` and replaces its text.
  void move(const std::string& from, const std::string& to, const std::string& text);
  /// Sets `to` to a value that follows from others; no effect if `to` is already set.
  void give(const std::string& to, const std::string& text, const Span& where);
};

// Finds the model family of a MindFormers file.

/// Removes the names of the model (type, model_type, architectures) and the words about its layers
/// from model.model_config and writes model.family. The family is never guessed: a file is refused
/// if it names neither gpt2 nor llama, names another network, or contradicts itself. Returns the
/// key of ours that the model's name switches on; "" if none.
std::string name_family(MindformersFile& file);

// Keys of our model that several keys of a MindFormers file determine together.

/// Sets the width of the MLP, RoPE scaling and the experts from model.model_config. (The keys of
/// section moe_config are rows of upstream.h.) Call it after the keys with a single counterpart
/// have been moved.
void derive_model(MindformersFile& file);

// Muon in the YAML files of other programs: MindFormers' `optimizer: {type: Muon}` and
// LLaMA-Factory's `optim_config: {name: muon}`.

class MuonOfFile {
 public:
  /// Moves the keys of Muon to our section optimizer, with the other program's defaults where ours
  /// differ. No effect for files without either form. `is_mindformers`: a MindFormers file.
  MuonOfFile(MindformersFile& file, bool is_mindformers);
  /// Adds the resulting entries of optimizer.groups, after the model has our keys.
  void give_groups();

 private:
  void take_mindformers();
  void take_llama_factory();
  void move(const std::string& from, const char* to);
  void move_betas(const std::string& from, const char* first, const char* second);
  void give(const char* to, const char* value);
  void put_coefficients(const std::string& from);
  void settle_clipping();

  MindformersFile& file_;
  Span where_{};
  bool found_ = false;
  bool decays_all_ = false;  // weight decay also applies to vectors
};

}  // namespace trainctl
