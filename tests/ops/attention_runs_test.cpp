// Attention of a rank that holds only some of the tokens of each sequence, in runs: together the
// ranks must give what one rank gives that holds all of them.
#include <cmath>

#include "catch.h"
#include "op_values.h"

namespace attention_runs_test {

using namespace op_test;

namespace {

constexpr std::int64_t sequences = 2;
const StepState state{.seed = 99, .step = 3};

struct Sizes {
  std::int64_t ranks, chunk, heads, kv_heads, head_dim;
  std::int64_t length() const { return 2 * ranks * chunk; }
};

/// Chunks number r and 2 ranks - 1 - r of each sequence, as ranks around a ring hold them.
std::vector<TokenRun> runs_of_rank(const Sizes& sizes, std::int64_t rank, std::int64_t first_row) {
  return {{rank * sizes.chunk, first_row},
          {(2 * sizes.ranks - 1 - rank) * sizes.chunk, first_row + sizes.chunk}};
}

/// The rows of one rank, as numbers among all rows in the order of their sequences.
std::vector<std::int64_t> rows_of(const Sizes& sizes, std::int64_t rank) {
  std::vector<std::int64_t> rows;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    for (const TokenRun& run : runs_of_rank(sizes, rank, 0)) {
      for (std::int64_t i = 0; i < sizes.chunk; ++i) {
        rows.push_back(sequence * sizes.length() + run.position + i);
      }
    }
  }
  return rows;
}

Values select(const Values& whole, const std::vector<std::int64_t>& rows, std::int64_t columns,
              DType dtype) {
  Values part({std::ssize(rows), columns}, dtype);
  for (std::int64_t row = 0; row < std::ssize(rows); ++row) {
    const std::int64_t from = rows[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < columns; ++i) {
      part.set(row * columns + i, static_cast<float>(whole.at(from * columns + i)));
    }
  }
  return part;
}

/// Adds a rank's rows to where they are in all of them.
void add_rows(Values& whole, const Values& part, const std::vector<std::int64_t>& rows,
              std::int64_t columns) {
  for (std::int64_t row = 0; row < std::ssize(rows); ++row) {
    const std::int64_t to = rows[static_cast<std::size_t>(row)] * columns;
    for (std::int64_t i = 0; i < columns; ++i) {
      const double sum = whole.at(to + i) + part.at(row * columns + i);
      whole.set(to + i, static_cast<float>(sum));
    }
  }
}

/// Documents of uneven length: the first position that each token sees.
std::vector<std::int32_t> first_positions(const Sizes& sizes) {
  std::vector<std::int32_t> first;
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    std::int32_t start = 0;
    for (std::int32_t at = 0; at < sizes.length(); ++at) {
      if (at % (sizes.chunk + 5 + sequence) == 0) start = at;
      first.push_back(start);
    }
  }
  return first;
}

template <class T>
std::vector<T> select(const std::vector<T>& whole, const std::vector<std::int64_t>& rows) {
  std::vector<T> part;
  for (const std::int64_t row : rows) part.push_back(whole[static_cast<std::size_t>(row)]);
  return part;
}

/// One problem and its results, of all tokens or of one rank's.
struct Case {
  AttentionShape shape;
  Values q, k, v, d_out, out, logsumexp, dq, dk, dv, first, token;
  bool documents;
  float dropout;

  AttentionArgs forward_args() {
    AttentionArgs args;
    args.shape = shape;
    args.q = q.tensor();
    args.k = k.tensor();
    args.v = v.tensor();
    if (documents) args.first_position = first.tensor();
    if (dropout > 0) {
      args.dropout = {{&state, 5, dropout}, token.tensor(), 1, shape.heads + 2, 4096};
    }
    args.out = out.tensor();
    args.logsumexp = logsumexp.tensor();
    return args;
  }
  AttentionArgs backward_args() {
    AttentionArgs args = forward_args();
    args.d_out = d_out.tensor();
    args.dq = dq.tensor();
    args.dk = dk.tensor();
    args.dv = dv.tensor();
    return args;
  }
};

struct Kind {
  DType dtype = DType::f32;
  bool documents = false;
  float dropout = 0;
};

AttentionShape shape_of(const Sizes& sizes) {
  const std::int64_t length = sizes.length();
  return {
      sequences,      length,         length, sizes.heads,
      sizes.kv_heads, sizes.head_dim, 0,      1.0F / std::sqrt(static_cast<float>(sizes.head_dim))};
}

std::vector<std::int64_t> tokens(const Sizes& sizes) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < sequences * sizes.length(); ++i) all.push_back(1000 + 3 * i);
  return all;
}

Case whole_case(const Sizes& sizes, const Kind& kind) {
  const Shape queries{sequences * sizes.length(), sizes.heads * sizes.head_dim};
  const Shape keys{sequences * sizes.length(), sizes.kv_heads * sizes.head_dim};
  return {shape_of(sizes),
          Values::random(queries, kind.dtype, 1),
          Values::random(keys, kind.dtype, 2),
          Values::random(keys, kind.dtype, 3),
          Values::random(queries, kind.dtype, 4),
          Values(queries, kind.dtype),
          Values({sequences, sizes.heads, sizes.length()}, DType::f32),
          Values(queries, kind.dtype),
          Values(keys, kind.dtype),
          Values(keys, kind.dtype),
          Values::of(first_positions(sizes)),
          Values::of(tokens(sizes)),
          kind.documents,
          kind.dropout};
}

/// A rank's queries with some keys, whose rows are `key_rows` of all.
Case part_case(const Sizes& sizes, const Kind& kind, const Case& whole, std::int64_t rank,
               const std::vector<std::int64_t>& key_rows) {
  const std::vector<std::int64_t> rows = rows_of(sizes, rank);
  const std::int64_t q = sizes.heads * sizes.head_dim;
  const std::int64_t kv = sizes.kv_heads * sizes.head_dim;
  const Shape queries{std::ssize(rows), q};
  const Shape keys{std::ssize(key_rows), kv};
  AttentionShape shape = whole.shape;
  shape.query_length = std::ssize(rows) / sequences;
  shape.key_length = std::ssize(key_rows) / sequences;
  return {shape,
          select(whole.q, rows, q, kind.dtype),
          select(whole.k, key_rows, kv, kind.dtype),
          select(whole.v, key_rows, kv, kind.dtype),
          select(whole.d_out, rows, q, kind.dtype),
          Values(queries, kind.dtype),
          Values({sequences, sizes.heads, shape.query_length}, DType::f32),
          Values(queries, kind.dtype),
          Values(keys, kind.dtype),
          Values(keys, kind.dtype),
          Values::of(select(first_positions(sizes), rows)),
          Values::of(select(tokens(sizes), rows)),
          kind.documents,
          kind.dropout};
}

void set_runs(Case& part, const Sizes& sizes, const std::vector<TokenRun>& queries,
              const std::vector<TokenRun>& keys) {
  const std::int64_t stride = 2 * sizes.chunk;
  part.shape.query_runs = {.length = sizes.chunk, .stride = stride, .runs = queries};
  part.shape.key_runs = {.length = sizes.chunk, .stride = stride, .runs = keys};
}

struct Sums {
  Values out, dq, dk, dv;
  explicit Sums(const Case& whole) : out(whole.out), dq(whole.dq), dk(whole.dk), dv(whole.dv) {
    for (Values* values : {&out, &dq, &dk, &dv}) {
      for (std::int64_t i = 0; i < values->numel(); ++i) values->set(i, 0);
    }
  }
};

void check_sums(const Sums& sums, const Case& whole, const Kind& kind) {
  const double allowed = 3 * tolerance(kind.dtype);
  CHECK(difference(sums.out, whole.out) < allowed);
  CHECK(difference(sums.dq, whole.dq) < allowed);
  CHECK(difference(sums.dk, whole.dk) < allowed);
  CHECK(difference(sums.dv, whole.dv) < allowed);
}

Case run_whole(const Sizes& sizes, const Kind& kind) {
  const Host host(plain_kernels);
  Case whole = whole_case(sizes, kind);
  attention_forward(host.context(), whole.forward_args());
  attention_backward(host.context(), whole.backward_args());
  return whole;
}

/// Each rank with the keys of all, which lie by rank.
void check_gathered(const Kernels& kernels, const Sizes& sizes, const Kind& kind) {
  const Case whole = run_whole(sizes, kind);
  const Host host(kernels);
  Sums sums(whole);
  std::vector<std::int64_t> key_rows;
  std::vector<TokenRun> keys;
  for (std::int64_t rank = 0; rank < sizes.ranks; ++rank) {
    for (const TokenRun& run : runs_of_rank(sizes, rank, std::ssize(key_rows))) keys.push_back(run);
    const auto rows = rows_of(sizes, rank);
    key_rows.insert(key_rows.end(), rows.begin(), rows.end());
  }
  for (std::int64_t rank = 0; rank < sizes.ranks; ++rank) {
    Case part = part_case(sizes, kind, whole, rank, key_rows);
    const std::vector<TokenRun> queries = runs_of_rank(sizes, rank, 0);
    set_runs(part, sizes, queries, keys);
    attention_forward(host.context(), part.forward_args());
    attention_backward(host.context(), part.backward_args());
    add_rows(sums.out, part.out, rows_of(sizes, rank),
             part.q.numel() / (sequences * 2 * sizes.chunk));
    add_rows(sums.dq, part.dq, rows_of(sizes, rank),
             part.q.numel() / (sequences * 2 * sizes.chunk));
    add_rows(sums.dk, part.dk, key_rows, sizes.kv_heads * sizes.head_dim);
    add_rows(sums.dv, part.dv, key_rows, sizes.kv_heads * sizes.head_dim);
  }
  check_sums(sums, whole, kind);
}

/// Each rank with the keys of one rank after another, whose results are merged.
void check_merged(const Kernels& kernels, const Sizes& sizes, const Kind& kind) {
  const Case whole = run_whole(sizes, kind);
  const Host host(kernels);
  Sums sums(whole);
  const std::int64_t q = sizes.heads * sizes.head_dim;
  const std::int64_t kv = sizes.kv_heads * sizes.head_dim;
  for (std::int64_t rank = 0; rank < sizes.ranks; ++rank) {
    const std::vector<TokenRun> queries = runs_of_rank(sizes, rank, 0);
    std::vector<Case> parts;
    for (std::int64_t step = 0; step < sizes.ranks; ++step) {
      const std::int64_t source = (rank - step + sizes.ranks) % sizes.ranks;
      parts.push_back(part_case(sizes, kind, whole, rank, rows_of(sizes, source)));
      const std::vector<TokenRun> keys = runs_of_rank(sizes, source, 0);
      set_runs(parts.back(), sizes, queries, keys);
      attention_forward(host.context(), parts.back().forward_args());
      if (step == 0) continue;
      attention_merge(host.context(), {.shape = parts.back().shape,
                                       .out = parts.front().out.tensor(),
                                       .logsumexp = parts.front().logsumexp.tensor(),
                                       .other = parts.back().out.tensor(),
                                       .other_logsumexp = parts.back().logsumexp.tensor()});
    }
    add_rows(sums.out, parts.front().out, rows_of(sizes, rank), q);
    for (std::int64_t step = 0; step < sizes.ranks; ++step) {
      const std::int64_t source = (rank - step + sizes.ranks) % sizes.ranks;
      Case& part = parts[static_cast<std::size_t>(step)];
      part.out = parts.front().out;
      part.logsumexp = parts.front().logsumexp;
      const std::vector<TokenRun> keys = runs_of_rank(sizes, source, 0);
      set_runs(part, sizes, queries, keys);
      attention_backward(host.context(), part.backward_args());
      add_rows(sums.dq, part.dq, rows_of(sizes, rank), q);
      add_rows(sums.dk, part.dk, rows_of(sizes, source), kv);
      add_rows(sums.dv, part.dv, rows_of(sizes, source), kv);
    }
  }
  check_sums(sums, whole, kind);
}

std::vector<Kind> all_kinds() {
  return {{.dtype = DType::f32},
          {.dtype = DType::f32, .documents = true},
          {.dtype = DType::f32, .documents = true, .dropout = 0.3F},
          {.dtype = DType::bf16},
          {.dtype = DType::f16, .documents = true}};
}

/// The plain kernels in small problems, the fast ones also where runs have several blocks.
void check_all(void (*check_sizes)(const Kernels&, const Sizes&, const Kind&)) {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    std::vector<Sizes> all{{2, 3, 2, 1, 4}, {3, 7, 4, 2, 10}};
    if (kernels != &plain_kernels) all.push_back({2, 101, 2, 1, 18});
    for (const Sizes& sizes : all) {
      for (const Kind& kind : all_kinds()) {
        INFO(kernels->name << " ranks " << sizes.ranks << " chunk " << sizes.chunk << " "
                           << name_of(kind.dtype) << (kind.documents ? " documents" : "")
                           << (kind.dropout > 0 ? " dropout" : ""));
        check_sizes(*kernels, sizes, kind);
      }
    }
  }
  check_sizes(tested_kernels(), {2, 200, 1, 1, 8}, {});
}

}  // namespace

TEST_CASE("attention over keys of all ranks is that of one rank") { check_all(check_gathered); }

TEST_CASE("attention merged over the keys of one rank after another is that of one rank") {
  check_all(check_merged);
}

TEST_CASE("a query that sees no key has no result") {
  for (const Kernels* kernels : {&plain_kernels, &tested_kernels()}) {
    const Sizes sizes{2, 5, 2, 1, 6};
    const Kind kind;
    const Host host(*kernels);
    const Case whole = whole_case(sizes, kind);
    Case part = part_case(sizes, kind, whole, 0, rows_of(sizes, 1));  // chunks 0, 3 and 1, 2
    const std::vector<TokenRun> queries = runs_of_rank(sizes, 0, 0);
    const std::vector<TokenRun> keys = runs_of_rank(sizes, 1, 0);
    set_runs(part, sizes, queries, keys);
    attention_forward(host.context(), part.forward_args());
    for (std::int64_t i = 0; i < 5 * 12; ++i) CHECK(part.out.at(i) == 0);
    for (std::int64_t i = 0; i < 5; ++i) CHECK(std::isinf(part.logsumexp.at(i)));
    CHECK(std::isfinite(part.logsumexp.at(5)));
    for (std::int64_t i = 0; i < part.logsumexp.numel(); ++i) part.logsumexp.set(i, 1);
    part.dq = part.d_out;  // what was there does not stay
    attention_backward(host.context(), part.backward_args());
    for (std::int64_t i = 0; i < 5 * 12; ++i) CHECK(part.dq.at(i) == 0);
  }
}

TEST_CASE("gradients of attention in runs agree with finite differences") {
  const Sizes sizes{2, 2, 2, 1, 4};
  const Kind kind{.documents = true, .dropout = 0.25F};
  const Host host(plain_kernels);
  const Case whole = whole_case(sizes, kind);
  std::vector<std::int64_t> key_rows = rows_of(sizes, 0);
  std::vector<TokenRun> keys = runs_of_rank(sizes, 0, 0);
  for (const TokenRun& run : runs_of_rank(sizes, 1, std::ssize(key_rows))) keys.push_back(run);
  for (const std::int64_t row : rows_of(sizes, 1)) key_rows.push_back(row);
  Case part = part_case(sizes, kind, whole, 1, key_rows);
  const std::vector<TokenRun> queries = runs_of_rank(sizes, 1, 0);
  set_runs(part, sizes, queries, keys);
  attention_forward(host.context(), part.forward_args());
  attention_backward(host.context(), part.backward_args());
  Case probe = part;
  for (const auto& [x, gradient] : {std::pair{&Case::q, &part.dq}, std::pair{&Case::k, &part.dk},
                                    std::pair{&Case::v, &part.dv}}) {
    const auto loss = [&] {
      attention_forward(host.context(), probe.forward_args());
      return weighted_sum(probe.out, part.d_out);
    };
    CHECK(slope_error(probe.*x, *gradient, 1e-2F, loss) < 1e-3);
  }
}

TEST_CASE("runs that do not fit are refused") {
  const Sizes sizes{2, 3, 1, 1, 4};
  const Kind kind;
  const Host host(plain_kernels);
  const Case whole = whole_case(sizes, kind);
  Case part = part_case(sizes, kind, whole, 0, rows_of(sizes, 1));
  std::vector<TokenRun> queries = runs_of_rank(sizes, 0, 0);
  const std::vector<TokenRun> keys = runs_of_rank(sizes, 1, 0);
  const auto failure = [&] {
    set_runs(part, sizes, queries, keys);
    return failure_of([&] { attention_forward(host.context(), part.forward_args()); });
  };
  CHECK(failure().empty());
  queries[1].row = 4;
  CHECK(starts_with(failure(), "[attention] runs must hold query_length and key_length tokens"));
  queries.pop_back();
  CHECK(starts_with(failure(), "[attention] runs must hold query_length and key_length tokens"));
}

TEST_CASE("blocks are packed by their column, and back") {
  for (const DType dtype : float_types) {
    const Host host(tested_kernels());
    Values x = Values::random({5, 12}, dtype, 1);
    Values y({4, 15}, dtype);
    Values back({5, 12}, dtype);
    swap_blocks(host.context(), {.x = x.tensor(), .y = y.tensor(), .rows = 5, .columns = 4});
    CHECK(y.at(15 + 3 * 2 + 1) == x.at(2 * 12 + 3 + 1));  // column 1, row 2
    swap_blocks(host.context(), {.x = y.tensor(), .y = back.tensor(), .rows = 4, .columns = 5});
    CHECK(back == x);
    CHECK(starts_with(failure_of([&] {
                        swap_blocks(host.context(),
                                    {.x = x.tensor(), .y = y.tensor(), .rows = 7, .columns = 4});
                      }),
                      "[swap_blocks] x and y must be"));
  }
}

}  // namespace attention_runs_test
