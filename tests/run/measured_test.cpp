// Measurements of a run against its plan: every collective and message with its bytes, and the
// memory that is taken and touched.
#include "run/end_report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/at.h"
#include "base/scratch.h"
#include "catch.h"
#include "config/read/read.h"
#include "device/slab.h"
#include "plan/cost/estimate.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

Options operator+(Options left, const Options& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

struct Case {
  int ranks = 1;
  Options options;
};

std::string text_of(const Case& layout) {
  std::string text = std::to_string(layout.ranks) + " ranks";
  for (const std::string& option : layout.options) text += " " + option;
  return text;
}

const Options llama{"model.family=llama", "model.num_query_groups=2", "model.qk_layernorm=true"};
const Options untied{"model.tie_word_embeddings=false"};
const Options tp2{"parallel.tensor_parallel=2"};
const Options tp4{"parallel.tensor_parallel=4"};
const Options sp{"parallel.sequence_parallel=true"};
const Options whole_vocabulary{"parallel.vocab_emb_dp=true"};
const Options pp2{"parallel.pipeline_stages=2", "train.micro_batch_size=1"};
const Options gpipe{"parallel.pipeline.scheduler=gpipe"};
const Options zero{"parallel.parallel_optimizer.enable=true",
                   "parallel.parallel_optimizer.threshold=0",
                   "parallel.parallel_optimizer.gradient_accumulation_shard=false"};
const Options dealt = zero + Options{"parallel.parallel_mode=data_parallel"};
const Options half{"precision.compute=bf16"};
const Options zb_v{"parallel.pipeline_stages=2", "train.micro_batch_size=1",
                   "parallel.virtual_pipeline_stages=2", "parallel.pipeline.scheduler=zb-v",
                   "model.num_layers=4"};
const Options zb_h1{"parallel.pipeline.scheduler=zb-h1"};
const Options recompute{"recompute.enable=true"};
const Options offload{"offload.enable=true", "offload.num_layers=1"};
const Options two_buffers{"offload.double_buffering=true"};
const Options fused{"parallel.bucket_rule=comm_fusion"};
const Options muon{"optimizer.type=muon"};

const std::vector<Case> layouts{
    {1, {}},
    {2, tp2},
    {2, tp2 + whole_vocabulary},
    {2, tp2 + sp},
    {2, tp2 + sp + whole_vocabulary},
    {4, tp4 + llama},
    {4, tp4 + sp + llama + untied},
    {4, tp4 + sp + llama + half},
    {4, tp2 + llama + half + Options{"model.add_qkv_bias=true"}},
    {4, tp2 + Options{"model.add_bias_linear=false"}},
    {2, {"parallel.bucket_size=600"}},
    {4, half + Options{"train.micro_batch_size=1"}},
    {2, pp2},
    {2, pp2 + untied + gpipe},
    {4, pp2 + half},
    {2, zb_v},
    {4, zb_v + tp2 + sp + recompute},
    {4, pp2 + tp2 + recompute},
    {4, zero + tp2 + offload},
    {2, tp2 + sp + recompute},
    {4, pp2 + tp2 + sp},
    {8, pp2 + tp2 + sp + whole_vocabulary + gpipe},
    {8, pp2 + tp2 + llama + half},
    {3,
     {"parallel.pipeline_stages=3", "train.micro_batch_size=1", "model.num_layers=4",
      "parallel.pipeline.layout=Et|tt|tL"}},
    {4,
     {"parallel.pipeline_stages=4", "train.micro_batch_size=1",
      "parallel.pipeline.layout=E|t|t|L"}},
    {2, zero},
    {4, zero + tp2},
    {4, zero + tp2 + sp + whole_vocabulary},
    {8, zero + tp4 + sp + llama},
    {4, zero + tp4 + llama},
    {8, zero + pp2 + tp2 + sp},
    {4, zero + pp2 + untied + half},
    {8, zero + tp2 + sp + fused},
    {4, zero + tp2 + half + fused + Options{"parallel.parallel_mode=hybrid_parallel"}},
    {8, zero + pp2 + tp2 + Options{"parallel.bucket_rule=layers"}},
    {2, {"parallel.dataset_strategy=full_batch", "train.micro_batch_size=1"}},
    // Slices of a tied embedding; two kinds of groups with the same ranks.
    {4, zero + pp2 + Options{"parallel.bucket_rule=megatron", "model.vocab_size=57"}},
    {8, zero + tp4 + llama + fused +
            Options{"parallel.parallel_mode=hybrid_parallel",
                    "parallel.parallel_optimizer.weight_shard_size=2"}},
    {2, dealt},
    {4, dealt + half},
    {2,
     {"parallel.parallel_optimizer.enable=true",
      "parallel.parallel_optimizer.gradient_accumulation_shard=false",
      "parallel.parallel_optimizer.threshold=8"}},
    {2, muon},
    {4, muon + zero + tp2 + llama + Options{"optimizer.muon.items=[heads]"}},
    {4, muon + pp2 + half + Options{"optimizer.muon.ns_dtype=bf16"}},
};

/// The differences between the counts of each rank's groups and its plan, after three steps.
std::string differences_of(const Case& layout) {
  std::string found;
  std::mutex mutex;
  SampleRun run{.set_options = layout.options, .ranks = layout.ranks, .steps = 3, .world = {}};
  const Config config = read_config_text(sample_yaml(), "sample.yaml", layout.options).config;
  run.inspect = [&](Engine&, const Plan& plan, World& world) {
    const auto planned = estimate_communication(plan, world.rank(), step_numbers(config));
    const auto rows = compare_traffic(planned, world.traffic());
    const std::string mine = differences(rows);
    const std::lock_guard lock(mutex);
    if (!mine.empty()) found += "rank " + std::to_string(world.rank()) + ": " + mine;
  };
  train_sample(run);
  return found;
}

// --- memory

constexpr int mark = 0x5b;
constexpr std::int64_t line = 64;  // bytes; what a slab pads to

/// Every activation that the plan lists, in every view.
template <class Body>
void for_activations(const Engine& engine, const StagePlan& stage, const Body& body) {
  for (int number = 0; number < std::ssize(stage.activations); ++number) {
    const ActivationSpec& row = at(stage.activations, number);
    const int views = row.storage == Storage::shared ? 1 : stage.activation_slots.views();
    for (int view = 0; view < views; ++view) body(engine.buffers().at(view, number), row.name);
  }
}

void mark_activations(const Engine& engine, const StagePlan& stage) {
  for_activations(engine, stage, [](const Tensor& x, const std::string&) {
    std::memset(x.data, mark, static_cast<std::size_t>(x.bytes()));
  });
}

/// Bytes of the activations' lines that do not hold the mark any more, each once; the rows that are
/// all mark.
struct Touched {
  std::int64_t bytes = 0;
  std::string unused;
};
Touched touched_by(const Engine& engine, const StagePlan& stage) {
  Touched touched;
  std::set<const unsigned char*> all;
  for_activations(engine, stage, [&](const Tensor& x, const std::string& name) {
    std::size_t lines = 0;
    const auto* bytes = static_cast<const unsigned char*>(x.data);
    for (std::int64_t at = 0; at < x.bytes(); at += line) {
      const std::int64_t end = std::min(at + line, x.bytes());
      if (std::all_of(bytes + at, bytes + end, [](unsigned char b) { return b == mark; })) continue;
      all.insert(bytes + at);
      ++lines;
    }
    if (lines == 0) touched.unused += " " + name;
  });
  touched.bytes = std::ssize(all) * line;
  return touched;
}

/// The most that any rank of a stage takes, and of its activations touches.
struct StageMemory {
  MemoryEstimate taken;
  Touched touched;
};

struct MemoryRun {
  Plan plan;
  std::map<std::int64_t, StageMemory> stages;
  std::int64_t taken = 0;  // by all ranks
  std::int64_t held = 0;   // by the process, while all ranks were there
};

void add_rank(MemoryRun& run, const Engine& engine, std::int64_t stage) {
  const StagePlan& rows = run.plan.stages[static_cast<std::size_t>(stage)];
  const MemoryEstimate mine = engine.memory();
  run.taken += mine.total();
  StageMemory& most = run.stages[stage];
  for (const auto field :
       {&MemoryEstimate::parameters, &MemoryEstimate::gradients, &MemoryEstimate::optimizer,
        &MemoryEstimate::activations, &MemoryEstimate::offloaded, &MemoryEstimate::communication}) {
    most.taken.*field = std::max(most.taken.*field, mine.*field);
  }
  const Touched touched = touched_by(engine, rows);
  if (touched.bytes > most.touched.bytes) most.touched = touched;
}

MemoryRun measure_memory(const Case& layout) {
  MemoryRun found;
  std::mutex mutex;
  SampleRun run{.set_options = layout.options, .ranks = layout.ranks, .steps = 2, .world = {}};
  run.prepare = [](Engine& engine, const Plan& plan, World& world) {
    mark_activations(engine, plan.stage_of(world.rank()));
  };
  const std::int64_t before = device_bytes_held();
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    std::vector<int> ranks;
    for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(rank);
    const auto all = world.group("all", ranks);
    {
      const std::lock_guard lock(mutex);
      if (found.plan.stages.empty()) found.plan = plan;
      add_rank(found, engine, plan.mesh.coordinate(world.rank(), Axis::pp));
    }
    gather_values(*all, 0.0);  // everybody is still there
    if (world.rank() == 0) found.held = device_bytes_held() - before;
    gather_values(*all, 0.0);
  };
  train_sample(run);
  return found;
}

void check_near(std::int64_t measured, std::int64_t planned) {
  CHECK(std::abs(static_cast<double>(measured - planned)) <= 0.02 * static_cast<double>(planned));
}

const Options pp4{"parallel.pipeline_stages=4", "train.micro_batch_size=1", "model.num_layers=9",
                  "parallel.pipeline.layout=Ett|ttt|tt|ttL"};

}  // namespace

// A change that adds a collective to a step adds it to lib/plan/cost/communication*.cpp.
TEST_CASE("every collective and message is as the plan lists it, exactly", "[measured]") {
  const Options more =
      GENERATE(Options{}, Options{"optimizer.clip_grad_norm=0", "data.eod_mask_loss=false"});
  for (const Case& layout : layouts) {
    const Case run{layout.ranks, layout.options + more};
    INFO(text_of(run));
    CHECK(differences_of(run) == "");
  }
}

TEST_CASE("a step that differs from its plan is told with its numbers") {
  Plan plan;
  StagePlan& stage = plan.stages.emplace_back();
  stage.communication = {{GroupOperation::all_reduce, Cargo::gradients, TrafficPurpose::gradients,
                          group_over({Axis::dp}), 2, 2, 100},
                         {GroupOperation::all_reduce, Cargo::gradient_slices,
                          TrafficPurpose::gradients, group_over({Axis::dp}), 2, 1, 20},
                         {GroupOperation::send, Cargo::activations, TrafficPurpose::messages,
                          pipeline_group, 2, 4, 64}};
  Traffic traffic;
  Traffic::Row& gradients = traffic.row("gradients dp");
  Traffic::Row& messages = traffic.row("messages pp");
  traffic.begin();
  for (const std::int64_t bytes : {50, 50, 20}) {
    traffic.add(gradients, GroupOperation::all_reduce, bytes);
  }
  for (int i = 0; i < 4; ++i) traffic.add(messages, GroupOperation::send, 16);
  CHECK(differences(compare_traffic(stage.communication, traffic)) == "");
  traffic.add(messages, GroupOperation::send, 1000);
  traffic.add(messages, GroupOperation::receive, 8);
  CHECK(differences(compare_traffic(stage.communication, traffic)) ==
        "send 'messages pp': 5 calls with 1,064 bytes, planned 4 with 64\n"
        "receive 'messages pp': 1 calls with 8 bytes, planned 0 with 0\n");
}

TEST_CASE("sums that start after the backward give the same numbers, later", "[threads]") {
  const Options late{"hooks.grad_sync=after_backward"};
  std::vector<std::vector<StepReport>> reports;
  std::vector<std::size_t> last_pass;
  std::vector<std::size_t> first_reduce;
  for (const Options& options : {Options{}, late}) {
    SampleRun run{.set_options = options, .ranks = 2, .steps = 3, .world = {}};
    run.inspect = [&](Engine&, const Plan& plan, World& world) {
      if (world.rank() != 0) return;
      const auto& rows = plan.stages.front().actions;
      std::size_t pass = 0;
      std::size_t reduce = rows.size();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (is_pass(rows[i].kind)) pass = i;
        if (rows[i].kind == ActionKind::reduce) reduce = std::min(reduce, i);
      }
      last_pass.push_back(pass);
      first_reduce.push_back(reduce);
    };
    reports.push_back(train_sample(run));
  }
  CHECK(first_reduce[0] < last_pass[0]);
  CHECK(first_reduce[1] == last_pass[1] + 1);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(reports[0][step].loss == reports[1][step].loss);
    CHECK(reports[0][step].grad_norm == reports[1][step].grad_norm);
  }
}

TEST_CASE("activations are allocated as planned, to the byte") {
  for (const Options& options :
       {pp2, pp2 + zb_h1, zb_v, zb_v + recompute, zb_v + half, pp2 + tp2 + sp + zb_h1,
        pp2 + offload, zb_v + offload + two_buffers}) {
    const int ranks = options.size() > 3 && options[2] == tp2[0] ? 4 : 2;
    SampleRun run{.set_options = options, .ranks = ranks, .steps = 1, .world = {}};
    std::mutex mutex;
    run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
      const std::lock_guard lock(mutex);
      CHECK(engine.memory().activations == plan.stage_of(world.rank()).memory.activations);
      CHECK(engine.memory().offloaded == plan.stage_of(world.rank()).memory.offloaded);
    };
    INFO(text_of({ranks, options}));
    train_sample(run);
  }
}

TEST_CASE("memory is as planned, by category, within 2 %") {
  const Options more = GENERATE(Options{}, gpipe, half + Options{"model.family=llama"});
  // Two blocks on each stage, so that both gradients of the residual stream are written.
  const Options common{"data.reset_attention_mask=true"};
  const Options four{"model.num_layers=4"};
  const std::vector<Case> cases{{1, {"train.micro_batch_size=2"}},
                                {2, tp2 + sp},
                                {2, pp2 + four},
                                {2, pp2 + four + recompute},
                                {1, offload},
                                {2, tp2 + offload + four + two_buffers},
                                {4, pp4},
                                {2, zero},
                                {4, zero + tp2 + sp},
                                {2, dealt},
                                {1, muon},
                                {4, muon + zero + tp2},
                                {8, pp2 + tp2 + four},
                                {8, pp2 + tp2 + sp + zero + four}};
  for (const Case& layout : cases) {
    const Case given{layout.ranks, layout.options + common + more};
    const MemoryRun run = measure_memory(given);
    for (const auto& [stage, measured] : run.stages) {
      INFO(text_of(given) << ", stage " << stage);
      const StagePlan& rows = run.plan.stages[static_cast<std::size_t>(stage)];
      check_near(measured.taken.parameters, rows.memory.parameters);
      check_near(measured.taken.gradients, rows.memory.gradients);
      check_near(measured.taken.optimizer, rows.memory.optimizer);
      check_near(measured.taken.activations, rows.memory.activations);
      // The scratch memory of ops is far larger than these tensors.
      const std::int64_t scratch = run.plan.threads_per_rank * scratch_bytes_per_thread;
      CHECK(measured.touched.unused == "");
      const ActivationSlots& slots = rows.activation_slots;
      CHECK(measured.taken.offloaded == rows.memory.offloaded);
      check_near(measured.touched.bytes, slots.bytes + slots.host_bytes);
      CHECK(measured.taken.activations + slots.host_bytes >= measured.touched.bytes + scratch);
    }
    INFO(text_of(given));
    CHECK(std::abs(run.held - run.taken) <= layout.ranks * 1024);  // padding
  }
}

TEST_CASE("what forty layouts hold in memory is planned within 1 %", "[measured]") {
  const Options larger{"model.hidden_size=64", "model.ffn_hidden_size=128", "model.seq_length=32"};
  // Memory of tensors; threads have none of the staging that is planned for processes.
  const auto tensors = [](const MemoryEstimate& memory) {
    return memory.parameters + memory.gradients + memory.optimizer + memory.activations +
           memory.offloaded;
  };
  int runs = 0;
  for (const Case& layout : layouts) {
    const Case given{layout.ranks, layout.options + larger};
    const MemoryRun run = measure_memory(given);
    for (const auto& [stage, measured] : run.stages) {
      const std::int64_t planned = tensors(run.plan.stages[static_cast<std::size_t>(stage)].memory);
      const std::int64_t taken = tensors(measured.taken);
      INFO(text_of(given) << ", stage " << stage << ": " << taken << " bytes, planned " << planned);
      CHECK(std::abs(static_cast<double>(taken - planned)) <= 0.01 * static_cast<double>(planned));
    }
    INFO(text_of(given));
    CHECK(std::abs(run.held - run.taken) <= layout.ranks * 1024);  // padding
    if (++runs == 40) break;
  }
  CHECK(runs == 40);
}
