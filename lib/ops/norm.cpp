#include "ops/norm.h"

#include "base/scratch.h"
#include "ops/check.h"

namespace trainctl {

namespace {

/// Whether `vector` is fp32 for layer_norm, and absent for rms_norm.
bool is_of_layer(NormKind kind, const Tensor& vector, std::int64_t length) {
  return kind == NormKind::layer_norm ? is_vector(vector, length, DType::f32) : vector.empty();
}

/// Whether `vector` is a valid weight or gradient of one; rms_norm may have none.
bool is_weight(NormKind kind, const Tensor& vector, std::int64_t length) {
  return is_vector(vector, length, DType::f32) || (kind == NormKind::rms_norm && vector.empty());
}

void check_input(std::string_view op, const Tensor& x) {
  check(is_matrix(x) && is_float(x), op, "x must be a matrix of fp32, bf16 or fp16", {{"x", x}});
}

void check_statistics(std::string_view op, NormKind kind, const Tensor& x, const Tensor& mean,
                      const Tensor& rstd) {
  check(is_of_layer(kind, mean, x.rows()) && is_vector(rstd, x.rows(), DType::f32), op,
        kind == NormKind::layer_norm
            ? "mean and rstd must be fp32 vectors with one element per row of x"
            : "rstd must be an fp32 vector with one element per row of x, and mean absent",
        {{"x", x}, {"mean", mean}, {"rstd", rstd}});
}

/// Checks `sums`: empty for whole rows, else the sums over the ranks that divide the rows.
void check_sums(std::string_view op, NormKind kind, const Tensor& x, const Tensor& sums,
                std::int64_t features) {
  const bool there = is_vector(sums, x.rows(), DType::f32) && features >= x.columns() &&
                     kind == NormKind::rms_norm;
  check(sums.empty() || there, op,
        "sums must be an fp32 vector with one element per row of x, of rms_norm over at least the "
        "columns of x",
        {{"x", x}, {"sums", sums}});
}

}  // namespace

void norm_forward(const OpContext& context, const NormForward& args) {
  const std::string_view op = title_of(name_of_forward(args.kind));
  const std::int64_t hidden = args.x.columns();
  check_input(op, args.x);
  check(is_like(args.y, args.x), op, "y must be as x", {{"x", args.x}, {"y", args.y}});
  check(args.residual.empty() || (same_kind(args.x, args.residual) && is_like(args.sum, args.x)),
        op, "residual and sum must be as x",
        {{"x", args.x}, {"residual", args.residual}, {"sum", args.sum}});
  check(is_weight(args.kind, args.weight, hidden) && is_of_layer(args.kind, args.bias, hidden), op,
        args.kind == NormKind::layer_norm
            ? "weight and bias must be fp32 vectors with one element per column of x"
            : "weight must be an fp32 vector with one element per column of x or absent, and "
              "bias absent",
        {{"x", args.x}, {"weight", args.weight}, {"bias", args.bias}});
  check_statistics(op, args.kind, args.x, args.mean, args.rstd);
  check_sums(op, args.kind, args.x, args.sums, args.features);
  dispatch(context, &Kernels::norm_forward, args, op);
}

void norm_backward(const OpContext& context, const NormBackward& args) {
  const std::string_view op = name_of_backward(args.kind);
  const std::int64_t hidden = args.x.columns();
  const bool layer = args.kind == NormKind::layer_norm;
  check_input(op, args.x);
  check(is_like(args.dy, args.x) && is_like(args.dx, args.x), op, "dy and dx must be as x",
        {{"x", args.x}, {"dy", args.dy}, {"dx", args.dx}});
  check(args.d_residual.empty() || same_kind(args.x, args.d_residual), op,
        "d_residual must be as x", {{"x", args.x}, {"d_residual", args.d_residual}});
  check(is_weight(args.kind, args.weight, hidden) && is_weight(args.kind, args.dweight, hidden) &&
            args.weight.empty() == args.dweight.empty() &&
            is_of_layer(args.kind, args.dbias, hidden),
        op,
        layer ? "weight, dweight and dbias must be fp32 vectors with one element per column of x"
              : "weight and dweight must be fp32 vectors with one element per column of x or both "
                "absent, and dbias absent",
        {{"x", args.x}, {"weight", args.weight}, {"dweight", args.dweight}, {"dbias", args.dbias}});
  check_statistics(op, args.kind, args.x, args.mean, args.rstd);
  check_sums(op, args.kind, args.x, args.sums, args.features);
  check(hidden * (layer ? 8 : 4) <= scratch_bytes_per_thread, op,
        "a row is too long for the scratch memory", {{"x", args.x}});
  dispatch(context, &Kernels::norm_backward, args, op);
}

void norm_sums(const OpContext& context, const NormSums& args) {
  constexpr std::string_view op = "norm_sums";
  check_input(op, args.x);
  check(args.dy.empty() ||
            (same_kind(args.x, args.dy) && is_vector(args.weight, args.x.columns(), DType::f32)),
        op, "dy must be as x, and weight an fp32 vector with one element per column of x",
        {{"x", args.x}, {"dy", args.dy}, {"weight", args.weight}});
  check(is_vector(args.sums, args.x.rows(), DType::f32), op,
        "sums must be an fp32 vector with one element per row of x",
        {{"x", args.x}, {"sums", args.sums}});
  dispatch(context, &Kernels::norm_sums, args, op);
}

}  // namespace trainctl
