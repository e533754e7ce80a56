#include "ops/swiglu.h"

#include "ops/check.h"

namespace trainctl {

void swiglu_forward(const OpContext& context, const SwigluForward& args) {
  constexpr std::string_view op = "swiglu";
  check(!args.gate.empty() && is_float(args.gate), op, "gate must be fp32, bf16 or fp16",
        {{"gate", args.gate}});
  check(!args.up.empty() && same_kind(args.gate, args.up) && !args.y.empty() &&
            same_kind(args.gate, args.y),
        op, "up and y must be as gate", {{"gate", args.gate}, {"up", args.up}, {"y", args.y}});
  dispatch(context, &Kernels::swiglu_forward, args, "swiglu_forward");
}

void swiglu_backward(const OpContext& context, const SwigluBackward& args) {
  constexpr std::string_view op = "swiglu_backward";
  check(!args.gate.empty() && is_float(args.gate), op, "gate must be fp32, bf16 or fp16",
        {{"gate", args.gate}});
  check(!args.up.empty() && same_kind(args.gate, args.up) && !args.dy.empty() &&
            same_kind(args.gate, args.dy),
        op, "up and dy must be as gate", {{"gate", args.gate}, {"up", args.up}, {"dy", args.dy}});
  check(!args.dgate.empty() && same_kind(args.gate, args.dgate) && !args.dup.empty() &&
            same_kind(args.gate, args.dup),
        op, "dgate and dup must be as gate",
        {{"gate", args.gate}, {"dgate", args.dgate}, {"dup", args.dup}});
  dispatch(context, &Kernels::swiglu_backward, args, "swiglu_backward");
}

}  // namespace trainctl
