#include "config/upstream/own_words.h"

#include <optional>
#include <type_traits>

#include "config/schema/fields.h"
#include "config/schema/read_field.h"

namespace trainctl {
namespace {

/// The visitor over one section's keys.
class WordWriter {
 public:
  WordWriter(YamlTree& tree, int map) : tree_(tree), map_(map) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    if constexpr (std::is_enum_v<Value>) {
      rewrite(value, field);
    } else if constexpr (std::is_same_v<Value, CpCommTypes>) {
      rewrite_layers(field);
    }
  }
  template <class Value>
  void operator()(const std::optional<Value>&, const Field& field) {
    if constexpr (std::is_enum_v<Value>) rewrite(Value{}, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr || tree_.node(entry->value).kind != YamlNode::Kind::map) return;
    WordWriter inner(tree_, entry->value);
    fields(inner, value);
  }

 private:
  template <class Choice>
  void rewrite(Choice value, const Field& field) {
    YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr || read_field(tree_, entry->value, field, value)) return;
    YamlNode node = tree_.node(entry->value);  // an alias may share it
    if (node.scalar.find("${") != std::string::npos || node.scalar == word_of(value)) return;
    node.scalar = word_of(value);
    const int made = tree_.add_node(std::move(node));
    tree_.find(map_, field.key)->value = made;
  }

  /// Each word of a list, or the one.
  void rewrite_layers(const Field& field) {
    const YamlEntry* entry = tree_.find(map_, field.key);
    if (entry == nullptr) return;
    if (tree_.node(entry->value).kind != YamlNode::Kind::sequence) {
      return rewrite(CpCommType{}, field);
    }
    for (std::size_t i = 0; i < tree_.node(entry->value).items.size(); ++i) {
      YamlNode word = tree_.node(tree_.node(entry->value).items[i]);
      CpCommTypes types;
      if (read_field(tree_, tree_.node(entry->value).items[i], field, types)) continue;
      word.scalar = word_of(types.layers.front());
      if (types.layers.size() > 1) word.scalar += "*" + std::to_string(types.layers.size());
      const int made = tree_.add_node(std::move(word));
      tree_.nodes[static_cast<std::size_t>(entry->value)].items[i] = made;
      entry = tree_.find(map_, field.key);
    }
  }

  YamlTree& tree_;
  int map_;
};

}  // namespace

void write_own_words(YamlTree& tree, int root) {
  const Config config;
  WordWriter writer(tree, root);
  fields(writer, config);
}

}  // namespace trainctl
