#include "run/layouts/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "plan/cost/device_prices.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

namespace {

constexpr double furthest = 4;  // largest factor or divisor of a figure

/// A figure that is changed by itself; its value is 0 if the machine does not have it.
struct MachineFigure {
  const char* name;
  const char* unit;
  bool is_rate;
  double (*value)(const Machine&, const Plan&);
  void (*scale)(Machine&, double factor);
};

bool has_network(const Machine& machine, const Plan& plan) {
  return machine.levels.size() > 1 && machine.levels.front().ranks < plan.mesh.world_size();
}

void scale_products(Machine& machine, double factor) {
  for (auto& [type, products] : machine.device.products) {
    products.peak *= factor;
    for (ProductTime& one : products.table) one.seconds /= factor;
  }
}

double attention_share(const Machine& machine, const Plan& plan) {
  const auto& kernels = machine.device.attention;
  const bool cudnn = machine.software.attention == "own" && plan.cudnn && kernels.contains("cudnn");
  const auto found = kernels.find(cudnn ? "cudnn" : machine.software.attention);
  return found == kernels.end() ? 0 : found->second.forward;
}

constexpr MachineFigure machine_figures[] = {
    {"matrix products", "FLOP/s", true,
     [](const Machine& machine, const Plan& plan) {
       return products_of(machine.device, plan.compute)->peak;
     },
     scale_products},
    {"attention relative to products", "", true, attention_share,
     [](Machine& machine, double factor) {
       for (auto& [name, kernel] : machine.device.attention) kernel.forward *= factor;
     }},
    {"memory bandwidth", "bytes/s", true,
     [](const Machine& machine, const Plan&) { return machine.device.memory_bandwidth; },
     [](Machine& machine, double factor) { machine.device.memory_bandwidth *= factor; }},
    {"bandwidth inside a host", "bytes/s", true,
     [](const Machine& machine, const Plan& plan) {
       return plan.mesh.world_size() > 1 ? machine.levels.front().bandwidth : 0;
     },
     // PriceList::collective scales the measured tables of collectives by this figure.
     [](Machine& machine, double factor) { machine.levels.front().bandwidth *= factor; }},
    {"network bandwidth of a rank", "bytes/s", true,
     [](const Machine& machine, const Plan& plan) {
       return has_network(machine, plan) ? machine.levels[1].bandwidth : 0;
     },
     [](Machine& machine, double factor) {
       for (std::size_t i = 1; i < machine.levels.size(); ++i) {
         machine.levels[i].bandwidth *= factor;
       }
     }},
    {"network latency", "s", false,
     [](const Machine& machine, const Plan& plan) {
       return has_network(machine, plan) ? machine.levels[1].latency : 0;
     },
     [](Machine& machine, double factor) {
       for (std::size_t i = 1; i < machine.levels.size(); ++i) machine.levels[i].latency *= factor;
     }},
    {"processors that a collective takes", "", false,
     [](const Machine& machine, const Plan& plan) {
       return plan.mesh.world_size() > 1 ? machine.device.contention : 0;
     },
     [](Machine& machine, double factor) { machine.device.contention *= factor; }},
    {"bandwidth to the host's memory", "bytes/s", true,
     [](const Machine& machine, const Plan&) { return machine.device.host_bandwidth; },
     [](Machine& machine, double factor) { machine.device.host_bandwidth *= factor; }},
};

double seconds_with(const Plan& plan, const Machine& machine, const MachineFigure& figure,
                    double factor) {
  Machine changed = machine;
  figure.scale(changed, factor);
  const auto prices = device_prices(plan, price_list(plan, changed));
  return play_step(plan, changed, prices).time.step();
}

/// Seconds as a + b x on one side of x = 1; x is the figure's scale, or its inverse for a rate.
struct Line {
  double start = 0, slope = 0;  // seconds at x = 1, and change per x
};
Line line_of(double seconds, double changed, double share, bool is_rate) {
  const double x = is_rate ? 1 / share : share;
  return {seconds, (changed - seconds) / (x - 1)};
}

/// The scale at which `other` is as fast as `best`, if it is on the same side of 1 as `share`.
std::optional<double> meeting(const Line& best, const Line& other, double share, bool is_rate) {
  const double slopes = best.slope - other.slope;
  if (slopes == 0) return std::nullopt;
  const double x = 1 + (other.start - best.start) / slopes;
  if (x <= 0) return std::nullopt;
  const double met = is_rate ? 1 / x : x;
  const bool same_side = share < 1 ? met < 1 && met >= 1 / furthest : met > 1 && met <= furthest;
  return same_side ? std::optional(met) : std::nullopt;
}

using Side = double ChangedFigure::*;

double seconds_of(const FoundArrangement& one, std::size_t figure, Side side) {
  return one.changed[figure].*side;
}

std::pair<std::size_t, double> fastest(const std::vector<FoundArrangement>& layouts,
                                       std::size_t figure, Side side) {
  const auto found = std::ranges::min_element(
      layouts, {}, [&](const FoundArrangement& one) { return seconds_of(one, figure, side); });
  return {static_cast<std::size_t>(found - layouts.begin()), seconds_of(*found, figure, side)};
}

std::optional<Sensitivity::Change> change(const std::vector<FoundArrangement>& layouts,
                                          std::size_t figure, Side side, double share) {
  const ChangedFigure& about = layouts.front().changed[figure];
  const auto line = [&](const FoundArrangement& one) {
    return line_of(one.seconds, seconds_of(one, figure, side), share, about.is_rate);
  };
  std::optional<Sensitivity::Change> nearest;
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    const auto met = meeting(line(layouts.front()), line(layouts[i]), share, about.is_rate);
    if (!met) continue;
    const bool nearer =
        !nearest || std::abs(std::log(*met)) < std::abs(std::log(nearest->value / about.value));
    if (nearer) nearest = {*met * about.value, i};
  }
  return nearest;
}

}  // namespace

std::vector<ChangedFigure> repriced(const Plan& plan, const Machine& machine) {
  std::vector<ChangedFigure> changed;
  for (const MachineFigure& figure : machine_figures) {
    const double value = figure.value(machine, plan);
    if (value <= 0) continue;
    changed.push_back({.figure = figure.name,
                       .unit = figure.unit,
                       .value = value,
                       .less = seconds_with(plan, machine, figure, less_of_figure),
                       .more = seconds_with(plan, machine, figure, more_of_figure),
                       .is_rate = figure.is_rate});
  }
  return changed;
}

std::vector<Sensitivity> sensitivities(const std::vector<FoundArrangement>& layouts) {
  std::vector<Sensitivity> all;
  if (layouts.empty()) return all;
  for (std::size_t i = 0; i < layouts.front().changed.size(); ++i) {
    const bool matters = std::ranges::any_of(layouts, [i](const FoundArrangement& one) {
      return one.changed[i].less != one.seconds || one.changed[i].more != one.seconds;
    });
    if (!matters) continue;
    Sensitivity one{.best = layouts.front().changed[i]};
    std::tie(one.fastest_less, one.seconds_less) = fastest(layouts, i, &ChangedFigure::less);
    std::tie(one.fastest_more, one.seconds_more) = fastest(layouts, i, &ChangedFigure::more);
    one.below = change(layouts, i, &ChangedFigure::less, less_of_figure);
    one.above = change(layouts, i, &ChangedFigure::more, more_of_figure);
    all.push_back(std::move(one));
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const Sensitivity& one) {
    return std::abs(one.best.less - one.best.more);
  });
  return all;
}

std::string figure_text(double value, const std::string& unit) {
  if (unit.empty()) return printed("%.3g", 100 * value) + " %";
  if (unit == "s") return format_seconds(value);
  if (unit == "FLOP/s") return printed("%.4g", value * 1e-12) + " TFLOP/s";
  return printed("%.4g", value * 1e-9) + " GB/s";
}

}  // namespace trainctl
