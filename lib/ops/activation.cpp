#include "ops/activation.h"

#include "ops/check.h"

namespace trainctl {

namespace {

void check_form(std::string_view op, bool gated, const GateForm& form) {
  check((gated || form.is_plain()) && form.limit >= 0, op,
        "only a gated activation has an offset and a limit, which is not negative", {});
}

}  // namespace

void activation_forward(const OpContext& context, const ActivationArgs& args) {
  const std::string_view op = title_of(name_of_forward(args.kind, !args.up.empty()));
  check(!args.x.empty() && is_float(args.x), op, "x must be fp32, bf16 or fp16", {{"x", args.x}});
  check(is_like(args.y, args.x), op, "y must be as x", {{"x", args.x}, {"y", args.y}});
  check(args.up.empty() || same_kind(args.x, args.up), op, "up must be as x",
        {{"x", args.x}, {"up", args.up}});
  check_form(op, !args.up.empty(), args.form);
  dispatch(context, &Kernels::activation_forward, args, op);
}

void activation_backward(const OpContext& context, const ActivationArgs& args) {
  const std::string_view op = name_of_backward(args.kind, !args.up.empty());
  check(!args.x.empty() && is_float(args.x), op, "x must be fp32, bf16 or fp16", {{"x", args.x}});
  check(is_like(args.dy, args.x) && is_like(args.dx, args.x), op, "dy and dx must be as x",
        {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  check(
      args.up.empty() ? args.dup.empty() : same_kind(args.x, args.up) && is_like(args.dup, args.x),
      op, "up and dup must be as x, or both absent",
      {{"x", args.x}, {"up", args.up}, {"dup", args.dup}});
  check_form(op, !args.up.empty(), args.form);
  dispatch(context, &Kernels::activation_backward, args, op);
}

}  // namespace trainctl
