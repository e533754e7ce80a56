#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>

#include "base/error.h"
#include "bench/figures.h"
#include "bench/machine_limits.h"
#include "bench/ops/op_bench.h"
#include "bench/work_clock.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr int rounds = 7;

struct Timing {
  const OpCase* op = nullptr;
  double seconds = 0;
  double matrix_share = 0;  // of the limit of products
  double memory_share = 0;  // of the limit of copies
  double share() const { return std::max(matrix_share, memory_share); }
  bool by_matrix() const { return matrix_share > memory_share; }
};

/// The medians of some rounds, in which all cases and the limits take turns.
std::vector<Timing> time_all(const std::vector<OpCase>& cases, WorkClock& clock,
                             MachineLimits& limits) {
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    begin_part(round == 0 ? "warm-up"
                          : "round " + std::to_string(round) + "/" + std::to_string(rounds));
    limits.measure();
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double taken = clock.seconds(cases[i].run);
      if (round > 0) seconds[i].push_back(taken);
    }
  }
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const OpCase& op = cases[i];
    const double taken = median(seconds[i]);
    timings.push_back(
        {&op, taken, op.flops / taken / limits.products(), op.bytes / taken / limits.copies()});
  }
  return timings;
}

/// Those whose names match; all where nothing is asked for.
std::vector<OpCase> chosen(const std::vector<OpCase>& cases, const std::string& only) {
  if (only.empty()) return cases;
  std::vector<OpCase> some;
  try {
    const std::regex names(only, std::regex::extended);
    std::ranges::copy_if(cases, std::back_inserter(some),
                         [&](const OpCase& op) { return std::regex_search(op.name, names); });
  } catch (const std::regex_error&) {
    throw Error(ExitCode::usage, "--only needs a regular expression, not " + only);
  }
  std::string known;
  for (const OpCase& op : cases) known += (known.empty() ? "" : ", ") + op.name;
  require(!some.empty(), ExitCode::usage, "--only " + only + " matches none of: " + known);
  return some;
}

void print_table(const std::vector<Timing>& timings, const std::string& where,
                 const MachineLimits& limits, std::ostream& out) {
  out << "on " << where << ": copies " << printed("%.1f", limits.copies() * 1e-9)
      << " GB/s, square products " << printed("%.3f", limits.products() * 1e-12) << " TFLOP/s\n";
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%-38s %10s %9s %9s %9s   %s\n", "op", "ms", "GB/s",
                "TFLOP/s", "ceiling", "bound by");
  out << line.data();
  for (const Timing& timing : timings) {
    const OpCase& op = *timing.op;
    std::snprintf(line.data(), line.size(), "%-38s %10.4f %9.1f %9.3f %7.0f %%   %s\n",
                  op.name.c_str(), timing.seconds * 1e3, op.bytes / timing.seconds * 1e-9,
                  op.flops / timing.seconds * 1e-12, 100 * timing.share(),
                  timing.by_matrix() ? "matrix rate" : "memory");
    out << line.data();
  }
}

nlohmann::ordered_json document(const std::vector<Timing>& timings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Timing& timing : timings) {
    const OpCase& op = *timing.op;
    list.push_back({{"op", op.name},
                    {"kernel", op.kernel},
                    {"seconds", timing.seconds},
                    {"bytes", op.bytes},
                    {"flops", op.flops},
                    {"bytes_per_second", op.bytes / timing.seconds},
                    {"flops_per_second", op.flops / timing.seconds},
                    {"ceiling_fraction", timing.share()},
                    {"bound", timing.by_matrix() ? "matrix" : "memory"}});
  }
  return list;
}

}  // namespace

void bench_ops(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Plan& plan = setup.plan;
  BenchContext context(plan);
  MachineLimits limits(context.ops(), plan.compute);
  limits.measure();
  begin_part("operands");
  OpBench bench(plan, context.ops());
  add_row_cases(bench);
  add_attention_cases(bench);
  add_product_cases(bench, limits.products());
  add_rate_cases(bench);
  add_expert_cases(bench);
  add_step_cases(bench);
  WorkClock clock(context.stream());
  const std::vector<OpCase> cases = chosen(bench.cases(), request.only);
  const std::vector<Timing> timings = time_all(cases, clock, limits);
  tell(request, document(timings).dump(), out,
       [&] { print_table(timings, context.where(), limits, out); });
}

}  // namespace trainctl
