#include "ops/embedding.h"

#include "catch.h"
#include "op_values.h"

using namespace op_test;

namespace {

struct Case {
  std::int64_t tokens, rows, hidden;
  bool positions;
};

Values ids(std::int64_t count, std::int64_t below, std::uint64_t stream) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = Philox(3, stream).bits(static_cast<std::uint64_t>(i));
    values.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint32_t>(below)));
  }
  return Values::of(values);
}

Case cases() {
  return GENERATE(Case{1, 1, 1, false}, Case{7, 5, 33, true}, Case{100, 11, 64, true},
                  Case{300, 50, 200, false});
}

}  // namespace

TEST_CASE("embedding gives the plain rows and zeros outside its shard") {
  const Case c = cases();
  for (const DType type : {DType::f32, DType::bf16}) {
    Values tokens = ids(c.tokens, 2 * c.rows, 1);
    Values position = ids(c.tokens, 9, 2);
    Values table = Values::random(Shape{c.rows, c.hidden}, type, 3);
    Values offsets = Values::random(Shape{9, c.hidden}, type, 4);
    const auto run = [&](const Kernels& kernels) {
      Values y = Values::random(Shape{c.tokens, c.hidden}, type, 5);
      embedding_forward(Host(kernels).context(),
                        {.tokens = tokens.tensor(),
                         .table = table.tensor(),
                         .first_row = c.rows / 2,
                         .position = c.positions ? position.tensor() : Tensor{},
                         .position_table = c.positions ? offsets.tensor() : Tensor{},
                         .y = y.tensor()});
      return y;
    };
    CHECK(run(cpu_kernels) == run(plain_kernels));
  }
}

TEST_CASE("embedding of one token") {
  for (const Kernels* kernels : {&cpu_kernels, &plain_kernels}) {
    Values tokens = Values::of<std::int32_t>({12, 9, 13});
    Values table(Shape{3, 2}, DType::f32);  // rows 10, 11 and 12 of the whole
    for (std::int64_t i = 0; i < 6; ++i) table.set(i, static_cast<float>(i + 1));
    Values y(Shape{3, 2}, DType::f32);
    embedding_forward(
        Host(*kernels).context(),
        {.tokens = tokens.tensor(), .table = table.tensor(), .first_row = 10, .y = y.tensor()});
    CHECK(y.at(0) == 5);
    CHECK(y.at(1) == 6);
    for (std::int64_t i = 2; i < 6; ++i) CHECK(y.at(i) == 0);
  }
}

TEST_CASE("embedding's backward adds as the plain one, with any number of threads") {
  const Case c = cases();
  for (const DType type : {DType::f32, DType::bf16}) {
    Values tokens = ids(c.tokens, 2 * c.rows, 1);
    Values position = ids(c.tokens, 9, 2);
    Values dy = Values::random(Shape{c.tokens, c.hidden}, type, 3);
    const auto run = [&](const Kernels& kernels, int threads) {
      Values dtable = Values::random(Shape{c.rows, c.hidden}, DType::f32, 4);
      Values doffsets = Values::random(Shape{9, c.hidden}, DType::f32, 5);
      embedding_backward(Host(kernels, threads).context(),
                         {.tokens = tokens.tensor(),
                          .first_row = c.rows / 2,
                          .position = c.positions ? position.tensor() : Tensor{},
                          .dy = dy.tensor(),
                          .dtable = dtable.tensor(),
                          .dposition_table = c.positions ? doffsets.tensor() : Tensor{}});
      return std::pair(dtable, doffsets);
    };
    const auto plain = run(plain_kernels, 1);
    CHECK(run(cpu_kernels, 1) == plain);
    CHECK(run(cpu_kernels, 3) == plain);
  }
}

TEST_CASE("embedding's backward is the slope of its forward") {
  Values tokens = Values::of<std::int32_t>({2, 0, 2, 7});
  Values position = Values::of<std::int32_t>({0, 1, 1, 2});
  Values table = Values::random(Shape{3, 4}, DType::f32, 1);
  Values offsets = Values::random(Shape{3, 4}, DType::f32, 2);
  Values dy = Values::random(Shape{4, 4}, DType::f32, 3);
  Values y(Shape{4, 4}, DType::f32);
  Values dtable(Shape{3, 4}, DType::f32);
  Values doffsets(Shape{3, 4}, DType::f32);
  embedding_backward(Host(cpu_kernels).context(), {.tokens = tokens.tensor(),
                                                   .position = position.tensor(),
                                                   .dy = dy.tensor(),
                                                   .dtable = dtable.tensor(),
                                                   .dposition_table = doffsets.tensor()});
  const Host plain(plain_kernels);
  const auto loss = [&] {
    embedding_forward(plain.context(), {.tokens = tokens.tensor(),
                                        .table = table.tensor(),
                                        .position = position.tensor(),
                                        .position_table = offsets.tensor(),
                                        .y = y.tensor()});
    return weighted_sum(y, dy);
  };
  CHECK(slope_error(table, dtable, 0.25F, loss) < 1e-5);
  CHECK(slope_error(offsets, doffsets, 0.25F, loss) < 1e-5);
}

TEST_CASE("embedding names what does not fit") {
  Values tokens = Values::of<std::int32_t>({1, 2});
  Values table(Shape{3, 4}, DType::f32);
  Values y(Shape{2, 5}, DType::f32);
  const Host host(cpu_kernels);
  CHECK(failure_of([&] {
          embedding_forward(host.context(),
                            {.tokens = tokens.tensor(), .table = table.tensor(), .y = y.tensor()});
        }) ==
        "[embedding] y must have one row per token, as wide and of the type of table: "
        "tokens [2] i32, table [3, 4] fp32, y [2, 5] fp32");
  CHECK(starts_with(failure_of([&] {
                      embedding_backward(
                          host.context(),
                          {.tokens = tokens.tensor(), .dy = y.tensor(), .dtable = table.tensor()});
                    }),
                    "[embedding_backward] dtable must be an fp32 matrix as wide as dy"));
  Values good(Shape{2, 4}, DType::f32);
  CHECK(starts_with(failure_of([&] {
                      embedding_forward(host.context(), {.tokens = tokens.tensor(),
                                                         .table = table.tensor(),
                                                         .position = tokens.tensor(),
                                                         .y = good.tensor()});
                    }),
                    "[embedding] position and its table go together"));
}
