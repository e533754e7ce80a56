#include "ops/gelu.h"

#include "ops/check.h"

namespace trainctl {

void gelu_forward(const OpContext& context, const GeluForward& args) {
  constexpr std::string_view op = "gelu";
  check(!args.x.empty() && is_float(args.x), op, "x must be fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.y.empty() && same_kind(args.x, args.y), op, "y must be as x",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::gelu_forward, args, "gelu_forward");
}

void gelu_backward(const OpContext& context, const GeluBackward& args) {
  constexpr std::string_view op = "gelu_backward";
  check(!args.x.empty() && is_float(args.x), op, "x must be fp32, bf16 or fp16", {{"x", args.x}});
  check(!args.dy.empty() && same_kind(args.x, args.dy) && !args.dx.empty() &&
            same_kind(args.x, args.dx),
        op, "dy and dx must be as x", {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  dispatch(context, &Kernels::gelu_backward, args, "gelu_backward");
}

}  // namespace trainctl
