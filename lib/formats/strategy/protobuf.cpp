// The protobuf forms of the strategy file and the group file. Required fields are checked here:
// the library only says that something is missing.
#include <climits>
#include <limits>

#include "base/error.h"
#include "config/schema/values.h"
#include "formats/strategy/format.h"
#include "strategy.pb.h"

namespace trainctl {

namespace {

namespace proto = mindspore::straspb;

using Numbers = std::vector<std::int64_t>;

template <class Message>
void put(Message& message, const Numbers& numbers) {
  for (const std::int64_t number : numbers) {
    message.add_dim(
        static_cast<typename std::decay_t<decltype(message.dim())>::value_type>(number));
  }
}

template <class Message>
Numbers numbers_of(const Message& message) {
  return Numbers(message.dim().begin(), message.dim().end());
}

/// The one message of a field that is repeated in form only.
template <class Repeated>
Numbers single(const Repeated& field, const std::string& owner, const std::string& name) {
  if (field.size() != 1) {
    refuse_file(owner + " has " + std::to_string(field.size()) + " " + name +
                " messages instead of one");
  }
  return numbers_of(field.Get(0));
}

template <class Repeated>
Numbers at_most_one(const Repeated& field, const std::string& owner, const std::string& name) {
  return field.empty() ? Numbers{} : single(field, owner, name);
}

template <class Message>
void parse(std::string_view bytes, Message& message, const std::string& what) {
  if (bytes.size() > static_cast<std::size_t>(INT_MAX)) refuse_file("is larger than 2 GiB");
  if (!message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    refuse_file("expected a protobuf " + what);
  }
}

OperatorSplit operator_of(const proto::ParallelStrategyItem& item) {
  if (!item.has_node_name()) refuse_file("an operator has no node_name");
  OperatorSplit split;
  split.name = item.node_name();
  const std::string owner = "operator '" + shown(split.name) + "'";
  if (!item.has_parallel_strategys()) refuse_file(owner + " has no parallel_strategys");
  if (!item.parallel_strategys().has_stage()) refuse_file(owner + " has no stage");
  split.stage = item.parallel_strategys().stage();
  for (const proto::ParallelStrategy& input : item.parallel_strategys().parallel_strategy()) {
    split.inputs.push_back(numbers_of(input));
  }
  return split;
}

ParamLayout layout_of(const proto::ParallelLayoutItem& item) {
  if (!item.has_param_name()) refuse_file("a parameter has no param_name");
  ParamLayout layout;
  layout.name = item.param_name();
  const std::string owner = "parameter '" + shown(layout.name) + "'";
  if (!item.has_parallel_layouts()) refuse_file(owner + " has no parallel_layouts");
  const proto::ParallelLayouts& from = item.parallel_layouts();
  layout.dev_matrix = single(from.dev_matrix(), owner, "dev_matrix");
  layout.tensor_map = single(from.tensor_map(), owner, "tensor_map");
  layout.param_split_shape = at_most_one(from.param_split_shape(), owner, "param_split_shape");
  layout.indices_offset = at_most_one(from.indices_offset(), owner, "indices_offset");
  if (!from.has_field()) refuse_file(owner + " has no field");
  layout.field = from.field();
  layout.shard_step = from.opt_weight_shard_step();
  layout.shard_size = from.opt_weight_shard_size();
  return layout;
}

void put_operator(const OperatorSplit& split, proto::ParallelStrategyItem& item) {
  item.set_node_name(split.name);
  proto::ParallelStrategys& to = *item.mutable_parallel_strategys();
  to.set_stage(static_cast<std::uint32_t>(split.stage));
  for (const Numbers& input : split.inputs) put(*to.add_parallel_strategy(), input);
}

void put_layout(const ParamLayout& layout, proto::ParallelLayoutItem& item) {
  item.set_param_name(layout.name);
  proto::ParallelLayouts& to = *item.mutable_parallel_layouts();
  put(*to.add_dev_matrix(), layout.dev_matrix);
  put(*to.add_tensor_map(), layout.tensor_map);
  if (!layout.param_split_shape.empty()) put(*to.add_param_split_shape(), layout.param_split_shape);
  if (!layout.indices_offset.empty()) put(*to.add_indices_offset(), layout.indices_offset);
  to.set_field(static_cast<std::int32_t>(layout.field));
  to.set_opt_weight_shard_step(static_cast<std::int32_t>(layout.shard_step));
  to.set_opt_weight_shard_size(static_cast<std::int32_t>(layout.shard_size));
}

std::vector<int> ranks_of(const proto::ParallelGroupRanks& from) {
  std::vector<int> ranks;
  for (const std::uint32_t rank : from.dim()) {
    if (rank > static_cast<std::uint32_t>(INT_MAX)) {
      refuse_file("rank " + std::to_string(rank) + " is too large");
    }
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

std::string write_layouts_protobuf(const LayoutFile& file) {
  proto::ParallelStrategyMap map;
  map.set_current_stage(static_cast<std::uint32_t>(file.current_stage));
  for (const OperatorSplit& split : file.operators) {
    put_operator(split, *map.add_parallel_strategy_item());
  }
  for (const ParamLayout& layout : file.parameters) {
    put_layout(layout, *map.add_parallel_layout_item());
  }
  return map.SerializeAsString();
}

LayoutFile read_layouts_protobuf(std::string_view bytes) {
  proto::ParallelStrategyMap map;
  parse(bytes, map, "strategy file");
  if (!map.has_current_stage())
    refuse_file("expected a strategy file, found one without current_stage");
  LayoutFile file;
  file.current_stage = map.current_stage();
  for (const auto& item : map.parallel_strategy_item()) {
    file.operators.push_back(operator_of(item));
  }
  for (const auto& item : map.parallel_layout_item()) file.parameters.push_back(layout_of(item));
  return file;
}

std::string write_groups(const GroupFile& file) {
  proto::ParallelGroupMap map;
  for (const NamedGroup& group : file.groups) {
    proto::ParallelGroupItem& item = *map.add_parallel_group_item();
    item.set_group_name(group.name);
    for (const int rank : group.ranks) {
      item.mutable_parallel_group_ranks()->add_dim(static_cast<std::uint32_t>(rank));
    }
  }
  for (const int rank : file.restore_ranks) {
    map.mutable_ckpt_restore_rank_list()->add_dim(static_cast<std::uint32_t>(rank));
  }
  return map.SerializeAsString();
}

GroupFile read_groups(std::string_view bytes) {
  proto::ParallelGroupMap map;
  parse(bytes, map, "group file");
  GroupFile file;
  for (const proto::ParallelGroupItem& item : map.parallel_group_item()) {
    if (!item.has_group_name()) refuse_file("a group has no group_name");
    file.groups.push_back({item.group_name(), ranks_of(item.parallel_group_ranks())});
  }
  file.restore_ranks = ranks_of(map.ckpt_restore_rank_list());
  return file;
}

}  // namespace trainctl
