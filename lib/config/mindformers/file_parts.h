// The parts of the reader of MindFormers files: the editor of its tree, its report, its model and
// Muon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/upstream/upstream.h"
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

// The values of a MindFormers file, each of which is moved, ignored with a reason, or refused.

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

// Which family the model of a MindFormers file is of.

/// Takes the names of the model (type, model_type, architectures) and the words about its layers
/// out of model.model_config and writes model.family. The family is never guessed: a file that
/// describes another network than gpt2 or llama, contradicts itself, or describes neither is
/// refused. Returns the key of ours that the name of the model switches on, "" for none.
std::string name_family(MindformersFile& file);

// The model of a MindFormers file as far as several of its keys give one of ours.

/// The width of the MLP, RoPE's scaling and the experts in model.model_config. (Those of the
/// section moe_config are rows of upstream.h.) Called when the keys with one counterpart each have
/// been moved.
void derive_model(MindformersFile& file);

// Muon in the YAML files of other programs: MindFormers' `optimizer: {type: Muon}` and
// LLaMA-Factory's `optim_config: {name: muon}`.

class MuonOfFile {
 public:
  /// Moves its keys to our section optimizer, with its defaults where ours differ. Nothing happens
  /// in files that have neither of both. `is_mindformers`: the file is one of MindFormers.
  MuonOfFile(MindformersFile& file, bool is_mindformers);
  /// The entries of optimizer.groups that follow, once the model has our keys.
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
  bool decays_all_ = false;  // weight decay also on vectors
};

}  // namespace trainctl
