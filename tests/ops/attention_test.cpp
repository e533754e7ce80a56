#include <optional>

#include "base/integers.h"
#include "catch.h"
#include "op_values.h"
#include "thorough.h"

namespace attention_test {

using namespace op_test;

namespace {

/// One attention problem with all its tensors, run forward and backward.
struct Problem {
  AttentionShape shape;
  DType dtype = DType::f32;
  std::optional<Values> first_position;
  float dropout = 0;
  bool dq_in_d_out = false;
};

struct Result {
  Values out, logsumexp, dq, dk, dv;
  friend bool operator==(const Result&, const Result&) = default;
};

struct Inputs {
  Values q, k, v, d_out;
  explicit Inputs(const Problem& problem)
      : q(Values::random(queries(problem.shape), problem.dtype, 1)),
        k(Values::random(keys(problem.shape), problem.dtype, 2)),
        v(Values::random(keys(problem.shape), problem.dtype, 3)),
        d_out(Values::random(queries(problem.shape), problem.dtype, 4)) {}
  static Shape queries(const AttentionShape& shape) {
    return {shape.sequences * shape.query_length, shape.heads * shape.head_dim};
  }
  static Shape keys(const AttentionShape& shape) {
    return {shape.sequences * shape.key_length, shape.kv_heads * shape.head_dim};
  }
};

const StepState state{.seed = 99, .step = 3};

AttentionArgs forward_args(const Problem& problem, Inputs& inputs, Values& tokens, Result& result) {
  AttentionArgs args;
  args.shape = problem.shape;
  args.q = inputs.q.tensor();
  args.k = inputs.k.tensor();
  args.v = inputs.v.tensor();
  if (problem.dropout > 0) {
    args.dropout = {{&state, 5, problem.dropout},
                    tokens.tensor(),
                    1,
                    problem.shape.heads + 2,
                    problem.shape.key_length + 3};
  }
  args.out = result.out.tensor();
  args.logsumexp = result.logsumexp.tensor();
  return args;
}

Values token_numbers(const Problem& problem) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < problem.shape.sequences * problem.shape.query_length; ++i) {
    tokens.push_back(1000 + 3 * i);
  }
  return Values::of(tokens);
}

Result empty_result(const Problem& problem) {
  const AttentionShape& shape = problem.shape;
  return {Values(Inputs::queries(shape), problem.dtype),
          Values({shape.sequences, shape.heads, shape.query_length}, DType::f32),
          Values(Inputs::queries(shape), problem.dtype), Values(Inputs::keys(shape), problem.dtype),
          Values(Inputs::keys(shape), problem.dtype)};
}

void run_forward(const Host& host, const Problem& problem, Inputs& inputs, Result& result) {
  host.poison_scratch();
  Values tokens = token_numbers(problem);
  AttentionArgs args = forward_args(problem, inputs, tokens, result);
  std::optional<Values> first = problem.first_position;
  if (first) args.first_position = first->tensor();
  attention_forward(host.context(), args);
}

/// `result` holds the forward pass's out and logsumexp.
void run_backward(const Host& host, const Problem& problem, Inputs& inputs, Result& result) {
  host.poison_scratch();
  Values tokens = token_numbers(problem);
  AttentionArgs args = forward_args(problem, inputs, tokens, result);
  std::optional<Values> first = problem.first_position;
  Values d_out = inputs.d_out;
  if (first) args.first_position = first->tensor();
  if (problem.dq_in_d_out) result.dq = d_out;
  args.d_out = problem.dq_in_d_out ? result.dq.tensor() : d_out.tensor();
  args.dq = result.dq.tensor();
  args.dk = result.dk.tensor();
  args.dv = result.dv.tensor();
  attention_backward(host.context(), args);
}

Result run(const Kernels& kernels, const Problem& problem, int threads = 2) {
  const Host host(kernels, threads);
  Inputs inputs(problem);
  Result result = empty_result(problem);
  run_forward(host, problem, inputs, result);
  run_backward(host, problem, inputs, result);
  return result;
}

/// `slack` > 1 where the problem itself magnifies the rounding of scores.
void compare(const Problem& problem, double slack = 1) {
  INFO("queries " << problem.shape.query_length << " keys " << problem.shape.key_length << " heads "
                  << problem.shape.heads << "/" << problem.shape.kv_heads << " head_dim "
                  << problem.shape.head_dim << " " << name_of(problem.dtype));
  const Result expected = run(plain_kernels, problem);
  const Result got = run(tested_kernels(), problem);
  const double allowed = 1.5 * slack * tolerance(problem.dtype);
  CHECK(difference(got.out, expected.out) < allowed);
  CHECK(difference(got.logsumexp, expected.logsumexp) < 2e-6);
  // The gradient of a single key is 0, so that only rounding errors are left.
  const KeyLimits& limits = problem.shape.limits;
  const bool single = limits.window == 1 || limits.chunk == 1;
  const double least = single ? 1 : tests_device() ? 0.5 : 1e-30;
  CHECK(difference(got.dq, expected.dq, least) < allowed);
  CHECK(difference(got.dk, expected.dk, least) < allowed);
  CHECK(difference(got.dv, expected.dv) < allowed);
  CHECK(run(tested_kernels(), problem, 1) == got);
}

Problem square(std::int64_t sequences, std::int64_t length, std::int64_t heads,
               std::int64_t kv_heads, std::int64_t head_dim, DType dtype) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  return {{sequences, length, length, heads, kv_heads, head_dim, 0, scale}, dtype, {}, 0, false};
}

/// The first position of each token's document.
Values documents(std::int64_t sequences, std::int64_t length) {
  std::vector<std::int32_t> document;
  for (std::int64_t i = 0; i < sequences; ++i) {
    for (std::int64_t at = 0; at < length; ++at) {
      document.push_back(static_cast<std::int32_t>(at * at / (60 + 17 * i)));
    }
  }
  std::vector<std::int32_t> first;
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool starts = i % length == 0 || document[at] / 40 != document[at - 1] / 40;
    first.push_back(starts ? static_cast<std::int32_t>(i % length) : first.back());
  }
  return Values::of(first);
}

}  // namespace

TEST_CASE("attention agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    compare(square(1, 1, 1, 1, 2, dtype));
    compare(square(2, 5, 2, 2, 10, dtype));
    compare(square(1, 64, 2, 1, 64, dtype));
    compare(square(2, 129, 2, 2, 48, dtype));
    compare(square(1, 200, 6, 2, 34, dtype));
    compare(square(1, 197, 1, 1, 128, dtype));
    compare(square(1, 67, 2, 2, 256, dtype));
    compare(square(1, 395, 1, 1, 16, dtype));
    compare(square(1, 192, 2, 1, 96, dtype));
    compare(square(1, 193, 1, 1, 80, dtype));
  }
}

TEST_CASE("attention keeps to documents") {
  for (const DType dtype : float_types) {
    for (const std::int64_t length : {9, 130, 300}) {
      Problem problem = square(2, length, 2, 1, 20, dtype);
      problem.first_position = documents(2, length);
      compare(problem);
    }
  }
}

TEST_CASE("attention of a window or of chunks agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const KeyLimits limits :
         {KeyLimits{1, 0}, KeyLimits{3, 0}, KeyLimits{64, 0}, KeyLimits{130, 0}, KeyLimits{500, 0},
          KeyLimits{0, 1}, KeyLimits{0, 48}, KeyLimits{0, 200}}) {
      INFO("window " << limits.window << " chunk " << limits.chunk);
      Problem problem = square(2, 330, 2, 1, 20, dtype);
      problem.shape.limits = limits;
      compare(problem);
      problem.first_position = documents(2, 330);
      compare(problem);
    }
    Problem last = square(1, 230, 4, 2, 32, dtype);
    last.shape.query_length = 3;
    last.shape.query_offset = 227;
    last.shape.limits.window = 20;
    compare(last);
  }
}

TEST_CASE("attention of a window of five sees the last five keys") {
  Problem problem = square(1, 40, 1, 1, 4, DType::f32);
  problem.shape.limits.window = 5;
  const Result window = run(tested_kernels(), problem);
  // The last query, alone with the last five keys.
  Inputs inputs(problem);
  Problem alone = square(1, 5, 1, 1, 4, DType::f32);
  Inputs rest(alone);
  for (std::int64_t i = 0; i < 20; ++i) {
    rest.q.set(i, static_cast<float>(inputs.q.at(35 * 4 + i)));
    rest.k.set(i, static_cast<float>(inputs.k.at(35 * 4 + i)));
    rest.v.set(i, static_cast<float>(inputs.v.at(35 * 4 + i)));
  }
  Result last = empty_result(alone);
  run_forward(Host(plain_kernels), alone, rest, last);
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(window.out.at(39 * 4 + i) == Approx(last.out.at(4 * 4 + i)).epsilon(1e-5).margin(1e-6));
  }
}

TEST_CASE("attention with a cap of its scores agrees with the plain kernel") {
  for (const DType dtype : float_types) {
    for (const float cap : {0.5F, 5.0F}) {
      Problem problem = square(2, 210, 4, 2, 48, dtype);
      problem.shape.cap = cap;
      problem.shape.scale = 2;
      compare(problem, 4);
      problem.shape.limits.window = 70;
      problem.first_position = documents(2, 210);
      problem.dropout = 0.2F;
      compare(problem, 4);
    }
  }
}

TEST_CASE("attention of a document does not depend on its neighbours") {
  Problem joined = square(1, 210, 1, 1, 8, DType::f32);
  std::vector<std::int32_t> first_position(210, 0);
  std::fill(first_position.begin() + 97, first_position.end(), 97);
  joined.first_position = Values::of(first_position);
  const Result together = run(tested_kernels(), joined);
  const Problem first = square(1, 97, 1, 1, 8, DType::f32);
  const Result alone = run(tested_kernels(), first);
  for (std::int64_t i = 0; i < 97 * 8; ++i) {
    CHECK(together.out.at(i) == Approx(alone.out.at(i)).epsilon(1e-5).margin(1e-6));
  }
}

TEST_CASE("attention with fewer queries than keys") {
  for (const DType dtype : float_types) {
    for (const std::int64_t queries : {1, 3, 100}) {
      Problem problem = square(2, 230, 4, 2, 32, dtype);
      problem.shape.query_length = queries;
      problem.shape.query_offset = 230 - queries;
      compare(problem);
      problem.shape.query_offset = 101;  // the keys after the last query are not seen
      compare(problem);
    }
  }
}

TEST_CASE("attention with dropout") {
  for (const DType dtype : float_types) {
    Problem problem = square(2, 131, 2, 1, 24, dtype);
    problem.dropout = 0.3F;
    compare(problem);
  }
}

TEST_CASE("attention whose keys' gradients do not fit into scratch at once") {
  for (const DType dtype : some_of(float_types)) {
    Problem problem = square(1, 40, 1, 1, 256, dtype);
    problem.shape.key_length = tests_device() ? 300 : 2100;
    problem.shape.query_offset = problem.shape.key_length - 40;
    compare(problem);
    problem.dq_in_d_out = true;
    compare(problem);
  }
}

TEST_CASE("attention of more heads and queries than a device's scratch has room for") {
  if (!thorough()) return;  // 100,000 blocks
  compare(square(1, 32, 32800, 32800, 2, DType::f32));
}

TEST_CASE("attention's input gradient may take the output gradient's place") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    Problem problem = square(2, 150, 4, 2, 18, DType::f32);
    const Result apart = run(*kernels, problem);
    problem.dq_in_d_out = true;
    CHECK(run(*kernels, problem) == apart);
  }
}

TEST_CASE("attention survives large scores") {
  Problem problem = square(1, 70, 1, 1, 8, DType::f32);
  problem.shape.scale = 60.0F;
  compare(problem, 20);
}

TEST_CASE("attention's gradients agree with finite differences") {
  for (const float dropout : {0.0F, 0.25F}) {
    Problem problem = square(1, 7, 2, 1, 4, DType::f32);
    problem.shape.cap = dropout > 0 ? 0.75F : 0;
    problem.shape.limits.window = 4;
    problem.first_position = documents(1, 7);
    problem.dropout = dropout;
    const Host host(plain_kernels);
    Inputs inputs(problem);
    Result result = empty_result(problem);
    run_forward(host, problem, inputs, result);
    run_backward(host, problem, inputs, result);
    Result probe = empty_result(problem);
    const auto loss = [&] {
      run_forward(host, problem, inputs, probe);
      return weighted_sum(probe.out, inputs.d_out);
    };
    CHECK(slope_error(inputs.q, result.dq, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(inputs.k, result.dk, 1e-2F, loss) < 1e-3);
    CHECK(slope_error(inputs.v, result.dv, 1e-2F, loss) < 1e-3);
  }
}

/// Values for the first queries of each sequence; the last sequence has none.
Values real_queries(std::int64_t sequences, std::int64_t length, std::int64_t real) {
  std::vector<std::uint8_t> marks;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    for (std::int64_t i = 0; i < length; ++i) {
      marks.push_back(sequence + 1 < sequences && i < real ? 1 : 0);
    }
  }
  return Values::of(marks);
}

TEST_CASE(
    "attention keeps the largest score of each head before its cap, and nothing else changes") {
  for (const DType dtype : float_types) {
    for (const float cap : {0.0F, 0.5F}) {
      if (cap > 0 && tests_device()) continue;
      Problem problem = square(2, 150, 4, 2, 18, dtype);
      problem.shape.cap = cap;
      problem.shape.limits.window = 70;
      problem.first_position = documents(2, 150);
      problem.dropout = 0.2F;
      const auto keys_of = [&](const Kernels& kernels) {
        const Host host(kernels, 2);
        Inputs inputs(problem);
        Values tokens = token_numbers(problem);
        std::pair keys(Values::of<std::int32_t>({0, 0, 0, 0}),
                       Values::of<std::int32_t>({0, 0, 0, 0}));
        Values real = real_queries(2, 150, 101);
        Result result = empty_result(problem);
        AttentionArgs args = forward_args(problem, inputs, tokens, result);
        args.first_position = problem.first_position->tensor();
        args.largest = keys.first.tensor();
        attention_forward(host.context(), args);
        args.real = real.tensor();
        attention_forward(host.context(), args);
        args.largest = keys.second.tensor();
        attention_forward(host.context(), args);
        Result without = empty_result(problem);
        run_forward(host, problem, inputs, without);
        CHECK(result.out == without.out);
        CHECK(result.logsumexp == without.logsumexp);
        return keys;
      };
      auto [plain, plain_real] = keys_of(plain_kernels);
      auto [tested, tested_real] = keys_of(tested_kernels());
      bool smaller = false;
      for (int head = 0; head < 4; ++head) {
        const auto number = [&](Values& keys) {
          return number_of_key(static_cast<std::uint32_t>(keys.tensor().as<std::int32_t>()[head]));
        };
        CHECK(number(tested) == Approx(number(plain)).epsilon(2e-6));
        CHECK(number(tested_real) == Approx(number(plain_real)).epsilon(2e-6));
        CHECK(number(plain_real) <= number(plain));
        CHECK(number(plain_real) > 0.5F);
        smaller = smaller || number(plain_real) < number(plain);
      }
      CHECK(smaller);
    }
  }
}

TEST_CASE("attention refuses what does not fit") {
  const Host host(tested_kernels());
  const Problem problem = square(1, 4, 2, 1, 6, DType::f32);
  const auto failure = [&](const auto& change) {
    Inputs inputs(problem);
    Values tokens = token_numbers(problem);
    Result result = empty_result(problem);
    AttentionArgs args = forward_args(problem, inputs, tokens, result);
    change(args);
    return failure_of([&] { attention_forward(host.context(), args); });
  };
  CHECK(failure([](AttentionArgs&) {}).empty());
  CHECK(failure([](AttentionArgs& args) { args.shape.head_dim = 7; }) ==
        "[attention] head_dim must be even and at most 256 (sequences 1, query_length 4, "
        "key_length 4, heads 2, kv_heads 1, head_dim 7, query_offset 0)");
  CHECK(starts_with(failure([](AttentionArgs& args) { args.shape.kv_heads = 3; }),
                    "[attention] kv_heads must divide heads"));
  CHECK(starts_with(failure([](AttentionArgs& args) { args.shape.query_offset = 1; }),
                    "[attention] the queries' positions must lie within the keys"));
  CHECK(starts_with(failure([](AttentionArgs& args) { args.shape.key_length = 0; }),
                    "[attention] lengths must be positive"));
  CHECK(starts_with(failure([](AttentionArgs& args) { args.shape.scale = 0; }),
                    "[attention] scale must be positive"));
  CHECK(failure([](AttentionArgs& args) { args.v = args.q; }) ==
        "[attention] k and v must have q's dtype and shape [4, 6]: q [4, 12] fp32, k [4, 6] fp32, "
        "v [4, 12] fp32");
  CHECK(failure([](AttentionArgs& args) { args.out = Tensor{}; }) ==
        "[attention] out must be as q: q [4, 12] fp32, out (none)");
  CHECK(starts_with(failure([](AttentionArgs& args) { args.first_position = args.q; }),
                    "[attention] first_position must be i32"));
  CHECK(starts_with(failure([](AttentionArgs& args) { args.dropout.key.probability = 0.5F; }),
                    "[attention] dropout needs"));
}

}  // namespace attention_test
