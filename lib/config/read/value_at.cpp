#include "config/read/value_at.h"

#include <string_view>
#include <vector>

#include "config/schema/fields.h"
#include "config/schema/read_field.h"

namespace trainctl {
namespace {

/// The visitor that reads a node into the field at a path.
struct ValueSetter {
  const YamlTree& tree;
  int node = 0;
  std::string_view path;  // what is left of it below this section
  std::optional<Problem> problem = Problem{"unknown-key", "", ""};

  template <class Value>
  void operator()(Value& value, const Field& field) {
    if (path != field.key) return;
    problem =
        field.is_internal ? Problem{"internal-key", "", ""} : read_field(tree, node, field, value);
  }
  void operator()(std::vector<DataSource>& sources, const Field& field) {
    if (path != field.key) return;
    const YamlNode& given = tree.node(node);
    if (given.kind == YamlNode::Kind::sequence) {
      problem.reset();
    } else if (!(problem = read_value(given, Field{}.from(1), sources.emplace_back().path))) {
      sources = {sources.back()};
    }
  }
  void operator()(std::vector<LayerEntry>&, const Field& field) {
    if (path != field.key) return;
    const YamlNode& given = tree.node(node);
    problem.reset();
    if (given.kind == YamlNode::Kind::scalar || given.kind == YamlNode::Kind::map) {
      problem = wrong_type(given, "a list of kinds of layers");
    }
  }
  template <class Section>
  void section(Section& value, const Field& field) {
    if (path == field.key) {
      const YamlNode::Kind kind = tree.node(node).kind;
      problem.reset();
      if (kind != YamlNode::Kind::map && kind != YamlNode::Kind::null) {
        problem = wrong_type(tree.node(node), "a map of keys");
      }
      return;
    }
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos || path.substr(0, dot) != field.key) return;
    ValueSetter inner{tree, node, path.substr(dot + 1)};
    fields(inner, value);
    problem = std::move(inner.problem);
  }
};

std::optional<Problem> set(Config& config, const std::string& path, const YamlTree& tree,
                           int node) {
  ValueSetter setter{tree, node, path};
  fields(setter, config);
  return std::move(setter.problem);
}

}  // namespace

std::optional<Problem> problem_at(const std::string& path, const YamlTree& tree, int node) {
  Config scratch;
  return set(scratch, path, tree, node);
}

std::optional<Problem> set_value(Config& config, const std::string& path, const std::string& text) {
  YamlTree tree;
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = text;
  const int index = tree.add_node(std::move(node));
  return set(config, path, tree, index);
}

}  // namespace trainctl
