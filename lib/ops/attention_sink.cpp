#include "ops/attention_sink.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_heads(std::string_view op, const AttentionShape& shape, const Tensor& sinks,
                 const Tensor& out, const Tensor& logsumexp) {
  const Shape queries{shape.sequences * shape.query_length, shape.heads * shape.head_dim};
  check(!out.empty() && is_float(out) && out.shape == queries, op,
        "out must be of shape " + queries.to_string(), {{"out", out}});
  const Shape rows{shape.sequences, shape.heads, shape.query_length};
  check(logsumexp.shape == rows && logsumexp.dtype == DType::f32, op,
        "logsumexp must be fp32 [sequences, heads, query_length]", {{"logsumexp", logsumexp}});
  check(is_vector(sinks, shape.heads, DType::f32), op,
        "sinks must be an fp32 vector with one element per head", {{"sinks", sinks}});
}

}  // namespace

void attention_sink_forward(const OpContext& context, const AttentionSinkForward& args) {
  constexpr std::string_view op = "attention_sink_forward";
  check_heads(op, args.shape, args.sinks, args.out, args.logsumexp);
  dispatch(context, &Kernels::attention_sink_forward, args, op);
}

void attention_sink_backward(const OpContext& context, const AttentionSinkBackward& args) {
  constexpr std::string_view op = "attention_sink_backward";
  check_heads(op, args.shape, args.sinks, args.out, args.logsumexp);
  check(same_kind(args.out, args.d_out), op, "d_out must be as out",
        {{"out", args.out}, {"d_out", args.d_out}});
  check(is_vector(args.d_sinks, args.shape.heads, DType::f32), op,
        "d_sinks must be an fp32 vector with one element per head", {{"d_sinks", args.d_sinks}});
  dispatch(context, &Kernels::attention_sink_backward, args, op);
}

}  // namespace trainctl
