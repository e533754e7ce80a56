// Prices on a device: products, attention, collectives by the levels of a network, and steps.
#include <cmath>
#include <map>
#include <random>
#include <regex>
#include <string>

#include "catch.h"
#include "config/devices/figures.h"
#include "plan/cost/device_prices.h"
#include "plan/cost/estimate.h"
#include "plan/cost/ledger.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

Config config_on(const std::string& device) {
  Config config = gpt2_124m();
  config.precision.compute = ComputeType::bf16;
  config.parallel.device = "cuda";
  config.cluster = {};
  config.cluster.device = device;
  return config;
}

Machine machine_on(const Config& config, std::int64_t ranks) {
  const auto machine = machine_of(config.cluster, ranks);
  REQUIRE(machine);
  return *machine;
}

/// One product takes 1 s for each 1e9 operations on one processor, without anything else.
Machine plain_machine() {
  Machine machine;
  machine.device.products["bf16"] = {.peak = 1e9,
                                     .reached = 1,
                                     .wave = 1,
                                     .half = 0,
                                     .launch = 0,
                                     .tiles = {{10, 10, 1}},
                                     .table = {}};
  machine.device.memory_bandwidth = 1e30;
  machine.device.link = 100;
  machine.levels = {{.ranks = 4, .bandwidth = 100, .latency = 0},
                    {.ranks = 16, .bandwidth = 10, .latency = 1}};
  return machine;
}

PriceList list_of(const Machine& machine) { return {machine, Mesh{}, DType::bf16}; }

double step_seconds(const Plan& plan, const Machine& machine) {
  return estimate_time(plan, machine, {}, {}, 0).step();
}

double step_of(const Config& config, std::int64_t ranks, const Machine& machine) {
  return step_seconds(plan_of(config, ranks), machine);
}

}  // namespace

TEST_CASE("a product takes whole tiles, whole waves, and at least the time of its bytes") {
  Machine machine = plain_machine();
  CHECK(list_of(machine).product({10, 10, 1000}) == Approx(2e5 / 1e9));
  CHECK(list_of(machine).product({11, 10, 1000}) == Approx(2 * 2e5 / 1e9));
  CHECK(list_of(machine).product({10, 10, 1000, 3}) == Approx(3 * 2e5 / 1e9));
  machine.device.processors = 4;  // each a quarter of the peak: one tile leaves three idle
  CHECK(list_of(machine).product({10, 10, 100}) == Approx(4 * 2e4 / 1e9));
  CHECK(list_of(machine).product({20, 20, 100}) == Approx(4 * 2e4 / 1e9));
  CHECK(list_of(machine).product({50, 10, 100}) == Approx(8 * 2e4 / 1e9));
  machine.device.products["bf16"].wave = 0;
  CHECK(list_of(machine).product({50, 10, 100}) == Approx(5 * 2e4 / 1e9));
  machine.device.sustained = 0.5;  // once
  CHECK(list_of(machine).product({50, 10, 100}) == Approx(2 * 5 * 2e4 / 1e9));
  machine.device.memory_bandwidth = 1;
  CHECK(list_of(machine).product({10, 10, 100}) == Approx(2 * (1000 + 1000 + 100)));
}

TEST_CASE("long sums of few tiles are split over idle processors") {
  Machine machine = plain_machine();
  machine.device.processors = 8;
  const double whole = 8 * 2 * 100 * 2048.0 / 1e9;
  CHECK(list_of(machine).product({10, 10, 2048}) == Approx(whole / 8));
  CHECK(list_of(machine).product({10, 10, 510}) == Approx(8 * 2 * 100 * 510.0 / 1e9));
}

TEST_CASE("a product of the device's table takes its time, and those near it are as much longer") {
  Machine machine = plain_machine();
  const double formula = list_of(machine).product({1000, 1000, 1000});
  ProductFigures& figures = machine.device.products["bf16"];
  figures.table = {{.rows = 1000, .columns = 1000, .inner = 1000, .seconds = 1.5 * formula},
                   {.rows = 1000, .columns = 1000, .inner = 5000, .seconds = 10 * formula}};
  compare_table(machine);
  const auto beside = [&](const PricedProduct& one) {
    return list_of(machine).product(one) / list_of(plain_machine()).product(one);
  };
  CHECK(beside({1000, 1000, 1000}) == Approx(1.5));
  CHECK(beside({1000, 1000, 5000}) == Approx(2));
  const double half_way = std::pow(1.5, 1 - std::log(2) / 2);
  CHECK(beside({2000, 1000, 1000}) == Approx(half_way));
  CHECK(beside({1000, 500, 1000}) == Approx(half_way));
  CHECK(beside({1000, 1000, 10000}) == Approx(std::pow(2, 1 - std::log(2) / 2)));
  CHECK(beside({10000, 1000, 1000}) == 1);
  CHECK(beside({1000, 1000, 1000, 2}) == 1);        // experts are not in it
  CHECK(beside({1000, 1000, 1000, 1, true}) == 1);  // nor sums into fp32
  figures.peak *= 2;  // of another device: the same ratio to its formula
  CHECK(list_of(machine).product({1000, 1000, 1000}) == Approx(1.5 * formula / 2));
}

TEST_CASE("a device's file is read back as it is written, with its table of products") {
  DeviceFigures device = machine_on(config_on("h100-sxm"), 1).device;
  ProductFigures& figures = device.products["bf16"];
  figures.table = {
      {.rows = 1024, .columns = 768, .inner = 3072, .seconds = 9.5e-6},
      {.rows = 768, .columns = 3072, .inner = 1024, .accumulates = true, .seconds = 1.25e-5}};
  const std::string text = write_device(device);
  CHECK(text.find("table: {1024x768x3072: 9.5, 768x3072x1024+: 12.5}") != std::string::npos);
  Diagnostics mistakes;
  const DeviceFigures read = read_device(text, "own.yaml", mistakes);
  CHECK_FALSE(mistakes.has_errors());
  CHECK(write_device(read) == text);
  read_device(std::regex_replace(text, std::regex("768x3072x1024"), "768x3072"), "own.yaml",
              mistakes);
  REQUIRE(mistakes.has_errors());
  CHECK(mistakes.list().front().message ==
        "a product is ROWSxCOLUMNSxINNER, with + behind it where it is added to");
}

TEST_CASE("attention costs the pairs under the mask, and is slower for short sequences") {
  Machine machine = plain_machine();
  machine.device.attention["own"] = {
      .forward = 0.5, .half_length = 100, .head_64 = 0.5, .launch = 0, .backward = 0.5};
  machine.software.attention = "own";
  const PricedAttention one{1000, 2, 128, 1000, 1000, 500.5};
  const double flops = 4 * 1000.0 * 2 * 128 * 500.5;
  const double forward = flops / (1e9 * 0.5 * 1000 / 1100);
  CHECK(list_of(machine).attention(one, false) == Approx(forward));
  CHECK(list_of(machine).attention(one, true) == Approx(forward * 2.5 / 0.5));
  const PricedAttention narrow{1000, 4, 64, 1000, 1000, 500.5};
  CHECK(list_of(machine).attention(narrow, false) == Approx(2 * forward));
  machine.device.sustained = 0.5;  // once
  CHECK(list_of(machine).attention(one, false) == Approx(2 * forward));
  machine.software.attention = "scores";
  machine.software.score_bytes = 14;
  machine.device.memory_bandwidth = 1e6;
  machine.device.memory_reached = 1;
  CHECK(list_of(machine).attention(one, false) > 14 * 1000.0 * 2 * 1000 / 1e6);
}

TEST_CASE("attention of the device's table takes its time, and lengths near it as much longer") {
  const auto plain = [] {
    Machine machine = plain_machine();
    machine.device.attention["own"] = {
        .forward = 0.5, .half_length = 100, .head_64 = 0.5, .launch = 0, .backward = 0.5};
    machine.software.attention = "own";
    return machine;
  };
  const auto causal = [](std::int64_t keys, std::int64_t heads, std::int64_t dim) {
    return PricedAttention{keys, heads, dim, keys, keys, static_cast<double>(keys + 1) / 2};
  };
  Machine machine = plain();
  const double forward = list_of(machine).attention(causal(1000, 8, 128), false);
  machine.device.attention["own"].table = {
      {.keys = 1000, .heads = 8, .head_dim = 128, .backward = false, .seconds = 1.5 * forward}};
  compare_table(machine);
  const auto beside = [&](const PricedAttention& one, bool backward) {
    return list_of(machine).attention(one, backward) / list_of(plain()).attention(one, backward);
  };
  CHECK(beside(causal(1000, 8, 128), false) == Approx(1.5));
  CHECK(beside(causal(1000, 32, 128), false) == Approx(1.5));
  CHECK(beside(causal(2000, 8, 128), false) == Approx(std::pow(1.5, 1 - std::log(2) / 2)));
  CHECK(beside(causal(1000, 8, 64), false) == Approx(std::pow(1.5, 1 - std::log(2) / 2)));
  CHECK(beside(causal(10000, 8, 128), false) == 1);
  CHECK(beside(causal(1000, 8, 128), true) == 1);
  const std::string text = write_device(machine.device);
  CHECK(text.find("table: {1000x8x128: ") != std::string::npos);
  Diagnostics mistakes;
  CHECK(read_device(text, "own.yaml", mistakes).attention.at("own").table.size() == 1);
  read_device(std::regex_replace(text, std::regex("1000x8x128"), "1000x8"), "own.yaml", mistakes);
  bool refused = false;
  for (const Diagnostic& one : mistakes.list()) {
    refused = refused || one.message ==
                             "attention is TOKENSxHEADSxFEATURES, with b behind it for its "
                             "backward pass";
  }
  CHECK(refused);
}

TEST_CASE("collectives pay each level: its ranks carry parts over the next one") {
  const Machine machine = plain_machine();
  const PriceList list = list_of(machine);
  const GroupSpan inside{4, 1};
  const GroupSpan across{1, 4};
  const GroupSpan both{4, 4};
  using enum GroupOperation;
  CHECK(list.collective(all_gather, inside, 400) == Approx(300 / 100.0));
  CHECK(list.collective(all_gather, across, 400) == Approx(2 + 300 / 10.0));
  CHECK(list.collective(all_gather, both, 400) == Approx(300 / 100.0 + 2 + 75 / 10.0));
  CHECK(list.collective(reduce_scatter, both, 400) == Approx(300 / 100.0 + 2 + 75 / 10.0));
  CHECK(list.collective(all_reduce, both, 400) == Approx(600 / 100.0 + 4 + 150 / 10.0));
  // A rank sends its parts to the others itself.
  CHECK(list.collective(all_to_all, both, 400) == Approx(300 / 100.0 + 2 + 300 / 10.0));
}

TEST_CASE("a table of a collective is read between its sizes and beyond them") {
  Machine machine = plain_machine();
  machine.device.collectives[GroupOperation::all_gather][4] = {{100, 10000}, {1, 100}};
  const PriceList list = list_of(machine);
  const auto of = [&](double bytes) {
    return list.collective(GroupOperation::all_gather, {4, 1}, bytes);
  };
  CHECK(of(10) == Approx(1));
  CHECK(of(1000) == Approx(10));
  CHECK(of(20000) == Approx(200));
  machine.levels.front().bandwidth = 50;  // half of the device's link
  CHECK(list_of(machine).collective(GroupOperation::all_gather, {4, 1}, 500) == Approx(10));
}

TEST_CASE("groups lie in the levels as the mesh numbers its ranks") {
  Mesh mesh;
  mesh.tp = 4;
  mesh.dp = 8;
  mesh.pp = 2;
  mesh.edp = 32;
  const std::vector<LinkLevel> levels{{.ranks = 8, .bandwidth = 1, .latency = 0},
                                      {.ranks = 64, .bandwidth = 1, .latency = 0}};
  CHECK(span_of(mesh, levels, tensor_group, 4, 0) == GroupSpan{4, 1});
  CHECK(span_of(mesh, levels, group_over({Axis::dp}), 8, 0) == GroupSpan{2, 4});
  CHECK(span_of(mesh, levels, world_group, 64, 0) == GroupSpan{8, 8});
  CHECK(joining_level(levels, 0, 7) == 0);
  CHECK(joining_level(levels, 0, 32) == 1);
}

TEST_CASE(
    "a level has its links' bandwidth, shared by those that send, and what the software reaches") {
  Config config = config_on("h100-sxm");  // links of 450e9 inside, 8 of 50e9 for the 8 of a host
  Machine machine = machine_on(config, 64);
  machine.software.network_share = 0.5;
  machine.software.network_latency = 1e-5;
  const auto levels = [&] { return levels_of(config.cluster, machine, 64); };
  REQUIRE(levels().size() == 2);
  CHECK(levels()[0].ranks == 8);
  CHECK(levels()[0].bandwidth == Approx(450e9));
  CHECK(levels()[0].latency == Approx(1.4e-5));
  CHECK(levels()[1].ranks == 64);
  CHECK(levels()[1].bandwidth == Approx(25e9));
  CHECK(levels()[1].latency == Approx(2.4e-5));
  config.cluster.levels.resize(2);
  config.cluster.levels[0].name = "host";
  config.cluster.levels[0].ranks = 8;
  config.cluster.levels[1].name = "network";
  config.cluster.levels[1].links = 4;
  CHECK(levels()[1].bandwidth == Approx(12.5e9));
  config.cluster.levels[1].oversubscription = 2;
  CHECK(levels()[1].bandwidth == Approx(6.25e9));
  config.cluster.levels[1].links = 16;  // more than ranks that send
  CHECK(levels()[1].bandwidth == Approx(12.5e9));
}

TEST_CASE("ranks that share layers over the network are slower than those of a host") {
  Config config = config_on("h100-sxm");
  config.parallel.tensor_parallel = 4;
  config.train.global_batch_size = 16;
  config.cluster.levels.resize(2);
  config.cluster.levels[0].name = "host";
  config.cluster.levels[0].ranks = 4;
  config.cluster.levels[1].name = "network";
  const double inside = step_of(config, 8, machine_on(config, 8));
  config.cluster.levels[0].ranks = 2;
  const double outside = step_of(config, 8, machine_on(config, 8));
  CHECK(outside > 1.2 * inside);
}

TEST_CASE("a device says on what its time rests, and what tokens cost") {
  Config config = config_on("h100-sxm");
  config.cluster.price_per_hour = 2.5;
  config.train.steps = 1000;
  config.train.global_batch_size = 8;
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.time);
  REQUIRE(plan.time->on_device);
  const DeviceTime& time = *plan.time->on_device;
  CHECK(time.trust == "device table");
  CHECK(time.expected_error == Approx(0.08));
  CHECK(time.goodput > 0.99);
  CHECK(*time.cost_per_billion_tokens == Approx(2.5 * time.device_hours_per_billion_tokens));
  CHECK(*time.cost == Approx(*time.days * 24 * 8 * 2.5));
  CHECK(time.tokens_per_day == Approx(static_cast<double>(plan.tokens_per_step()) /
                                      plan.time->step() * time.goodput * 86400));
  CHECK(plan.device_gib == 80);
}

TEST_CASE("the shares of checkpoints and failures") {
  CHECK(best_interval(2, 8, 10000) == Approx(200));
  CHECK(goodput(2, 200, 8, 10000, 100) == Approx(1 - 8 / 400.0 - 300 / 10000.0));
  for (const double every : {150.0, 300.0}) {
    CHECK(goodput(2, every, 8, 10000, 100) < goodput(2, 200, 8, 10000, 100));
  }
  CHECK(goodput(2, 200, 0, 0, 100) == 1);
}

TEST_CASE("the ledger of a device adds up to its play") {
  Config config = config_on("h100-sxm");
  config.parallel.tensor_parallel = 2;
  config.parallel.pipeline_stages = 2;
  config.train.global_batch_size = 16;
  const Plan plan = plan_of(config, 8);
  const Machine machine = machine_on(config, 8);
  const auto prices = device_prices(plan, price_list(plan, machine));
  SimulationInput input = simulation_input(plan);
  const TimeEstimate time = estimate_time(plan, prices, input);
  for (const Ledger& ledger : estimate_ledgers(plan, prices)) {
    CHECK(ledger.products > 0);
    CHECK(ledger.tp > 0);
    CHECK(ledger.total() == Approx(time.forward_backward + ledger.optimizer).epsilon(0.02));
  }
}

TEST_CASE(
    "a step grows by contention with the work that overlaps sums, by jitter and by fixed seconds") {
  Config config = config_on("h100-sxm");
  config.train.global_batch_size = 16;
  config.train.micro_batch_size = 1;
  const Plan plan = plan_of(config, 8);
  Machine machine = machine_on(config, 8);
  SoftwareFigures& software = machine.software;
  software.sums_rest = software.jitter = software.fixed = 0;
  const auto grown = [&](double contention) {
    const auto step = [&](double share) {
      machine.device.contention = share;
      return step_seconds(plan, machine);
    };
    return step(contention) - step(0);
  };
  const auto prices = [&] { return device_prices(plan, price_list(plan, machine)); };
  double sums = 0;
  for (const CollectiveUse& use : plan.stages[0].communication) {
    if (use.purpose == TrafficPurpose::gradients) sums += prices()[0]->wire(use);
  }
  CHECK(grown(0.5) == Approx(0.5 * sums));
  // Sums that take longer than all work overlap that work alone.
  machine.levels[0].bandwidth /= 1000;
  const Ledger ledger = estimate_ledgers(plan, prices()).front();
  CHECK(grown(0.5) == Approx(0.5 * (ledger.products + ledger.kernels)));
  machine.device.contention = 0;
  const auto step = [&] { return step_seconds(plan, machine); };
  double calm = step();
  software.jitter = 0.01;
  CHECK(step() == Approx(calm));  // one host
  software.jitter = 0;
  machine.levels[0].ranks = 2;
  calm = step();
  software.jitter = 0.01;
  CHECK(step() == Approx(1.02 * calm));  // four, which are two doublings
  software.fixed = 3;
  CHECK(step() == Approx(1.02 * calm + 3));
}

TEST_CASE("figures of a type that a file lacks are guessed from those of the other") {
  const Config bf16 = config_on("h100-sxm");
  const DeviceFigures device = machine_on(bf16, 1).device;
  CHECK_FALSE(device.products.at("bf16").guessed);
  CHECK(device.products.at("fp32").guessed);
  CHECK(device.products.at("fp32").peak == Approx(989e12 / 16));
  CHECK(write_device(device).find("fp32:") == std::string::npos);
  Config fp32 = bf16;
  fp32.precision.compute = ComputeType::fp32;
  const Plan rough = plan_of(fp32, 1);
  CHECK(rough.time->on_device->trust == "data sheet");
  CHECK(rough.time->on_device->expected_error == Approx(0.3));
  CHECK(rough.time->step() > 5 * plan_of(bf16, 1).time->step());
  CHECK_FALSE(machine_on(config_on("cpu-avx2"), 1).device.products.at("fp32").guessed);
}

namespace {

/// Layouts of 16 ranks drawn at random, planned once each.
class DrawnLayouts {
 public:
  explicit DrawnLayouts(std::mt19937& random) : random_(random) {}
  std::int64_t upto(unsigned most) { return static_cast<std::int64_t>(random_() % most); }

  const Plan& draw() {
    Config config = config_on("h100-sxm");
    ParallelConfig& parallel = config.parallel;
    std::string key;
    const auto pick = [&](unsigned most) {
      const std::int64_t chosen = upto(most);
      key += std::to_string(chosen) + ",";
      return chosen;
    };
    parallel.tensor_parallel = std::int64_t{1} << pick(3);
    parallel.pipeline_stages = std::int64_t{1} << pick(2);
    parallel.context_parallel = std::int64_t{1} << pick(2);
    const std::int64_t level = pick(4);
    parallel.parallel_optimizer.enable = level > 0;
    if (level > 0) {
      parallel.parallel_optimizer.optimizer_level = static_cast<OptimizerLevel>(level - 1);
    }
    parallel.sequence_parallel = pick(2) == 1 && parallel.tensor_parallel > 1;
    parallel.tp_comm_overlap.enable = pick(2) == 1 && parallel.sequence_parallel;
    config.recompute.enable = pick(2) == 1;
    config.train.global_batch_size = 32;
    config.train.micro_batch_size = 1 + pick(2);
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second
                                 : plans_.emplace(key, plan_of(config, 16)).first->second;
  }

 private:
  std::mt19937& random_;
  std::map<std::string, Plan> plans_;
};

struct FasterFigure {
  const char* name;
  void (*change)(Machine& machine, double factor);
};
constexpr FasterFigure faster_figures[] = {
    {"link", [](Machine& m, double by) { m.levels[0].bandwidth *= by; }},
    {"latency of the link", [](Machine& m, double by) { m.levels[0].latency /= by; }},
    {"network", [](Machine& m, double by) { m.levels[1].bandwidth *= by; }},
    {"latency of the network", [](Machine& m, double by) { m.levels[1].latency /= by; }},
    {"memory", [](Machine& m, double by) { m.device.memory_bandwidth *= by; }},
    {"products", [](Machine& m, double by) { m.device.products["bf16"].peak *= by; }},
    {"launch", [](Machine& m, double by) { m.device.products["bf16"].launch /= by; }},
    {"attention",
     [](Machine& m, double by) {
       for (auto& [kernel, figures] : m.device.attention) figures.forward *= by;
     }},
    {"copies", [](Machine& m, double by) { m.device.host_bandwidth *= by; }},
    {"collectives", [](Machine& m, double by) {
       for (auto& [operation, tables] : m.device.collectives) {
         for (auto& [ranks, table] : tables) {
           for (double& seconds : table.seconds) seconds /= by;
         }
       }
     }}};

}  // namespace

TEST_CASE("a faster link, memory or processor never makes a step slower") {
  std::mt19937 random(7);
  DrawnLayouts layouts(random);
  const char* devices[] = {"h100-sxm", "a100-sxm-80", "gb200", "mi300x"};
  for (int draw = 0; draw < tries(500, 5000); ++draw) {
    const Plan& plan = layouts.draw();
    const Machine machine = machine_on(config_on(devices[layouts.upto(4)]), 16);
    const FasterFigure& figure = faster_figures[draw % std::ssize(faster_figures)];
    Machine faster = machine;
    figure.change(faster, 1.02 + 0.1 * static_cast<double>(layouts.upto(20)));
    const double before = step_seconds(plan, machine);
    INFO(figure.name << ", draw " << draw);
    CHECK(step_seconds(plan, faster) <= before * (1 + 1e-12));
  }
}
