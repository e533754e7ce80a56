#include "ops/attention_merge.h"

#include "ops/check.h"

namespace trainctl {

void attention_merge(const OpContext& context, const AttentionMerge& args) {
  constexpr std::string_view op = "attention_merge";
  const AttentionShape& shape = args.shape;
  const Shape queries{shape.sequences * shape.query_length, shape.heads * shape.head_dim};
  check(!args.out.empty() && is_float(args.out) && args.out.shape == queries &&
            same_kind(args.out, args.other),
        op, "out and other must be of shape " + queries.to_string(),
        {{"out", args.out}, {"other", args.other}});
  const Shape rows{shape.sequences, shape.heads, shape.query_length};
  check(args.logsumexp.shape == rows && args.logsumexp.dtype == DType::f32 &&
            same_kind(args.logsumexp, args.other_logsumexp),
        op, "both logsumexp must be fp32 [sequences, heads, query_length]",
        {{"logsumexp", args.logsumexp}, {"other_logsumexp", args.other_logsumexp}});
  dispatch(context, &Kernels::attention_merge, args, op);
}

}  // namespace trainctl
