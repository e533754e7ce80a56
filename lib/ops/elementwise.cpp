#include "ops/elementwise.h"

#include <string>

#include "ops/check.h"

namespace trainctl {

void add(const OpContext& context, const Add& args) {
  check(args.a.empty() || is_float(args.a), "add", "a must be fp32, bf16 or fp16", {{"a", args.a}});
  const bool adds = !args.y.empty() && is_float(args.y) && !args.b.empty() &&
                    args.b.shape == args.y.shape &&
                    (args.b.dtype == args.y.dtype || args.b.dtype == DType::f32);
  check(adds && (args.a.empty() || same_kind(args.a, args.y)), "add",
        "a, b and y must have the same shape, a and y the same type, b that type or fp32",
        {{"a", args.a}, {"b", args.b}, {"y", args.y}});
  dispatch(context, &Kernels::add, args, "add");
}

void cast(const OpContext& context, const Cast& args) {
  check(!args.x.empty() && !args.y.empty() && is_float(args.x) && is_float(args.y), "cast",
        "x and y must be fp32, bf16 or fp16", {{"x", args.x}, {"y", args.y}});
  check(args.x.numel() == args.y.numel(), "cast", "x and y must have the same number of elements",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::cast, args, "cast");
}

void scaled_sum(const OpContext& context, const ScaledSum& args) {
  const auto fits = [&](const Tensor& one) {
    return !one.empty() && one.shape == args.x.shape &&
           (one.dtype == DType::f32 || one.dtype == DType::bf16);
  };
  check(fits(args.x) && (args.y.empty() || fits(args.y)) && fits(args.z), "scaled_sum",
        "x, z and y, where it is given, must have the same shape, in fp32 or bf16",
        {{"x", args.x}, {"y", args.y}, {"z", args.z}});
  dispatch(context, &Kernels::scaled_sum, args, "scaled_sum");
}

void normal_fill(const OpContext& context, const NormalFill& args) {
  check(!args.x.empty() && (args.x.dtype == DType::f32 || args.x.dtype == DType::bf16),
        "normal_fill", "x must be fp32 or bf16", {{"x", args.x}});
  check(args.first >= 0, "normal_fill", "first must not be negative", {{"x", args.x}});
  dispatch(context, &Kernels::normal_fill, args, "normal_fill");
}

void dropout(const OpContext& context, const Dropout& args) {
  constexpr std::string_view op = "dropout";
  check(is_matrix(args.x) && is_float(args.x), op, "x must be a matrix of fp32, bf16 or fp16",
        {{"x", args.x}});
  check(is_vector(args.global_token, args.x.rows(), DType::i64), op,
        "global_token must be an i64 vector with one element per row of x",
        {{"x", args.x}, {"global_token", args.global_token}});
  if (args.first_feature < 0 || args.first_feature + args.x.columns() > args.features) {
    fail_check(op,
               "x does not fit into " + std::to_string(args.features) + " features at feature " +
                   std::to_string(args.first_feature),
               {{"x", args.x}});
  }
  check(args.key.state != nullptr, op, "key.state is missing", {{"x", args.x}});
  if (!(args.key.probability > 0.0F && args.key.probability < 1.0F)) {
    fail_check(op, "probability " + std::to_string(args.key.probability) + " is not in (0, 1)",
               {{"x", args.x}});
  }
  dispatch(context, &Kernels::dropout, args, op);
}

}  // namespace trainctl
