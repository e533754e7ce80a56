#include "ops/rows.h"

#include "ops/check.h"

namespace trainctl {

namespace {

/// Checks `tokens` [T, F], and `rows` [N, F] to which the slots refer.
void check_slots(std::string_view op, const Tensor& tokens, const Tensor& slot,
                 const Tensor& rows) {
  check(is_matrix(tokens) && is_float(tokens), op, "x must be [rows, features] of floats",
        {{"x", tokens}});
  check(is_matrix(rows) && rows.dtype == tokens.dtype && rows.shape[1] == tokens.shape[1], op,
        "x and y must have rows of the same kind", {{"x", tokens}, {"y", rows}});
  check(is_matrix(slot) && slot.dtype == DType::i32 && slot.shape[0] == tokens.shape[0], op,
        "slot must be [tokens, choices] i32", {{"slot", slot}, {"tokens", tokens}});
}

void check_weight(std::string_view op, const Tensor& x, const Tensor& weight) {
  check(is_matrix(x) && is_float(x), op, "x must be [rows, features] of floats", {{"x", x}});
  check(is_vector(weight, x.shape[0], DType::f32), op, "weight must be [rows] fp32",
        {{"x", x}, {"weight", weight}});
}

}  // namespace

void spread_rows(const OpContext& context, const MoveRows& args) {
  check_slots("spread_rows", args.x, args.slot, args.y);
  dispatch(context, &Kernels::spread_rows, args, "spread_rows");
}

void collect_rows(const OpContext& context, const MoveRows& args) {
  check_slots("collect_rows", args.y, args.slot, args.x);
  dispatch(context, &Kernels::collect_rows, args, "collect_rows");
}

void scale_rows(const OpContext& context, const ScaleRows& args) {
  constexpr std::string_view op = "scale_rows";
  check_weight(op, args.x, args.weight);
  check(is_like(args.y, args.x), op, "y must be as x", {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::scale_rows, args, "scale_rows");
}

void scale_rows_backward(const OpContext& context, const ScaleRows& args) {
  constexpr std::string_view op = "scale_rows_backward";
  check_weight(op, args.x, args.weight);
  check(is_like(args.dy, args.x) && is_like(args.dx, args.x), op, "dy and dx must be as x",
        {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  check(is_vector(args.d_weight, args.x.shape[0], DType::f32), op, "d_weight must be as weight",
        {{"weight", args.weight}, {"d_weight", args.d_weight}});
  dispatch(context, &Kernels::scale_rows_backward, args, "scale_rows_backward");
}

void bias_rows(const OpContext& context, const BiasRows& args) {
  constexpr std::string_view op = "bias_rows";
  check_weight(op, args.y, args.weight);
  check(is_vector(args.bias, args.y.shape[1], DType::f32), op, "bias must be [features] fp32",
        {{"y", args.y}, {"bias", args.bias}});
  dispatch(context, &Kernels::bias_rows, args, "bias_rows");
}

void bias_rows_backward(const OpContext& context, const BiasRows& args) {
  constexpr std::string_view op = "bias_rows_backward";
  check_weight(op, args.dy, args.weight);
  for (const Tensor& vector : {args.bias, args.d_bias}) {
    check(is_vector(vector, args.dy.shape[1], DType::f32), op,
          "bias and d_bias must be [features] fp32",
          {{"dy", args.dy}, {"bias", args.bias}, {"d_bias", args.d_bias}});
  }
  check(args.d_weight.empty() || is_vector(args.d_weight, args.dy.shape[0], DType::f32), op,
        "d_weight must be as weight", {{"weight", args.weight}, {"d_weight", args.d_weight}});
  dispatch(context, &Kernels::bias_rows_backward, args, "bias_rows_backward");
}

void embedding_forward(const OpContext& context, const EmbeddingArgs& args) {
  constexpr std::string_view op = "embedding";
  check(is_vector(args.indices, args.indices.numel(), DType::i32), op,
        "indices must be an i32 vector", {{"indices", args.indices}});
  check(is_matrix(args.table) && is_float(args.table), op,
        "table must be a matrix of fp32, bf16 or fp16", {{"table", args.table}});
  check(!args.y.empty() && args.y.dtype == args.table.dtype &&
            args.y.shape == Shape{args.indices.numel(), args.table.columns()},
        op, "y must have one row per index, as wide and of the type of table",
        {{"indices", args.indices}, {"table", args.table}, {"y", args.y}});
  dispatch(context, &Kernels::embedding_forward, args, "embedding_forward");
}

void embedding_backward(const OpContext& context, const EmbeddingArgs& args) {
  constexpr std::string_view op = "embedding_backward";
  check(is_vector(args.indices, args.indices.numel(), DType::i32), op,
        "indices must be an i32 vector", {{"indices", args.indices}});
  check(is_matrix(args.dy) && is_float(args.dy) && args.dy.shape[0] == args.indices.numel(), op,
        "dy must be a matrix of fp32, bf16 or fp16 with one row per index",
        {{"indices", args.indices}, {"dy", args.dy}});
  check(is_matrix(args.dtable, DType::f32) && args.dtable.columns() == args.dy.columns(), op,
        "dtable must be an fp32 matrix as wide as dy", {{"dy", args.dy}, {"dtable", args.dtable}});
  dispatch(context, &Kernels::embedding_backward, args, "embedding_backward");
}

void bias_gradient(const OpContext& context, const BiasGradient& args) {
  check(is_matrix(args.dy) && is_float(args.dy), "bias_gradient",
        "dy must be a matrix of fp32, bf16 or fp16", {{"dy", args.dy}});
  check(is_vector(args.db, args.dy.columns(), DType::f32), "bias_gradient",
        "db must be an fp32 vector with one element per column of dy",
        {{"dy", args.dy}, {"db", args.db}});
  dispatch(context, &Kernels::bias_gradient, args, "bias_gradient");
}

void copy_rows(const OpContext& context, const CopyRows& args) {
  constexpr std::string_view op = "copy_rows";
  check(
      args.rows > 0 && args.length > 0 && args.x_step >= args.length && args.y_step >= args.length,
      op, "there must be rows, at least as far apart as they are long",
      {{"x", args.x}, {"y", args.y}});
  check(!args.x.empty() && !args.y.empty() && args.x.dtype == args.y.dtype &&
            args.x.data != args.y.data &&
            args.x.numel() >= reach_of(args.rows, args.length, args.x_step) &&
            args.y.numel() >= reach_of(args.rows, args.length, args.y_step),
        op, "x and y must be different memory of one type that holds all rows",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::copy_rows, args, op);
}

void swap_blocks(const OpContext& context, const SwapBlocks& args) {
  constexpr std::string_view op = "swap_blocks";
  const bool whole = args.rows > 0 && args.columns > 0 && !args.x.empty() &&
                     args.x.numel() % (args.rows * args.columns) == 0;
  check(whole && args.x.numel() == args.y.numel() && args.x.dtype == args.y.dtype &&
            args.x.data != args.y.data,
        op, "x and y must be different memory of one type, with rows x columns equal blocks",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::swap_blocks, args, op);
}

}  // namespace trainctl
