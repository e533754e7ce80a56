#include "bench/bench_setup.h"

#include <algorithm>
#include <fstream>
#include <ostream>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "config/read/read.h"
#include "device/cuda_device.h"
#include "ops/cuda_attention.h"
#include "ops/kernels.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"
#include "run/products/timed_products.h"

namespace trainctl {

BenchSetup read_bench_setup(const BenchRequest& request, int ranks_here) {
  ReadResult read = read_config(request.config, request.set_options);
  read.config.parallel = for_one_rank(read.config.parallel);
  read.config.train.rampup_batch_size.reset();  // the full batch is timed
  BenchSetup setup;
  const DeviceKind device = device_here(read.config.parallel, 1).device;
  setup.plan = prepare(read,
                       {.world_size = 1,
                        .ranks_per_host = 1,
                        .cores_per_host = std::max(1, usable_cores() / ranks_here),
                        .device = device,
                        .cudnn = cudnn_here(read.config.parallel.attention_backend, device).taken},
                       Purpose::bench);
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  setup.config = read.config;
  return setup;
}

std::string open_bench_device(const Plan& plan) {
  if (plan.device == DeviceKind::cpu) {
    return "the CPU, " + std::to_string(plan.threads_per_rank) + " threads";
  }
  cuda_select_device(0);
  if (plan.cudnn) {
    cuda_attention().prepare(*plan.cudnn, attention_parts(*plan.cudnn), plan.compute);
  }
  const CudaDeviceProperties device = cuda_module().properties(0);
  return device.name + ", " + std::to_string(device.multiprocessors) + " multiprocessors";
}

BenchContext::BenchContext(const Plan& plan)
    : where_(open_bench_device(plan)),
      stream_(plan.device, "compute", Stream::Mode::run_inline),
      scratch_(plan.device, {{"scratch", {plan.scratch_bytes()}, DType::u8}}) {
  set_thread_count(plan.threads_per_rank);
  const Tensor scratch = scratch_.at("scratch");
  ops_ = {.kernels = &kernels_for(plan.device),
          .stream = &stream_,
          .scratch = static_cast<std::byte*>(scratch.data),
          .scratch_bytes = scratch.bytes()};
}

void tell(const BenchRequest& request, const std::string& document, std::ostream& out,
          const std::function<void()>& table) {
  if (!request.json_file.empty()) {
    std::ofstream file(request.json_file);
    file << document << '\n';
    file.close();
    require(file.good(), ExitCode::io, "cannot write " + request.json_file.string());
  }
  if (request.json) {
    out << document << '\n';
  } else {
    table();
  }
}

std::unique_ptr<Engine> bench_engine(const BenchSetup& setup, World& world, Trace* trace) {
  auto engine =
      std::make_unique<Engine>(EngineInput{.plan = setup.plan,
                                           .train = setup.config.train,
                                           .optimizer = setup.config.optimizer,
                                           .lr_schedule = setup.config.lr_schedule,
                                           .loss_scaling = resolve_loss_scaling(setup.config),
                                           .trace = trace},
                               world);
  engine->initialise();
  return engine;
}

void take_first_step(Engine& engine, const BenchSetup& setup, World& world,
                     const std::vector<Batch>& batches) {
  const std::unique_ptr<Group> everyone = world.everyone("products");
  TimedProducts products(setup.config, setup.plan, world, *everyone);
  products.note();
  engine.train_step(batches);
  products.time(engine.ops(), {}, {});
}

std::vector<Batch> random_batches(const Plan& plan) {
  const Philox random(1, 2);
  const std::int64_t tokens = plan.micro_batch_size * plan.model.seq_length;
  std::vector<Batch> batches(static_cast<std::size_t>(plan.microbatches));
  std::uint64_t drawn = 0;
  const auto token = [&] {
    return static_cast<std::int32_t>(random.bits(drawn++) %
                                     static_cast<std::uint64_t>(plan.model.vocab));
  };
  std::int64_t next = 0;
  for (Batch& batch : batches) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      batch.tokens.push_back(token());
      batch.labels.push_back(token());
      batch.loss_weight.push_back(1.0F);
      batch.position.push_back(static_cast<std::int32_t>(i % plan.model.seq_length));
      batch.document.push_back(0);
      batch.global_token.push_back(next++);
    }
    batch.weight_sum = static_cast<double>(tokens);
    batch.length = plan.model.seq_length;
    batch.real.assign(static_cast<std::size_t>(plan.micro_batch_size), batch.length);
  }
  return batches;
}

}  // namespace trainctl
