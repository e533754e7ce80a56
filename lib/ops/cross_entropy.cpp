#include "ops/cross_entropy.h"

#include <cmath>
#include <string>

#include "ops/check.h"

namespace trainctl {

namespace {

void check_rows(std::string_view op, const CrossEntropyArgs& args) {
  const Tensor& logits = args.logits;
  check(is_matrix(logits) && is_float(logits), op, "logits must be a matrix of fp32, bf16 or fp16",
        {{"logits", logits}});
  const std::int64_t rows = logits.shape[0];
  check(is_vector(args.labels, rows, DType::i32), op,
        "labels must be an i32 vector with one element per row of logits",
        {{"logits", logits}, {"labels", args.labels}});
  check(is_vector(args.row_max, rows, DType::f32) && is_vector(args.row_sum, rows, DType::f32) &&
            is_vector(args.target, rows, DType::f32),
        op, "row_max, row_sum and target must be fp32 vectors with one element per row of logits",
        {{"logits", logits},
         {"row_max", args.row_max},
         {"row_sum", args.row_sum},
         {"target", args.target}});
  if (args.valid < 0 || args.valid > logits.columns()) {
    fail_check(op, "valid = " + std::to_string(args.valid) + " must be between 0 and the columns",
               {{"logits", logits}});
  }
  check(args.form.scale > 0 && args.form.cap >= 0, op,
        "the logits' scale must be above 0 and their cap not negative", {});
}

}  // namespace

float formed_logit(const LogitForm& form, float logit) {
  const double z = static_cast<double>(form.scale) * static_cast<double>(logit);
  const double cap = form.cap;
  return static_cast<float>(cap > 0 ? cap * std::tanh(z / cap) : z);
}

void cross_entropy_stats(const OpContext& context, const CrossEntropyArgs& args) {
  check_rows("cross_entropy_stats", args);
  dispatch(context, &Kernels::cross_entropy_stats, args, "cross_entropy_stats");
}

void cross_entropy_combine(const OpContext& context, const CrossEntropyCombine& args) {
  constexpr std::string_view op = "cross_entropy_combine";
  const bool fits = !args.shards.empty() && args.shards.dtype == DType::f32 &&
                    args.shards.shape.rank() == 3 && args.shards.shape[1] == 3 &&
                    !args.whole.empty() && args.whole.dtype == DType::f32 &&
                    args.whole.shape == Shape{3, args.shards.shape[2]};
  check(fits, op, "shards must be fp32 [ranks, 3, rows] and whole fp32 [3, rows]",
        {{"shards", args.shards}, {"whole", args.whole}});
  dispatch(context, &Kernels::cross_entropy_combine, args, op);
}

void cross_entropy_gradient(const OpContext& context, const CrossEntropyArgs& args) {
  constexpr std::string_view op = "cross_entropy_gradient";
  check_rows(op, args);
  check(is_vector(args.weight, args.logits.shape[0], DType::f32), op,
        "weight must be an fp32 vector with one element per row of logits",
        {{"logits", args.logits}, {"weight", args.weight}});
  check(args.state != nullptr, op, "state must be given", {});
  dispatch(context, &Kernels::cross_entropy_gradient, args, op);
}

}  // namespace trainctl
