#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>

#include "base/error.h"
#include "base/text.h"
#include "bench/figures.h"
#include "bench/ops/op_bench.h"
#include "device/slab.h"
#include "formats/print/text.h"

namespace trainctl {

OpSizes::OpSizes(const Plan& plan)
    : model(plan.model),
      compute(plan.compute),
      attention(layer_form(model, 0).attention),
      ffn(model.kind(0).ffn),
      sequences(plan.micro_batch_size),
      tokens(sequences * model.seq_length),
      head_rows(std::min<std::int64_t>(tokens, 4096)),
      experts(model.experts > 1 ? model.experts : 8),
      topk(model.experts > 1 ? model.topk : 2),
      expert_ffn(model.experts > 1 ? model.expert_ffn : ffn),
      parameters(std::min(plan.stages.front().flat.length, std::int64_t{1} << 26)) {}

OpBench::OpBench(const Plan& plan, const OpContext& ops) : ops_(ops), sizes_(plan) {}

Tensor OpBench::zeros(const std::string& name, const Shape& shape, DType dtype) const {
  const auto found = slabs_.find(name);
  if (found != slabs_.end()) {
    const Tensor tensor = found->second.at(name);
    require(tensor.shape == shape && tensor.dtype == dtype, ExitCode::internal,
            "two cases have different tensors '" + name + "'");
    return tensor;
  }
  return slabs_.emplace(name, Slab(ops_.stream->device(), {{name, shape, dtype}}))
      .first->second.at(name);
}

Tensor OpBench::values(const std::string& name, const Shape& shape) const {
  return values(name, shape, sizes_.compute);
}

Tensor OpBench::values(const std::string& name, const Shape& shape, DType dtype) const {
  const bool is_new = !slabs_.contains(name);
  const Tensor tensor = zeros(name, shape, dtype);
  if (!is_new) return tensor;
  fill_normal(ops_, tensor, static_cast<std::uint64_t>(slabs_.size()));
  return tensor;
}

StepState* OpBench::state(const std::string& name) const {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(StepState));
  StepState first{.learning_rate = 1e-4F, .bias_correction1 = 0.1F, .bias_correction2 = 0.05F};
  const Tensor tensor = zeros(name, {bytes}, DType::u8);
  store({&first, {bytes}, DType::u8, DeviceKind::cpu}, tensor);
  return static_cast<StepState*>(tensor.data);
}

void OpBench::store(const Tensor& from, const Tensor& to) const {
  ops_.stream->synchronize();
  copy_now(to, from);
}

void OpBench::add(const std::string& kernel, const std::string& more, double bytes, double flops,
                  std::function<void()> run) {
  cases_.push_back(
      {kernel, more.empty() ? kernel : kernel + " " + more, bytes, flops, std::move(run)});
}

namespace {

constexpr int rounds = 7;

struct Timing {
  const OpCase* op = nullptr;
  double seconds = 0;
  double matrix_share = 0;  // fraction of the rate of products
  double memory_share = 0;  // fraction of the rate of copies
  double share() const { return std::max(matrix_share, memory_share); }
  bool by_matrix() const { return matrix_share > memory_share; }
};

/// The medians over some rounds, each of which measures the limits and all cases.
std::vector<Timing> time_all(const std::vector<OpCase>& cases, WorkClock& clock,
                             MachineLimits& limits) {
  std::vector<std::vector<double>> seconds(cases.size());
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    begin_part(round == 0 ? "warm-up" : formatted("round {}/{}", round, rounds));
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

/// The cases whose names match `only`; all cases if it is empty.
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
  require(!some.empty(), ExitCode::usage,
          "--only " + only + " matches none of: " + joined(cases, ", ", &OpCase::name));
  return some;
}

void print_table(const std::vector<Timing>& timings, const std::string& where,
                 const MachineLimits& limits, std::ostream& out) {
  out << "on " << where << ": copies " << printed("%.1f", limits.copies() * 1e-9)
      << " GB/s, square products " << printed("%.3f", limits.products() * 1e-12) << " TFLOP/s\n";
  out << formatted("{:<38} {:>10} {:>9} {:>9} {:>9}   {}\n", "op", "ms", "GB/s", "TFLOP/s",
                   "ceiling", "bound by");
  for (const Timing& timing : timings) {
    const OpCase& op = *timing.op;
    out << formatted("{:<38} {:10.4f} {:9.1f} {:9.3f} {:7.0f} %   {}\n", op.name,
                     timing.seconds * 1e3, op.bytes / timing.seconds * 1e-9,
                     op.flops / timing.seconds * 1e-12, 100 * timing.share(),
                     timing.by_matrix() ? "matrix rate" : "memory");
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
  tell(request, document(timings), out,
       [&] { print_table(timings, context.where(), limits, out); });
}

}  // namespace trainctl
