#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/expert_layer.h"
#include "bench/figures.h"
#include "device/slab.h"
#include "formats/print/text.h"
#include "ops/kernels.h"

namespace trainctl {

namespace {

constexpr double most_over_dense = 1.3;  // on a CPU

ExpertLayerSpeed measure(const Plan& plan, int rounds) {
  set_thread_count(plan.threads_per_rank);
  Stream stream(plan.device, "compute", Stream::Mode::run_inline);
  const Slab memory(plan.device,
                    {{"scratch", {scratch_bytes(plan.device, plan.threads_per_rank)}, DType::u8}});
  const Tensor scratch = memory.at("scratch");
  return measure_expert_layer(plan,
                              {.kernels = &kernels_for(plan.device),
                               .stream = &stream,
                               .scratch = static_cast<std::byte*>(scratch.data),
                               .scratch_bytes = scratch.bytes()},
                              rounds);
}

void print_table(const ExpertLayerSpeed& speed, const Plan& plan, const std::string& where,
                 std::ostream& out) {
  const Range ratio = range_of(speed.ratios());
  out << "on " << where << ": a layer of experts, " << plan.model.topk << " of "
      << plan.model.experts << " for each of " << plan.micro_batch_size * plan.model.seq_length
      << " tokens\n"
      << "step, forward and backward         " << format_seconds(median(speed.step)) << '\n'
      << "its products                       " << format_seconds(median(speed.products)) << '\n'
      << "products of a plain MLP, as wide   " << format_seconds(median(speed.dense)) << '\n'
      << "step / products of the plain MLP   " << ratio.of_pairs("%.2f") << ", limit "
      << printed("%.2f", most_over_dense) << ": " << verdict(ratio.median <= most_over_dense)
      << '\n';
}

}  // namespace

void bench_experts(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Plan& plan = setup.plan;
  require(plan.model.experts > 1, ExitCode::config,
          "this model has no experts: moe.num_experts is 1");
  const std::string where = open_bench_device(plan);
  const ExpertLayerSpeed speed = measure(plan, request.pairs);
  if (!request.json) return print_table(speed, plan, where, out);
  const nlohmann::ordered_json document{{"step_seconds", median(speed.step)},
                                        {"products_seconds", median(speed.products)},
                                        {"dense_products_seconds", median(speed.dense)},
                                        {"step_over_dense", median(speed.ratios())},
                                        {"step_over_dense_all", speed.ratios()},
                                        {"limit", most_over_dense},
                                        {"device", where},
                                        {"threads", plan.threads_per_rank},
                                        {"compute", std::string(name_of(plan.compute))}};
  out << document.dump() << '\n';
}

}  // namespace trainctl
