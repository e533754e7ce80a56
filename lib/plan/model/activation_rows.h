// Collects the rows of the activation table (activations.h); internal to activations.cpp and
// expert_rows.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/model/activations.h"

namespace trainctl {

struct Life {
  Storage storage = Storage::forward;
  Moment from = Moment::forward;
  Moment until = Moment::weight;
};

inline constexpr Life shared{Storage::shared, Moment::fetch, Moment::weight};
inline constexpr Life unit_input{Storage::input, Moment::input, Moment::backward};
inline constexpr Life for_backward{Storage::forward, Moment::forward, Moment::backward};
inline constexpr Life for_weight{Storage::forward, Moment::forward, Moment::weight};
inline constexpr Life made_again{Storage::repeated, Moment::repeat, Moment::weight};
inline constexpr Life on_host{Storage::host, Moment::offload, Moment::reload};
inline constexpr Life reloaded{Storage::staged, Moment::reload, Moment::weight};
inline constexpr Life host_counts{Storage::counted, Moment::forward, Moment::weight};
inline constexpr Life while_forward{Storage::exchanged, Moment::forward, Moment::forward};
inline constexpr Life while_backward{Storage::exchanged, Moment::backward, Moment::backward};
inline constexpr Life from_repeat{Storage::exchanged, Moment::repeat, Moment::backward};
inline constexpr Life output_gradient{Storage::gradient, Moment::backward, Moment::weight};

/// Collects rows; the sizes have the names of the list in the header. Rows get the unit and the
/// chunk that are set at the time.
struct Rows {
  std::vector<ActivationSpec> list;
  DType compute = DType::f32;
  int unit = -1;
  int chunk = -1;
  RowKind kind = RowKind::all;
  BlockForm form{};    // of the unit
  bool again = false;  // what is being added is made again

  void add(const std::string& name, const Shape& shape, DType dtype, Life life) {
    const bool made = life.storage == Storage::forward || life.storage == Storage::statistic;
    const bool kept = (made || life.storage == Storage::input) && life.until >= Moment::repeat;
    if (again && made) {
      push(first_prefix + name, shape, dtype,
           {Storage::repeated, Moment::forward, Moment::forward});
      life = made_again;
    } else if (form.on_host && kept) {
      push(first_prefix + name, shape, dtype, {Storage::staged, life.from, Moment::offload});
      push(host_prefix + name, shape, dtype, on_host);
      life = reloaded;
    }
    push(name, shape, dtype, life);
  }
  void row(const std::string& name, std::int64_t rows, std::int64_t features, Life life) {
    add(name, Shape{rows, features}, compute, life);
  }
  void statistic(const std::string& name, std::int64_t rows) {
    add(name, Shape{rows}, DType::f32, {Storage::statistic, Moment::forward, Moment::backward});
  }
  /// What is added next belongs to a part of the block's forward.
  void begin(BlockPart part) { again = form.repeats(part); }
  void end() { again = false; }

 private:
  void push(const std::string& name, const Shape& shape, DType dtype, Life life) {
    const bool own = life.storage != Storage::shared;
    list.push_back({name, shape, dtype, life.storage, life.from, life.until, own ? unit : -1,
                    own ? chunk : -1, own ? kind : RowKind::all});
  }
};

/// What the rows of one stage are made from.
struct StageShare {
  const ActivationInput& input;
  const ModelShape& model;
  const BlockSplit split;      // of the block that is being added
  const ContextSplit context;  // the same
  const EndShape ends;
  const LocalShape local;

  /// Of a unit of the model; 0: of none of its blocks.
  StageShare(const ActivationInput& of, int unit)
      : input(of),
        model(of.model),
        split(of.splits.of_unit(unit)),
        context(of.context.of_unit(unit)),
        ends(end_shape(of.model, {of.mesh, of.micro_batch_size, of.sequence_parallel},
                       of.splits.head)),
        local(local_shape(layer_form(of.model, unit - 1),
                          {of.mesh, of.micro_batch_size, of.sequence_parallel}, split,
                          of.exchange)) {}

  Layout stream() const { return input.sequence_parallel ? Layout::tokens : Layout::invariant; }
  /// The ranks that exchange tokens for heads: context-parallel ones, or tensor-parallel ones.
  std::int64_t head_ranks() const { return context.heads * local.head_ranks; }
  /// What attention works on: all tokens of these ranks, of a part of the heads.
  std::int64_t attended_tokens() const { return local.attention_rows * head_ranks(); }
  std::int64_t attended_q() const { return local.q / head_ranks(); }
  std::int64_t attended_kv() const { return local.kv / head_ranks(); }
  /// Heads of all those tokens.
  std::int64_t attended_heads() const { return local.attention_rows * local.heads; }
  bool attends_like(const StageShare& other) const {
    return split.attention == other.split.attention && context == other.context;
  }
};

}  // namespace trainctl
