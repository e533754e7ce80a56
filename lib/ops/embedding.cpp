#include "ops/embedding.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_positions(std::string_view op, const Tensor& tokens, const Tensor& position,
                     const Tensor& table, std::int64_t hidden) {
  check(position.empty() == table.empty(), op, "position and its table go together",
        {{"position", position}, {"table", table}});
  check(position.empty() || (is_vector(position, tokens.numel(), DType::i32) &&
                             table.shape.rank() == 2 && table.columns() == hidden),
        op, "position must be an i32 vector as long as tokens, its table as wide as y",
        {{"tokens", tokens}, {"position", position}, {"table", table}});
}

}  // namespace

void embedding_forward(const OpContext& context, const EmbeddingForward& args) {
  constexpr std::string_view op = "embedding";
  check(is_vector(args.tokens, args.tokens.numel(), DType::i32), op, "tokens must be an i32 vector",
        {{"tokens", args.tokens}});
  check(!args.table.empty() && is_float(args.table) && args.table.shape.rank() == 2, op,
        "table must be a matrix of fp32 or bf16", {{"table", args.table}});
  check(!args.y.empty() && args.y.dtype == args.table.dtype &&
            args.y.shape == Shape{args.tokens.numel(), args.table.columns()},
        op, "y must have one row per token, as wide and of the type of table",
        {{"tokens", args.tokens}, {"table", args.table}, {"y", args.y}});
  check_positions(op, args.tokens, args.position, args.position_table, args.table.columns());
  check(args.position_table.empty() || args.position_table.dtype == args.table.dtype, op,
        "position_table must have the type of table",
        {{"table", args.table}, {"position_table", args.position_table}});
  dispatch(context, &Kernels::embedding_forward, args, "embedding_forward");
}

void embedding_backward(const OpContext& context, const EmbeddingBackward& args) {
  constexpr std::string_view op = "embedding_backward";
  check(is_vector(args.tokens, args.tokens.numel(), DType::i32), op, "tokens must be an i32 vector",
        {{"tokens", args.tokens}});
  check(!args.dy.empty() && is_float(args.dy) && args.dy.shape.rank() == 2 &&
            args.dy.shape[0] == args.tokens.numel(),
        op, "dy must be a matrix of fp32 or bf16 with one row per token",
        {{"tokens", args.tokens}, {"dy", args.dy}});
  check(!args.dtable.empty() && args.dtable.dtype == DType::f32 && args.dtable.shape.rank() == 2 &&
            args.dtable.columns() == args.dy.columns(),
        op, "dtable must be an fp32 matrix as wide as dy",
        {{"dy", args.dy}, {"dtable", args.dtable}});
  check_positions(op, args.tokens, args.position, args.dposition_table, args.dy.columns());
  check(args.dposition_table.empty() || args.dposition_table.dtype == DType::f32, op,
        "dposition_table must be fp32", {{"dposition_table", args.dposition_table}});
  dispatch(context, &Kernels::embedding_backward, args, "embedding_backward");
}

}  // namespace trainctl
