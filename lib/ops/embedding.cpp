#include "ops/embedding.h"

#include "ops/check.h"

namespace trainctl {

void embedding_forward(const OpContext& context, const EmbeddingForward& args) {
  constexpr std::string_view op = "embedding";
  check(is_vector(args.indices, args.indices.numel(), DType::i32), op,
        "indices must be an i32 vector", {{"indices", args.indices}});
  check(!args.table.empty() && is_float(args.table) && args.table.shape.rank() == 2, op,
        "table must be a matrix of fp32, bf16 or fp16", {{"table", args.table}});
  check(!args.y.empty() && args.y.dtype == args.table.dtype &&
            args.y.shape == Shape{args.indices.numel(), args.table.columns()},
        op, "y must have one row per index, as wide and of the type of table",
        {{"indices", args.indices}, {"table", args.table}, {"y", args.y}});
  dispatch(context, &Kernels::embedding_forward, args, "embedding_forward");
}

void embedding_backward(const OpContext& context, const EmbeddingBackward& args) {
  constexpr std::string_view op = "embedding_backward";
  check(is_vector(args.indices, args.indices.numel(), DType::i32), op,
        "indices must be an i32 vector", {{"indices", args.indices}});
  check(!args.dy.empty() && is_float(args.dy) && args.dy.shape.rank() == 2 &&
            args.dy.shape[0] == args.indices.numel(),
        op, "dy must be a matrix of fp32, bf16 or fp16 with one row per index",
        {{"indices", args.indices}, {"dy", args.dy}});
  check(!args.dtable.empty() && args.dtable.dtype == DType::f32 && args.dtable.shape.rank() == 2 &&
            args.dtable.columns() == args.dy.columns(),
        op, "dtable must be an fp32 matrix as wide as dy",
        {{"dy", args.dy}, {"dtable", args.dtable}});
  dispatch(context, &Kernels::embedding_backward, args, "embedding_backward");
}

}  // namespace trainctl
