// Sinks against the plain kernel, against a softmax with one more term, and their gradients against
// finite differences.
#include "ops/attention.h"

#include <cmath>

#include "catch.h"
#include "op_values.h"

namespace attention_sink_test {

using namespace op_test;

namespace {

struct Problem {
  std::int64_t sequences, length, heads, kv_heads, head_dim;
  DType dtype = DType::f32;
  std::int64_t window = 0;
};

struct Case {
  Values q, k, v, sinks, out, logsumexp, d_out, dq, dk, dv, d_sinks;
  AttentionShape shape;

  explicit Case(const Problem& problem)
      : q(features(problem, problem.heads, 1)),
        k(features(problem, problem.kv_heads, 2)),
        v(features(problem, problem.kv_heads, 3)),
        sinks(Values::random({problem.heads}, DType::f32, 4)),
        out(features(problem, problem.heads, 5)),
        logsumexp({problem.sequences, problem.heads, problem.length}, DType::f32),
        d_out(features(problem, problem.heads, 6)),
        dq(features(problem, problem.heads, 7)),
        dk(features(problem, problem.kv_heads, 8)),
        dv(features(problem, problem.kv_heads, 9)),
        d_sinks({problem.heads}, DType::f32),
        shape{.sequences = problem.sequences,
              .query_length = problem.length,
              .key_length = problem.length,
              .heads = problem.heads,
              .kv_heads = problem.kv_heads,
              .head_dim = problem.head_dim,
              .scale = 0.5F,
              .limits = {.window = problem.window}} {}
  static Values features(const Problem& problem, std::int64_t heads, std::uint64_t stream) {
    return Values::random({problem.sequences * problem.length, heads * problem.head_dim},
                          problem.dtype, stream);
  }

  AttentionArgs attention_args() {
    return {.shape = shape,
            .q = q.tensor(),
            .k = k.tensor(),
            .v = v.tensor(),
            .first_position = {},
            .dropout = {},
            .out = out.tensor(),
            .logsumexp = logsumexp.tensor(),
            .d_out = d_out.tensor(),
            .dq = dq.tensor(),
            .dk = dk.tensor(),
            .dv = dv.tensor()};
  }
  AttentionSinkArgs sink_args() {
    return {.shape = shape,
            .sinks = sinks.tensor(),
            .out = out.tensor(),
            .logsumexp = logsumexp.tensor(),
            .d_out = d_out.tensor(),
            .d_sinks = d_sinks.tensor()};
  }
  void forward(const OpContext& context) {
    attention_forward(context, attention_args());
    attention_sink_forward(context, sink_args());
  }
  void backward(const OpContext& context) {
    attention_sink_backward(context, sink_args());
    attention_backward(context, attention_args());
  }
};

/// The result of one query and head with a softmax over the keys and the sink, and the logarithm of
/// its sum.
double expected_logsumexp(const Case& of, const Problem& problem, std::int64_t query,
                          std::int64_t head, std::vector<double>& result) {
  const std::int64_t size = problem.head_dim;
  const std::int64_t of_keys = head / (problem.heads / problem.kv_heads);
  double sum = std::exp(of.sinks.at(head));
  result.assign(static_cast<std::size_t>(size), 0);
  for (std::int64_t key = 0; key <= query; ++key) {
    if (problem.window > 0 && key + problem.window <= query) continue;
    const std::int64_t row = (key * problem.kv_heads + of_keys) * size;
    double score = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      score += 0.5 * of.q.at((query * problem.heads + head) * size + i) * of.k.at(row + i);
    }
    sum += std::exp(score);
    for (std::int64_t i = 0; i < size; ++i) {
      result[static_cast<std::size_t>(i)] += std::exp(score) * of.v.at(row + i);
    }
  }
  for (double& one : result) one /= sum;
  return std::log(sum);
}

}  // namespace

TEST_CASE("a sink is one more term of the softmax, without a value") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    for (const std::int64_t window : {0, 3}) {
      const Problem problem{1, 9, 4, 2, 6, DType::f32, window};
      const Host host(*kernels);
      Case found(problem);
      found.forward(host.context());
      std::vector<double> expected;
      for (std::int64_t query = 0; query < problem.length; ++query) {
        for (std::int64_t head = 0; head < problem.heads; ++head) {
          const double sum = expected_logsumexp(found, problem, query, head, expected);
          CHECK(found.logsumexp.at(head * problem.length + query) == Approx(sum).epsilon(1e-5));
          for (std::int64_t i = 0; i < problem.head_dim; ++i) {
            const double at = found.out.at((query * problem.heads + head) * problem.head_dim + i);
            CHECK(at == Approx(expected[static_cast<std::size_t>(i)]).margin(2e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("sinks agree with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const Problem& problem : {Problem{1, 1, 1, 1, 2, dtype}, Problem{2, 7, 4, 2, 10, dtype},
                                   Problem{3, 65, 6, 3, 64, dtype, 9}}) {
      INFO(problem.length << " tokens, head_dim " << problem.head_dim << " " << name_of(dtype));
      const Host host(plain_kernels);
      Case before(problem);
      before.forward(host.context());
      Case expected = before;
      Case found = before;
      const auto both = [&](const OpContext& context, Case& of) {
        attention_sink_forward(context, {.shape = of.shape,
                                         .sinks = of.sinks.tensor(),
                                         .out = of.out.tensor(),
                                         .logsumexp = of.logsumexp.tensor()});
        attention_sink_backward(context, {.shape = of.shape,
                                          .sinks = of.sinks.tensor(),
                                          .out = of.out.tensor(),
                                          .logsumexp = of.logsumexp.tensor(),
                                          .d_out = of.d_out.tensor(),
                                          .d_sinks = of.d_sinks.tensor()});
      };
      both(host.context(), expected);
      both(Host(tested_kernels()).context(), found);
      CHECK(difference(found.out, expected.out) < tolerance(dtype));
      CHECK(difference(found.logsumexp, expected.logsumexp) < 2e-6);
      CHECK(difference(found.d_sinks, expected.d_sinks) < std::max(tolerance(dtype), 1e-5));
      Case alone = before;
      both(Host(tested_kernels(), 1).context(), alone);
      CHECK(alone.out == found.out);
      CHECK(alone.d_sinks == found.d_sinks);
    }
  }
}

TEST_CASE("gradients of attention with sinks agree with finite differences") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{2, 5, 4, 2, 6};
    const Host host(*kernels);
    Case found(problem);
    found.forward(host.context());
    found.backward(host.context());
    Case probe(problem);
    const auto loss = [&] {
      probe.forward(host.context());
      return weighted_sum(probe.out, probe.d_out);
    };
    CHECK(slope_error(probe.sinks, found.d_sinks, 1e-2F, loss) < 2e-3);
    CHECK(slope_error(probe.q, found.dq, 1e-2F, loss) < 2e-3);
    CHECK(slope_error(probe.k, found.dk, 1e-2F, loss) < 2e-3);
    CHECK(slope_error(probe.v, found.dv, 1e-2F, loss) < 2e-3);
  }
}

TEST_CASE("sinks far from the scores leave all or nothing") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Problem problem{1, 3, 2, 2, 4};
    const Host host(*kernels);
    Case found(problem);
    found.sinks = Values::of<float>({-1e4F, 1e4F});
    found.forward(host.context());
    for (std::int64_t i = 0; i < found.out.numel(); ++i) {
      const bool second = i / problem.head_dim % 2 == 1;
      CHECK((found.out.at(i) == 0) == second);
    }
    found.backward(host.context());
    CHECK(found.d_sinks.at(0) == 0);
    CHECK(found.d_sinks.at(1) == 0);
  }
}

TEST_CASE("what sinks cannot take is refused by name") {
  const Host host(tested_kernels());
  Case found(Problem{1, 3, 2, 2, 4});
  Values few = Values::random({1}, DType::f32, 1);
  const auto message = [&](const Tensor& sinks, const Tensor& d_out) {
    try {
      attention_sink_forward(host.context(), {.shape = found.shape,
                                              .sinks = sinks,
                                              .out = found.out.tensor(),
                                              .logsumexp = found.logsumexp.tensor()});
      attention_sink_backward(host.context(), {.shape = found.shape,
                                               .sinks = sinks,
                                               .out = found.out.tensor(),
                                               .logsumexp = found.logsumexp.tensor(),
                                               .d_out = d_out,
                                               .d_sinks = found.d_sinks.tensor()});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(
      message(few.tensor(), found.d_out.tensor()) ==
      "[attention_sink_forward] sinks must be an fp32 vector with one element per head: sinks [1] "
      "fp32");
  CHECK(message(found.sinks.tensor(), few.tensor()) ==
        "[attention_sink_backward] d_out must be as out: out [3, 8] fp32, d_out [1] fp32");
  CHECK(message(found.sinks.tensor(), found.d_out.tensor()) == "nothing");
}

}  // namespace attention_sink_test
