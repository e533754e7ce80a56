#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/temporary_folder.h"
#include "base/units.h"
#include "bench/checkpoint_speed.h"
#include "bench/figures.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr double least_rate = 0.8;    // of a plain write
constexpr double most_delay = 1.5;    // times the copy and the writer's share of the processor
constexpr double most_foreign = 1.5;  // times a load into the layout that saved

struct Limit {
  double value = 0;
  double bound = 0;
  bool kept = false;
};

/// The rate of saves as part of that of plain writes.
Limit saving_rate(const SavingSpeed& speed) {
  const double rate = median(ratios_of(speed.write_seconds, speed.save_seconds));
  return {rate, least_rate, rate >= least_rate};
}

double allowed_seconds(const SavingDelay& delay) {
  return median(delay.copy_seconds) + median(delay.writer_seconds) / delay.cores;
}
double delay_seconds(const SavingDelay& delay) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < delay.plain_seconds.size(); ++i) {
    differences.push_back(delay.saving_seconds[i] - delay.plain_seconds[i]);
  }
  return median(std::move(differences));
}
Limit saving_delay(const SavingDelay& delay) {
  const double ratio = delay_seconds(delay) / allowed_seconds(delay);
  return {ratio, most_delay, ratio <= most_delay};
}

/// A load of the checkpoint of layout `from`, as multiple of one of its own.
Limit loading_cost(const std::vector<LoadingSpeed>& loads, std::size_t from, std::size_t into) {
  const LoadingSpeed& speed = loads[into];
  const double cost = median(ratios_of(speed.seconds[from], speed.seconds[into]));
  return {cost, most_foreign, cost <= most_foreign};
}

std::string spread(const std::vector<double>& seconds) {
  return range_of(seconds).of_pairs(format_seconds);
}

std::string against_limit(const Limit& limit) {
  return printed("%.2f", limit.value) + ", limit " + printed("%.2f", limit.bound) + ": " +
         verdict(limit.kept);
}

void print_saving(const SavingResult& saving, std::ostream& out) {
  const SavingSpeed& speed = saving.speed;
  const SavingDelay& delay = saving.delay;
  out << "saving " << format_bytes(speed.bytes) << " from one rank, " << speed.save_seconds.size()
      << " pairs\n"
      << "  a checkpoint       " << spread(speed.save_seconds) << '\n'
      << "  a plain write      " << spread(speed.write_seconds) << '\n'
      << "  rate               " << against_limit(saving_rate(speed)) << '\n'
      << "saving in background, windows of " << delay.steps << " steps\n"
      << "  steps alone        " << spread(delay.plain_seconds) << '\n'
      << "  steps and a save   " << spread(delay.saving_seconds) << '\n'
      << "  one copy           " << spread(delay.copy_seconds) << '\n'
      << "  writer's processor " << spread(delay.writer_seconds) << " on " << delay.cores
      << " cores\n"
      << "  delay              " << format_seconds(delay_seconds(delay)) << " / ("
      << format_seconds(median(delay.copy_seconds)) << " + "
      << format_seconds(median(delay.writer_seconds) / delay.cores)
      << "): " << against_limit(saving_delay(delay)) << '\n'
      << "  memory             " << format_bytes(saving.peak_bytes) << " at most, planned "
      << format_bytes(saving.planned_bytes) << '\n';
}

void print_loading(const std::vector<LoadingSpeed>& loads, std::ostream& out) {
  out << "loading into a layout (row), of a checkpoint of a layout (column)\n            ";
  std::array<char, 64> text{};
  for (const LoadingSpeed& speed : loads) {
    std::snprintf(text.data(), text.size(), "  %20s", speed.layout.c_str());
    out << text.data();
  }
  out << '\n';
  Limit worst;
  for (std::size_t into = 0; into < loads.size(); ++into) {
    std::snprintf(text.data(), text.size(), "  %-10s", loads[into].layout.c_str());
    out << text.data();
    for (std::size_t from = 0; from < loads.size(); ++from) {
      const Limit cost = loading_cost(loads, from, into);
      if (from != into && cost.value > worst.value) worst = cost;
      std::snprintf(text.data(), text.size(), "  %12s x %5.2f",
                    format_seconds(median(loads[into].seconds[from])).c_str(), cost.value);
      out << text.data();
    }
    out << '\n';
  }
  if (loads.size() > 1)
    out << "  most of a load from another layout: " << against_limit(worst) << '\n';
}

nlohmann::ordered_json document(const SavingResult& saving,
                                const std::vector<LoadingSpeed>& loads) {
  nlohmann::ordered_json loading = nlohmann::ordered_json::array();
  for (std::size_t into = 0; into < loads.size(); ++into) {
    for (std::size_t from = 0; from < loads.size(); ++from) {
      loading.push_back({{"into", loads[into].layout},
                         {"from", loads[from].layout},
                         {"seconds", loads[into].seconds[from]},
                         {"over_same_layout", loading_cost(loads, from, into).value}});
    }
  }
  return {{"bytes", saving.speed.bytes},
          {"save_seconds", saving.speed.save_seconds},
          {"write_seconds", saving.speed.write_seconds},
          {"rate_over_write", saving_rate(saving.speed).value},
          {"window_steps", saving.delay.steps},
          {"plain_seconds", saving.delay.plain_seconds},
          {"saving_seconds", saving.delay.saving_seconds},
          {"copy_seconds", saving.delay.copy_seconds},
          {"writer_seconds", saving.delay.writer_seconds},
          {"cores", saving.delay.cores},
          {"delay_over_copy_and_writer", saving_delay(saving.delay).value},
          {"peak_bytes", saving.peak_bytes},
          {"planned_bytes", saving.planned_bytes},
          {"loads", std::move(loading)}};
}

}  // namespace

void bench_checkpoint(const BenchRequest& request, const CheckpointBench& options,
                      std::ostream& out) {
  BenchRequest saving = request;
  for (const char* option :
       {"checkpoint.asynchronous=true", "checkpoint.every=1", "checkpoint.keep=0"}) {
    saving.set_options.emplace_back(option);
  }
  const BenchSetup setup = read_bench_setup(saving);
  const TemporaryFolder folder(options.directory / "trainctl-bench");
  const SavingResult saved = measure_saving(setup, folder.path() / "saves", request.pairs);
  const std::vector<LoadingSpeed> loads =
      measure_loading(setup, folder.path() / "loads", options.ranks, request.pairs);
  if (request.json) {
    out << document(saved, loads).dump() << '\n';
    return;
  }
  print_saving(saved, out);
  print_loading(loads, out);
}

}  // namespace trainctl
