// parallel.pipeline's ways to exchange messages: rows, buffers, and the proof that none hangs.
#include <algorithm>
#include <set>

#include "base/at.h"
#include "catch.h"
#include "pipeline.h"
#include "plan/plan.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Texts = std::vector<std::string>;
using Scheduler = PipelineScheduler;

/// The pipeline's rows as the mode has them.
SamplePipeline arranged(Scheduler scheduler, const PipelineSizes& sizes,
                        const MessageRules& rules) {
  SamplePipeline pipeline(scheduler, sizes);
  for (std::size_t stage = 0; stage < pipeline.rows.size(); ++stage) {
    ScheduleInput& input = pipeline.inputs[stage];
    input.messages = rules;
    pipeline.rows[stage] = arrange_messages(pipeline.rows[stage], input);
  }
  return pipeline;
}

Simulation played(const SamplePipeline& pipeline, double message = 0) {
  SimulationInput input = pipeline.simulation();
  input.cost = [message](const RankRows& rank, const Action& action) {
    return is_receive(action.kind) ? message : unit_cost(rank, action);
  };
  return simulate(input);
}

constexpr MessageMode modes[] = {MessageMode::batched, MessageMode::single,
                                 MessageMode::overlapped};

const ActivationSpec* find_row(const StagePlan& stage, const std::string& name) {
  const auto row = std::find_if(stage.activations.begin(), stage.activations.end(),
                                [&](const ActivationSpec& one) { return one.name == name; });
  return row == stage.activations.end() ? nullptr : &*row;
}

/// The number of places where the row may lie.
std::size_t slots_of(const StagePlan& stage, const std::string& name) {
  const auto row = static_cast<std::size_t>(find_row(stage, name) - stage.activations.data());
  const ActivationSlots& slots = stage.activation_slots;
  const std::vector<int>& taken = at(slots.groups, slots.rows[row].group).slot;
  return std::set<int>(taken.begin(), taken.end()).size();
}

Config two_stages() {
  Config config = small_config();
  config.train.micro_batch_size = 1;
  config.parallel.pipeline_stages = 2;
  config.parallel.pipeline.scheduler = Scheduler::gpipe;
  return config;
}

std::int64_t message_bytes(const StagePlan& stage) {
  std::int64_t bytes = 0;
  for (const CollectiveUse& use : stage.communication)
    bytes += use.group == pipeline_group ? use.bytes : 0;
  return bytes;
}

}  // namespace

TEST_CASE("single messages: sends come before awaited receives", "[messages]") {
  const PipelineSizes sizes{.stages = 2, .microbatches = 3};
  const auto after_weight = [&](const MessageRules& rules) {
    const Texts names = short_names(arranged(Scheduler::one_f_one_b, sizes, rules).rows[1]);
    const auto at = std::find(names.begin(), names.end(), "W0.0");
    return Texts(at + 2, at + 4);
  };
  CHECK(after_weight({.mode = MessageMode::single}) ==
        Texts{"send_backward 0.0", "receive_forward 1.0"});
  SamplePipeline swapped(Scheduler::one_f_one_b, sizes);
  std::vector<Action>& rows = swapped.rows[1];
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i].kind == ActionKind::send_backward && is_receive(rows[i + 1].kind)) {
      std::swap(rows[i], rows[i + 1]);
    }
  }
  ScheduleInput input = swapped.inputs[1];
  CHECK(arrange_messages(rows, input) == rows);
  input.messages.mode = MessageMode::single;
  CHECK(short_names(arrange_messages(rows, input)) ==
        short_names(arranged(Scheduler::one_f_one_b, sizes, input.messages).rows[1]));
}

TEST_CASE("an overlapped receive is posted one pass ahead and waited for by a row", "[messages]") {
  const MessageRules overlapped{.mode = MessageMode::overlapped};
  const SamplePipeline pipeline =
      arranged(Scheduler::gpipe, {.stages = 2, .microbatches = 2}, overlapped);
  CHECK(short_names(pipeline.rows[0]) ==
        Texts{"fetch 0.0", "F0.0", "send_forward 0.0", "fetch 1.0", "receive_backward 0.0", "F1.0",
              "send_forward 1.0", "receive_backward 1.0", "wait_backward 0.0", "B0.0", "W0.0",
              "wait_backward 1.0", "B1.0", "W1.0", "step"});
  CHECK(short_names(pipeline.rows[1]) ==
        Texts{"fetch 0.0", "receive_forward 0.0", "receive_forward 1.0", "wait_forward 0.0", "F0.0",
              "fetch 1.0", "wait_forward 1.0", "F1.0", "B0.0", "W0.0", "send_backward 0.0", "B1.0",
              "W1.0", "send_backward 1.0", "step"});
  const SamplePipeline chunks =
      arranged(Scheduler::one_f_one_b, {.stages = 2, .chunks = 2, .microbatches = 4}, overlapped);
  const Texts names = short_names(chunks.rows[0]);
  const auto at = std::find(names.begin(), names.end(), "B0.1");
  // While a forward runs, the next backward's gradient travels; while a backward does, the output.
  CHECK(Texts(at - 4, at + 3) == Texts{"receive_backward 0.1", "F2.0", "send_forward 2.0",
                                       "wait_backward 0.1", "B0.1", "W0.1", "send_backward 0.1"});
}

TEST_CASE("every way of exchanging messages is proven for every schedule", "[messages]") {
  int count = 0;
  std::string wrong;
  const auto prove = [&](Scheduler scheduler, const PipelineSizes& sizes) {
    for (const MessageMode mode : modes) {
      if (mode == MessageMode::batched && !traits_of(scheduler).batches) continue;
      for (const bool keeps : {false, true}) {
        for (const bool casts : {false, true}) {
          const auto result = played(
              arranged(scheduler, sizes, {.mode = mode, .keeps_outputs = keeps, .casts = casts}));
          ++count;
          if (result.violations.empty() || !wrong.empty()) continue;
          wrong = "mode " + std::to_string(static_cast<int>(mode)) + " pp " +
                  std::to_string(sizes.stages) + " vp " + std::to_string(sizes.chunks) + " M " +
                  std::to_string(sizes.microbatches) + ": " + result.violations.front();
        }
      }
    }
  };
  for (const int stages : {2, 3, 4, 5}) {
    for (const int microbatches : {1, 2, 5, 8}) {
      prove(Scheduler::one_f_one_b, {.stages = stages, .microbatches = microbatches});
      prove(Scheduler::gpipe, {.stages = stages, .microbatches = microbatches});
      prove(Scheduler::zb_h1, {.stages = stages, .microbatches = microbatches});
      prove(Scheduler::zb_v, {.stages = stages, .chunks = 2, .microbatches = microbatches});
      prove(Scheduler::gpipe, {.stages = stages, .chunks = 2, .microbatches = microbatches});
    }
    for (const int microbatches : {stages, 2 * stages, 3 * stages}) {
      for (const int chunks : {2, 3}) {
        for (const int group : {stages, microbatches}) {
          prove(Scheduler::one_f_one_b, {stages, chunks, microbatches, group});
          prove(Scheduler::zb_h1, {stages, chunks, microbatches, group});
        }
      }
    }
  }
  INFO(wrong);
  CHECK(wrong.empty());
  CHECK(count > 1000);
}

TEST_CASE("neighbours that both receive first hang one by one, not in a batch", "[messages]") {
  for (const MessageMode mode : {MessageMode::batched, MessageMode::single}) {
    SamplePipeline pipeline =
        arranged(Scheduler::one_f_one_b, {.stages = 2, .microbatches = 3}, {.mode = mode});
    CHECK(played(pipeline).violations.empty());
    for (std::vector<Action>& rows : pipeline.rows) {
      for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
        const bool send_first =
            is_message(rows[i].kind) && !is_receive(rows[i].kind) && is_receive(rows[i + 1].kind);
        if (send_first) std::swap(rows[i], rows[i + 1]);
      }
    }
    const Simulation result = played(pipeline);
    INFO(first_of(result.violations));
    REQUIRE(result.violations.size() == (mode == MessageMode::single ? 1U : 0U));
    if (mode == MessageMode::single) CHECK(result.violations[0].find("deadlock: ") == 0);
  }
}

TEST_CASE("a receive whose send was removed is found in every mode", "[messages]") {
  for (const MessageMode mode : modes) {
    SamplePipeline pipeline =
        arranged(Scheduler::gpipe, {.stages = 3, .microbatches = 2}, {.mode = mode});
    auto& rows = pipeline.rows[1];
    rows.erase(std::find_if(rows.begin(), rows.end(), [](const Action& row) {
      return row.kind == ActionKind::send_forward && row.microbatch == 1;
    }));
    const Simulation result = played(pipeline);
    REQUIRE(!result.violations.empty());
    CHECK(result.violations.front() == "rank 2 receive_forward 1.0 is never sent");
  }
}

TEST_CASE("an overlapped pass without its wait row is found", "[messages]") {
  const auto without = [](ActionKind kind) {
    SamplePipeline pipeline = arranged(Scheduler::gpipe, {.stages = 2, .microbatches = 2},
                                       {.mode = MessageMode::overlapped});
    for (std::vector<Action>& rows : pipeline.rows) {
      std::erase_if(rows,
                    [&](const Action& row) { return row.kind == kind && row.microbatch == 1; });
    }
    return first_of(played(pipeline).violations);
  };
  CHECK(without(ActionKind::wait_forward).find("F1.0[1,2): its input is not waited for") !=
        std::string::npos);
  CHECK(without(ActionKind::wait_backward).find("B1.0[0,1): its gradient is not waited for") !=
        std::string::npos);
  CHECK(without(ActionKind::receive_forward).find("wait_forward 1.0: is not being received") !=
        std::string::npos);
}

TEST_CASE("messages that take time cost less where they overlap", "[messages]") {
  const PipelineSizes sizes{.stages = 4, .microbatches = 8, .width = 2};
  const auto seconds = [&](MessageMode mode, bool keeps) {
    return played(arranged(Scheduler::gpipe, sizes, {.mode = mode, .keeps_outputs = keeps}), 1)
        .seconds;
  };
  const double batched = seconds(MessageMode::batched, true);
  CHECK(seconds(MessageMode::overlapped, true) < 0.95 * batched);
  CHECK(seconds(MessageMode::single, true) >= batched);
  // With one buffer a forward waits until the output before it is sent.
  CHECK(seconds(MessageMode::overlapped, false) > seconds(MessageMode::overlapped, true));
}

TEST_CASE("the pipeline's options become rows, buffers and bytes of the plan", "[messages]") {
  Config config = two_stages();
  const Plan usual = plan_of(config, 2);
  CHECK(usual.messages.mode == MessageMode::batched);
  CHECK(find_row(usual.stages[0], "chunk.0.output")->storage == Storage::message);
  CHECK(find_row(usual.stages[1], "chunk.0.d_input")->storage == Storage::shared);
  const ActivationSpec& output = *find_row(usual.stages[0], "chunk.0.output");
  const std::int64_t bytes = output.shape.numel() * 4;

  config.parallel.pipeline.deallocate_outputs = true;
  const Plan freed = plan_of(config, 2);
  CHECK(find_row(freed.stages[0], "chunk.0.output")->storage == Storage::shared);
  CHECK(usual.stages[0].memory.activations - freed.stages[0].memory.activations ==
        (usual.microbatches - 1) * bytes);
  CHECK(usual.stages[1].memory.activations == freed.stages[1].memory.activations);
  CHECK(usual.hash != freed.hash);

  config.parallel.pipeline.batch_p2p_comm = false;
  const Plan single = plan_of(config, 2);
  CHECK(single.messages.mode == MessageMode::single);
  CHECK(single.hash != freed.hash);
  CHECK(single.stages[0].memory.activations == freed.stages[0].memory.activations);

  config.parallel.pipeline.overlap_p2p_comm = true;
  const Plan overlapped = plan_of(config, 2);
  CHECK(overlapped.messages.mode == MessageMode::overlapped);
  const auto waits = [](const Plan& plan) {
    return std::ranges::count_if(plan.stages[1].actions, [](const Action& row) {
      return row.kind == ActionKind::wait_forward;
    });
  };
  CHECK(waits(single) == 0);
  CHECK(waits(overlapped) == overlapped.microbatches);
  // Two gradients are there at a time.
  CHECK(slots_of(overlapped.stages[0], "layers.1.d_output") >
        slots_of(single.stages[0], "layers.1.d_output"));
}

TEST_CASE("messages of another dtype have buffers and bytes of their own", "[messages]") {
  Config config = two_stages();
  const Plan plain = plan_of(config, 2);
  config.parallel.pipeline.dtype = ComputeType::bf16;
  const Plan half = plan_of(config, 2);
  CHECK(half.messages.casts);
  CHECK(message_bytes(half.stages[0]) == message_bytes(plain.stages[0]) / 2);
  CHECK(find_row(half.stages[0], "chunk.0.output")->storage == Storage::shared);
  CHECK(find_row(half.stages[0], "chunk.0.sent")->storage == Storage::message);
  CHECK(find_row(half.stages[0], "chunk.0.sent")->dtype == DType::bf16);
  CHECK(find_row(half.stages[0], "chunk.0.d_received")->dtype == DType::bf16);
  CHECK(slots_of(half.stages[1], "chunk.0.received") == 1);
  CHECK(find_row(half.stages[1], "chunk.0.d_sent")->dtype == DType::bf16);
  CHECK(find_row(half.stages[1], "chunk.0.sent") == nullptr);
  config.precision.compute = ComputeType::bf16;
  CHECK(!plan_of(config, 2).messages.casts);
  config.parallel.pipeline.dtype = ComputeType::fp32;
  const Plan wide = plan_of(config, 2);
  CHECK(wide.messages.casts);
  CHECK(message_bytes(wide.stages[0]) == message_bytes(plain.stages[0]));
  config.parallel.pipeline.overlap_p2p_comm = true;
  const Plan ahead = plan_of(config, 2);
  CHECK(slots_of(ahead.stages[1], "chunk.0.received") == 2);
}
