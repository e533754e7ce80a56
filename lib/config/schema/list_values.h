// Values that are lists, or a word or number or list: read from the tree and written as flow YAML.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "config/schema/field.h"
#include "config/schema/parallel_config.h"
#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The types of this header.
template <class Value>
concept ListValue = std::same_as<Value, IntList> || std::same_as<Value, DatasetSplit> ||
    std::same_as<Value, FusionValue>;

/// Each stores the value and returns nothing, or leaves it alone and returns what is wrong. The
/// field's range holds for each number of a list; a list has at least one.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 IntList& value);
/// data_parallel, full_batch, a list of lists, or the same as Python tuples: ((1, 8), (1, 8)).
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 DatasetSplit& value);
/// Nothing, a size of at least 1, or indices that rise from at least 0.
std::optional<Problem> read_list(const YamlTree& tree, int node, const Field& field,
                                 FusionValue& value);

/// "[1, 2]", "[[1, 8], [1, 8]]", "full_batch", "null"
std::string write_value(const IntList& value);
std::string write_value(const DatasetSplit& value);
std::string write_value(const FusionValue& value);

}  // namespace trainctl
