// Activations that layers keep on the host: rows and copies, where they lie, what they cost, and
// copies in the wrong order.
#include <algorithm>
#include <set>

#include "base/at.h"
#include "catch.h"
#include "pipeline.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/ledger.h"
#include "plan/cost/step_time.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

/// One micro-batch; the first layers of four on the host.
Config offloaded(std::int64_t layers, bool two_buffers = false) {
  Config config = small_config();
  config.train.global_batch_size = 1;
  config.offload.enable = true;
  config.offload.num_layers = layers;
  config.offload.double_buffering = two_buffers;
  return config;
}

/// Passes of blocks, and copies, by their units: "F1 offload1".
std::string order_of(const StagePlan& stage) {
  std::string text;
  for (const Action& row : stage.actions) {
    if (!is_pass(row.kind) && !is_host_copy(row.kind)) continue;
    std::string name = short_name(row);
    name = is_pass(row.kind) ? name.substr(0, 1) : name.substr(0, name.find(' '));
    for (int unit = std::max(1, row.begin); unit < std::min(5, row.end); ++unit) {
      text += (text.empty() ? "" : " ") + name + std::to_string(unit);
    }
  }
  return text;
}

const ActivationSpec* row_of(const StagePlan& stage, const std::string& name) {
  const auto found = std::find_if(stage.activations.begin(), stage.activations.end(),
                                  [&](const ActivationSpec& spec) { return spec.name == name; });
  return found == stage.activations.end() ? nullptr : &*found;
}

void check_life(const StagePlan& stage, const std::string& name, Storage storage, Moment from,
                Moment until) {
  INFO(name);
  const ActivationSpec* row = row_of(stage, name);
  REQUIRE(row != nullptr);
  CHECK(row->storage == storage);
  CHECK(row->from == from);
  CHECK(row->until == until);
}

/// Seconds of a step in which F, B and W of a layer take one each, and a copy too.
Simulation play(const Config& config, double copy) {
  const Plan plan = plan_of(config);
  SimulationInput input = simulation_input(plan);
  input.cost = [&](const RankRows&, const Action& row) {
    return is_host_copy(row.kind) ? copy : layer_cost(row, plan.model.layers);
  };
  return simulate(input);
}

/// The violations that the proof finds, one a line, after a change to the rows of an offloaded
/// plan.
template <class Change>
std::string found_after(const Change& change) {
  Plan plan = plan_of(offloaded(2));
  std::vector<Action>& rows = plan.stages[0].actions;
  change(rows);
  std::string text;
  for (const std::string& violation : simulate(simulation_input(plan)).violations) {
    text += violation + "\n";
  }
  return text;
}

std::size_t place_of(const std::vector<Action>& rows, ActionKind kind, int unit) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Action& row) {
    return row.kind == kind && row.begin == unit;
  });
  REQUIRE(found != rows.end());
  return static_cast<std::size_t>(found - rows.begin());
}

}  // namespace

TEST_CASE("a layer's rows on the device and on the host", "[offload]") {
  const Plan plan = plan_of(offloaded(2));
  const StagePlan& stage = plan.stages[0];
  check_life(stage, "first.layers.0.mlp.act", Storage::staged, Moment::forward, Moment::offload);
  check_life(stage, "host.layers.0.mlp.act", Storage::host, Moment::offload, Moment::reload);
  check_life(stage, "layers.0.mlp.act", Storage::staged, Moment::reload, Moment::weight);
  check_life(stage, "layers.1.input", Storage::input, Moment::input, Moment::offload);
  check_life(stage, "layers.1.input_again", Storage::staged, Moment::reload, Moment::weight);
  check_life(stage, "layers.2.mlp.act", Storage::forward, Moment::forward, Moment::weight);
  CHECK(row_of(stage, "host.layers.2.mlp.act") == nullptr);
  CHECK(row_of(stage, "host.layers.1.mlp.d_up") == nullptr);  // gradients stay
}

TEST_CASE("only what is not recomputed goes to the host", "[offload]") {
  Config config = offloaded(2);
  config.recompute.enable = true;
  config.recompute.select = "norms+activations";
  const Plan plan = plan_of(config);
  const StagePlan& stage = plan.stages[0];
  CHECK(row_of(stage, "host.layers.0.mlp.act") == nullptr);
  CHECK(row_of(stage, "host.layers.0.mlp.up") != nullptr);
  CHECK(order_of(stage).ends_with(
      "reload2 R4 B4 W4 R3 B3 W3 wait_reload2 R2 B2 W2 reload1 wait_reload1 R1 B1 W1"));
}

TEST_CASE("the order of passes and copies", "[offload]") {
  CHECK(order_of(plan_of(offloaded(3)).stages[0]) ==
        "F1 offload1 wait_offload1 F2 offload2 wait_offload2 F3 offload3 F4 wait_offload3 reload3 "
        "B4 W4 wait_reload3 B3 W3 reload2 wait_reload2 B2 W2 reload1 wait_reload1 B1 W1");
  CHECK(order_of(plan_of(offloaded(3, true)).stages[0]) ==
        "F1 offload1 F2 offload2 wait_offload1 F3 offload3 F4 wait_offload2 wait_offload3 reload3 "
        "reload2 B4 W4 wait_reload3 B3 W3 reload1 wait_reload2 B2 W2 wait_reload1 B1 W1");
}

TEST_CASE("the host holds each layer of each micro-batch in flight", "[offload]") {
  for (const bool two : {false, true}) {
    const Config config = offloaded(3, two);
    const Plan plan = plan_of(config);
    Config usual = config;
    usual.offload.enable = false;
    const Plan other = plan_of(usual);
    const std::int64_t layer = form_bytes(plan, 0, 1, {.on_host = true}).on_host;
    CHECK(layer == form_bytes(plan, 0, 1, {}).kept);
    CHECK(form_bytes(plan, 0, 1, {.on_host = true}).kept == 0);
    const ActivationSlots& slots = plan.stages[0].activation_slots;
    CHECK(slots.host_bytes == 3 * layer);
    // The input of the last layers stays until the backward begins.
    const std::int64_t input = padded_bytes(*row_of(plan.stages[0], "layers.2.input"));
    const std::int64_t buffers = two ? 2 : 1;
    CHECK(slots.bytes ==
          other.stages[0].activation_slots.bytes - (3 - buffers) * layer + buffers * input);
    CHECK(plan.stages[0].memory.offloaded == slots.host_bytes);
    CHECK(other.stages[0].memory.offloaded == 0);
  }
  Config staged = offloaded(3);
  staged.parallel.pipeline_stages = 2;
  staged.train.global_batch_size = 8;
  staged.train.micro_batch_size = 1;
  const Plan plan = plan_of(staged, 2);
  const std::int64_t layer = form_bytes(plan, 0, 1, {.on_host = true}).on_host;
  CHECK(plan.stages[0].activation_slots.host_bytes == 2 * 2 * layer);  // two in flight
  CHECK(plan.stages[1].activation_slots.host_bytes == layer);          // the third of the model
}

TEST_CASE("two buffers let copies overlap the passes", "[offload]") {
  Config none = offloaded(3);
  none.offload.enable = false;
  CHECK(play(none, 1).seconds == Approx(12));
  CHECK(play(offloaded(3), 0).seconds == Approx(12));
  const Simulation one = play(offloaded(3), 1);
  CHECK(one.seconds == Approx(16));
  CHECK(one.queues[0].waited_copies == Approx(4));
  CHECK(one.exposed_communication == Approx(4));
  CHECK(one.bubble_fraction == Approx(0).margin(1e-12));
  CHECK(play(offloaded(3, true), 1).seconds == Approx(12));
  CHECK(play(offloaded(3, true), 3).seconds > 12);
}

TEST_CASE("a copy takes the bytes that it reads and writes", "[offload]") {
  Config config = offloaded(3);
  const double never = 1e30;
  const Rates rates{
      .matmul_flops = never, .memory_bandwidth = 1e9, .latency = 0, .bandwidth = never};
  const Plan plan = plan_of(config);
  double bytes = 0;
  for (const ActivationSpec& row : plan.stages[0].activations) {
    const bool counts = row.storage == Storage::host && row.unit == 1;
    if (counts) bytes += static_cast<double>(row.shape.numel() * size_of(row.dtype));
  }
  const auto seconds = row_seconds(plan, rates);
  const SimulationInput input = simulation_input(plan);
  const Action copy{.kind = ActionKind::reload, .begin = 1, .end = 2};
  CHECK(seconds(input.ranks[0], copy) == Approx(2e-9 * bytes));
  config.offload.enable = false;
  const TimeEstimate usual = estimate_time(plan_of(config), rates);
  const TimeEstimate moved = estimate_time(plan, rates);
  CHECK(moved.exposed > 0);
  CHECK(moved.forward_backward == Approx(usual.forward_backward + moved.exposed));
  CHECK(estimate_ledgers(plan, rates)[0].host == Approx(moved.exposed));
}

TEST_CASE("copies that come too late or not at all are found", "[offload]") {
  using Rows = std::vector<Action>;
  using Kind = ActionKind;
  const auto drop = [](Kind kind, int unit) {
    return [=](Rows& rows) {
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(place_of(rows, kind, unit)));
    };
  };
  const auto exchange = [](Kind a, int unit, Kind b, int other) {
    return [=](Rows& rows) {
      std::swap(rows[place_of(rows, a, unit)], rows[place_of(rows, b, other)]);
    };
  };
  using Catch::Contains;
  CHECK(found_after([](Rows&) {}) == "");
  CHECK_THAT(found_after(drop(Kind::offload, 1)), Contains("no copy to the host is under way"));
  CHECK_THAT(found_after(drop(Kind::wait_offload, 2)), Contains("it is not on the host"));
  CHECK_THAT(found_after(drop(Kind::reload, 2)), Contains("no copy from the host is under way"));
  CHECK_THAT(found_after(drop(Kind::wait_reload, 1)),
             Contains("reads what unit 1 keeps on the host before wait_reload") &&
                 Contains("nobody waited for a host copy"));
  CHECK_THAT(found_after(exchange(Kind::wait_reload, 1, Kind::backward_weight, 1)),
             Contains("B0.0[1,2): reads what unit 1 keeps on the host"));
  CHECK_THAT(found_after(exchange(Kind::offload, 1, Kind::forward, 1)),
             Contains("offload 0.0[1,2): must come once, after F"));
  CHECK_THAT(found_after([](Rows& rows) {
               Action& row = rows[place_of(rows, Kind::reload, 2)];
               row.begin = 3;
               row.end = 4;
             }),
             Contains("unit 3 is not kept on the host"));
}

TEST_CASE("the first layers of the model, whichever stage has them", "[offload]") {
  Config config = offloaded(3);
  config.parallel.pipeline_stages = 2;
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 1;
  const Plan plan = plan_of(config, 2);
  for (int unit = 1; unit <= 2; ++unit) CHECK(plan.stages[0].forms.on_host(unit));
  CHECK(plan.stages[1].forms.on_host(3));
  CHECK_FALSE(plan.stages[1].forms.on_host(4));
}

TEST_CASE("forms that the plan picks leave layers on the host", "[offload]") {
  Config config = offloaded(2);
  config.cluster = {
      .matmul_flops = 1e12, .memory_bandwidth = 2e11, .latency = 1e-5, .bandwidth = 1e10};
  const std::int64_t most = plan_of(config).max_memory().total();
  config.recompute.enable = true;
  config.recompute.select = "auto";
  config.recompute.memory_limit = static_cast<double>(most - 4096) / (1 << 30);
  const Plan plan = plan_of(config);
  const StageForms& forms = plan.stages[0].forms;
  CHECK(forms.on_host(2));
  CHECK_FALSE(forms.on_host(3));
  CHECK(std::any_of(forms.usual.begin(), forms.usual.end(),
                    [](const auto& form) { return form.second.repeats(); }));
  CHECK(plan.max_memory().total() <= most - 4096);
}

TEST_CASE("weights on the host take a place of the host and one or two slots", "[offload]") {
  Config usual = offloaded(3);
  usual.offload.enable = false;
  usual.precision.compute = ComputeType::bf16;
  const Plan without = plan_of(usual);
  for (const bool two : {false, true}) {
    Config config = offloaded(3, two);
    config.precision.compute = ComputeType::bf16;
    config.offload.weights = true;
    config.offload.activations = false;
    const Plan plan = plan_of(config);
    const StagePlan& stage = plan.stages[0];
    REQUIRE(stage.gathers.size() == 3);
    std::int64_t layer = 0;
    for (const ParamSpec& row : stage.parameters) {
      if (row.unit == 1 && !row.is_vector) layer += 2 * row.shape.numel();
    }
    for (const GatherBlock& block : stage.gathers) CHECK(block.from_host);
    CHECK(stage.weight_ring.length == (two ? 2 : 1) * layer);
    CHECK(stage.memory.offloaded == 3 * layer);
    CHECK(stage.memory.parameters == without.stages[0].memory.parameters - (two ? 1 : 2) * layer);
    CHECK(stage.memory.activations == without.stages[0].memory.activations);
    // Each is brought for F, and again for B unless it is still there.
    for (int block = 0; block < 3; ++block) {
      const bool there = block == 2 || (two && block == 1);
      CHECK(visits_of(stage, ActionKind::gather, block) == (there ? 1 : 2));
    }
    // Nothing of it travels between ranks.
    CHECK(stage.communication.size() == without.stages[0].communication.size());
    // A copy reads and writes; with two buffers it overlaps the passes.
    const double never = 1e30;
    const Rates rates{
        .matmul_flops = never, .memory_bandwidth = 1e9, .latency = 0, .bandwidth = never};
    const auto seconds = row_seconds(plan, rates);
    const SimulationInput input = simulation_input(plan);
    const auto gather =
        std::find_if(stage.actions.begin(), stage.actions.end(),
                     [](const auto& row) { return row.kind == ActionKind::gather; });
    REQUIRE(gather != stage.actions.end());
    CHECK(seconds(input.ranks[0], *gather) == Approx(2 * static_cast<double>(layer) / 1e9));
  }
}

namespace {

/// Two stages of two layers with four micro-batches in flight. The first layer may be on the host,
/// through one buffer: no copy is hidden.
Config picked(std::int64_t device, std::int64_t host) {
  Config config = offloaded(1);
  config.parallel.pipeline_stages = 2;
  config.parallel.pipeline.scheduler = PipelineScheduler::gpipe;
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 1;
  config.cluster = {
      .matmul_flops = 1e12, .memory_bandwidth = 2e11, .latency = 1e-5, .bandwidth = 1e10};
  config.recompute.enable = true;
  config.recompute.select = "auto";
  const auto gib = [](std::int64_t bytes) {  // rounding does not decide
    return (static_cast<double>(bytes) + 0.5) / (1 << 30);
  };
  config.recompute.memory_limit = gib(device);
  config.offload.memory_limit = gib(host);
  return config;
}

double seconds_with_copies(const Plan& plan, const StageForms& forms, const Rates& rates) {
  double seconds = 0;
  for (const auto& [unit, form] : forms.usual) {
    const auto bytes = static_cast<double>(form_bytes(plan, 0, unit, form).on_host);
    seconds += repeat_seconds(plan, unit, form, rates) + 4 * bytes / rates.memory_bandwidth;
  }
  return seconds;
}

std::int64_t on_device(const MemoryEstimate& memory) { return memory.total() - memory.offloaded; }

/// All choices for the first stage, the fastest first. Their bytes are found when they are asked
/// for.
class Choices {
 public:
  Choices(const Plan& plan, const Config& config) : plan_(plan), config_(config) {
    const StagePlan& whole = plan.stages.front();
    others_ = on_device(whole.memory) - whole.activation_slots.bytes;
    for (const bool on_host : {false, true}) {
      for (int one = 0; one <= all_parts; ++one) {
        for (int two = 0; two <= all_parts; ++two) {
          Choice& choice = choices_.emplace_back();
          choice.forms.usual[1] = {.repeated = static_cast<std::uint8_t>(one), .on_host = on_host};
          choice.forms.usual[2] = {.repeated = static_cast<std::uint8_t>(two)};
          choice.seconds = seconds_with_copies(plan, choice.forms, *given_rates(config.cluster));
        }
      }
    }
    std::ranges::stable_sort(choices_, {}, &Choice::seconds);
  }

  /// The seconds of the fastest that fits.
  double least(std::int64_t device, std::int64_t host) {
    for (Choice& choice : choices_) {
      if (choice.device < 0) lay(choice);
      if (choice.device <= device && choice.host <= host) return choice.seconds;
    }
    return 1e9;
  }

 private:
  struct Choice {
    StageForms forms;
    double seconds = 0;
    std::int64_t device = -1, host = -1;  // bytes
  };

  void lay(Choice& choice) const {
    StagePlan laid = plan_.stages.front();
    laid.forms = choice.forms;
    lay_out(plan_, 0, move_config(config_), laid);
    choice.device = others_ + laid.activation_slots.bytes;
    choice.host = laid.activation_slots.host_bytes;
  }

  const Plan& plan_;
  Config config_;
  std::int64_t others_ = 0;
  std::vector<Choice> choices_;
};

}  // namespace

TEST_CASE("which layers are on the host is picked with the forms", "[offload]") {
  Config none = picked(0, 0);
  none.offload.enable = none.recompute.enable = false;
  const Plan whole = plan_of(none, 2);
  Config max_on_host = none;
  max_on_host.offload.enable = true;
  const std::int64_t layer = plan_of(max_on_host, 2).stages[0].memory.offloaded;
  none.recompute.enable = true;
  none.recompute.select = "full";
  const std::int64_t least = on_device(plan_of(none, 2).max_memory());
  const std::int64_t most = on_device(whole.stages[0].memory);
  bool any = false;
  Choices choices(whole, picked(0, 0));
  for (const int eighths : some_of({2, 0, 5})) {
    for (const std::int64_t host : some_of({layer, layer / 3, layer / 64})) {
      const std::int64_t device = least + (most - least) * eighths / 8;
      const Config config = picked(device, host);
      const Plan plan = plan_of(config, 2);
      INFO(eighths << " eighths of the way, " << host << " on the host");
      for (const StagePlan& stage : plan.stages) CHECK(on_device(stage.memory) <= device);
      CHECK(plan.stages[0].memory.offloaded <= host);
      CHECK(plan.stages[1].memory.offloaded == 0);
      const StageForms& forms = plan.stages[0].forms;
      CHECK_FALSE(forms.on_host(2));
      any = any || forms.on_host(1);
      CHECK(seconds_with_copies(plan, forms, *given_rates(config.cluster)) ==
            Approx(choices.least(device, host)));
    }
  }
  CHECK(any);
}

TEST_CASE("a second buffer hides the copies of picked layers", "[offload]") {
  Config config = picked(0, std::int64_t{1} << 30);
  config.parallel.pipeline_stages = 1;
  config.train.global_batch_size = 1;
  config.model.num_layers = 6;
  config.offload.num_layers = 5;
  config.offload.double_buffering = true;
  config.cluster.memory_bandwidth = 1e12;
  config.recompute.enable = config.offload.enable = false;
  const Plan whole = plan_of(config);
  config.recompute.enable = config.offload.enable = true;
  const std::int64_t slots = whole.stages[0].activation_slots.bytes;
  config.recompute.memory_limit =
      static_cast<double>(on_device(whole.max_memory()) - slots / 4) / (1 << 30);
  const Plan plan = plan_of(config);
  // Layers on the host cost nothing, so nothing is recomputed; no more layers are there than are
  // needed.
  const StageForms& forms = plan.stages[0].forms;
  CHECK(forms.on_host(1));
  CHECK_FALSE(forms.on_host(5));
  for (const auto& [unit, form] : forms.usual) CHECK_FALSE(form.repeats());
  CHECK(plan.time->step() == Approx(whole.time->step()));
}
