#include "ops/attention.h"

#include <algorithm>
#include <string>

#include "ops/check.h"

namespace trainctl {

namespace {

std::string describe(const AttentionShape& shape) {
  return "sequences " + std::to_string(shape.sequences) + ", query_length " +
         std::to_string(shape.query_length) + ", key_length " + std::to_string(shape.key_length) +
         ", heads " + std::to_string(shape.heads) + ", kv_heads " + std::to_string(shape.kv_heads) +
         ", head_dim " + std::to_string(shape.head_dim) + ", query_offset " +
         std::to_string(shape.query_offset);
}

/// Whether the runs hold `length` tokens of each sequence, in a tensor with no other rows.
bool fits(const TokenRuns& runs, std::int64_t sequences, std::int64_t length) {
  if (runs.length <= 0 || runs.count() * runs.length != length) return false;
  for (std::int64_t i = 0; i < runs.count(); ++i) {
    const TokenRun& run = runs.at(i);
    const std::int64_t end = run.row + (sequences - 1) * runs.stride + runs.length;
    if (run.position < 0 || run.row < 0 || end > sequences * length) return false;
  }
  return true;
}

/// The position after the last key of a sequence.
std::int64_t end_position(const TokenRuns& keys) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < keys.count(); ++i) {
    end = std::max(end, keys.at(i).position + keys.length);
  }
  return end;
}

void check_shape(const AttentionShape& shape, std::string_view op) {
  const auto fail = [&](std::string_view rule) {
    fail_check(op, std::string(rule) + " (" + describe(shape) + ")", {});
  };
  if (shape.sequences <= 0 || shape.query_length <= 0 || shape.key_length <= 0) {
    fail("lengths must be positive");
  }
  if (shape.head_dim <= 0 || shape.head_dim > 256 || shape.head_dim % 2 != 0) {
    fail("head_dim must be even and at most 256");
  }
  if (shape.kv_heads <= 0 || shape.heads <= 0 || shape.heads % shape.kv_heads != 0) {
    fail("kv_heads must divide heads");
  }
  if (shape.query_runs.runs.empty() && shape.key_runs.runs.empty() &&
      (shape.query_offset < 0 || shape.query_offset + shape.query_length > shape.key_length)) {
    fail("the queries' positions must lie within the keys");
  }
  if (!fits(shape.queries(), shape.sequences, shape.query_length) ||
      !fits(shape.keys(), shape.sequences, shape.key_length)) {
    fail("runs must hold query_length and key_length tokens within the rows of all sequences");
  }
  if (!(shape.scale > 0.0F) || !(shape.cap >= 0.0F)) {
    fail("scale must be positive, cap not negative");
  }
  const KeyLimits& limits = shape.limits;
  if (limits.window < 0 || limits.chunk < 0 || (limits.window > 0 && limits.chunk > 0)) {
    fail("a window or a chunk must be positive, not both given");
  }
}

/// Checks the arguments common to both passes: q, k, v, logsumexp, first positions and dropout.
void check_common(const AttentionArgs& args, std::string_view op) {
  const AttentionShape& shape = args.shape;
  check_shape(shape, op);
  const Shape queries{shape.sequences * shape.query_length, shape.heads * shape.head_dim};
  const Shape keys{shape.sequences * shape.key_length, shape.kv_heads * shape.head_dim};
  if (args.q.empty() || !is_float(args.q) || args.q.shape != queries) {
    fail_check(op, "q must be fp32, bf16 or fp16 of shape " + queries.to_string(), {{"q", args.q}});
  }
  if (args.k.empty() || args.v.empty() || args.k.shape != keys || args.k.dtype != args.q.dtype ||
      !same_kind(args.k, args.v)) {
    fail_check(op, "k and v must have q's dtype and shape " + keys.to_string(),
               {{"q", args.q}, {"k", args.k}, {"v", args.v}});
  }
  check(is_like(args.out, args.q), op, "out must be as q", {{"q", args.q}, {"out", args.out}});
  const Shape rows{shape.sequences, shape.heads, shape.query_length};
  check(
      !args.logsumexp.empty() && args.logsumexp.shape == rows && args.logsumexp.dtype == DType::f32,
      op, "logsumexp must be fp32 [sequences, heads, query_length]",
      {{"q", args.q}, {"logsumexp", args.logsumexp}});
  check(args.first_position.empty() || is_vector(args.first_position, args.q.rows(), DType::i32),
        op, "first_position must be i32, one per query",
        {{"q", args.q}, {"first_position", args.first_position}});
  const AttentionDropout& dropout = args.dropout;
  if (dropout.key.probability != 0.0F) {
    check(dropout.key.probability > 0.0F && dropout.key.probability < 1.0F &&
              dropout.key.state != nullptr && dropout.first_head >= 0 &&
              dropout.first_head + shape.heads <= dropout.heads_total &&
              dropout.seq_length >= end_position(shape.keys()) &&
              is_vector(dropout.global_token, args.q.rows(), DType::i64),
          op,
          "dropout needs a probability in (0, 1), a state, places for its heads and keys, and "
          "global_token as i64, one per query",
          {{"q", args.q}, {"global_token", dropout.global_token}});
  }
}

/// The result of attention: `out` and its logsumexp.
void check_result(std::string_view op, const AttentionShape& shape, const Tensor& out,
                  const Tensor& logsumexp) {
  const Shape queries{shape.sequences * shape.query_length, shape.heads * shape.head_dim};
  check(!out.empty() && is_float(out) && out.shape == queries, op,
        "out must be of shape " + queries.to_string(), {{"out", out}});
  const Shape rows{shape.sequences, shape.heads, shape.query_length};
  check(logsumexp.shape == rows && logsumexp.dtype == DType::f32, op,
        "logsumexp must be fp32 [sequences, heads, query_length]", {{"logsumexp", logsumexp}});
}

}  // namespace

void attention_forward(const OpContext& context, const AttentionArgs& args) {
  check_common(args, "attention");
  check(args.largest.empty() || is_vector(args.largest, args.shape.heads, DType::i32), "attention",
        "largest must be i32, one per head", {{"q", args.q}, {"largest", args.largest}});
  check(args.real.empty() || is_vector(args.real, args.q.rows(), DType::u8), "attention",
        "real must be u8, one per query", {{"q", args.q}, {"real", args.real}});
  dispatch(context, &Kernels::attention_forward, args, "attention_forward");
}

void attention_backward(const OpContext& context, const AttentionArgs& args) {
  constexpr std::string_view op = "attention_backward";
  check_common(args, op);
  check(is_like(args.d_out, args.q) && is_like(args.dq, args.q), op, "d_out and dq must be as q",
        {{"q", args.q}, {"d_out", args.d_out}, {"dq", args.dq}});
  check(is_like(args.dk, args.k) && is_like(args.dv, args.k), op, "dk and dv must be as k",
        {{"k", args.k}, {"dk", args.dk}, {"dv", args.dv}});
  dispatch(context, &Kernels::attention_backward, args, op);
}

void attention_merge(const OpContext& context, const AttentionMerge& args) {
  constexpr std::string_view op = "attention_merge";
  check_result(op, args.shape, args.out, args.logsumexp);
  check(same_kind(args.out, args.other) && same_kind(args.logsumexp, args.other_logsumexp), op,
        "other and other_logsumexp must be as out and logsumexp",
        {{"out", args.out},
         {"other", args.other},
         {"logsumexp", args.logsumexp},
         {"other_logsumexp", args.other_logsumexp}});
  dispatch(context, &Kernels::attention_merge, args, op);
}

namespace {

void check_sinks(std::string_view op, const AttentionSinkArgs& args) {
  check_result(op, args.shape, args.out, args.logsumexp);
  check(is_vector(args.sinks, args.shape.heads, DType::f32), op,
        "sinks must be an fp32 vector with one element per head", {{"sinks", args.sinks}});
}

}  // namespace

void attention_sink_forward(const OpContext& context, const AttentionSinkArgs& args) {
  constexpr std::string_view op = "attention_sink_forward";
  check_sinks(op, args);
  dispatch(context, &Kernels::attention_sink_forward, args, op);
}

void attention_sink_backward(const OpContext& context, const AttentionSinkArgs& args) {
  constexpr std::string_view op = "attention_sink_backward";
  check_sinks(op, args);
  check(same_kind(args.out, args.d_out), op, "d_out must be as out",
        {{"out", args.out}, {"d_out", args.d_out}});
  check(is_vector(args.d_sinks, args.shape.heads, DType::f32), op,
        "d_sinks must be an fp32 vector with one element per head", {{"d_sinks", args.d_sinks}});
  dispatch(context, &Kernels::attention_sink_backward, args, op);
}

void largest(const OpContext& context, const Largest& args) {
  check(!args.x.empty() && args.x.dtype == DType::f32 && is_vector(args.key, 1, DType::i32),
        "largest", "x must be fp32, and key one i32", {{"x", args.x}, {"key", args.key}});
  const AttentionShape& shape = args.shape;
  const Shape numbers{shape.sequences, shape.heads, shape.query_length};
  check(
      args.real.empty() || (args.x.shape == numbers &&
                            is_vector(args.real, shape.sequences * shape.query_length, DType::u8)),
      "largest",
      "with real, x must be [sequences, heads, query_length], and real u8, one per query",
      {{"x", args.x}, {"real", args.real}});
  dispatch(context, &Kernels::largest, args, "largest");
}

}  // namespace trainctl
