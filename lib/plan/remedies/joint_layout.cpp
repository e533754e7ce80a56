#include "plan/remedies/joint_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/remedies/trial.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::size_t most_tried = 300;

/// The errors that other sizes can cure.
constexpr std::string_view codes[] = {"world-size",          "expert-world-size",
                                      "batch-divides",       "micro-batch-divides",
                                      "micro-batch-product", "heads-tensor",
                                      "groups-tensor",       "ffn-tensor",
                                      "vocab-tensor",        "hidden-tensor",
                                      "sequence-tensor",     "stage-layers",
                                      "chunk-layers",        "interleave-micro-batches",
                                      "sequence-context",    "context-heads",
                                      "virtual-stages",      "micro-batches-stages"};

bool is_about_sizes(const Diagnostic& one) {
  return one.severity == Severity::error &&
         std::find(std::begin(codes), std::end(codes), one.code) != std::end(codes);
}

/// What would be written, and how far it is from what was given.
struct Suggestion {
  Config config;
  std::string text;
  int keys = 0;
  double distance = 0;
};

double distance_between(std::int64_t before, std::int64_t after) {
  return std::abs(std::log2(static_cast<double>(after) / static_cast<double>(before)));
}

std::vector<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t low = 1; low <= most && low <= n; ++low) {
    if (n % low == 0) found.push_back(low);
  }
  return found;
}

class Search {
 public:
  Search(const Config& config, const Site& site) : config_(config), site_(site) {
    for (const Diagnostic& one : errors_of(config)) {
      if (!is_about_sizes(one)) others_.push_back(one);
    }
  }

  /// The nearest sizes that satisfy all rules, as text; where those change the batch, also the
  /// nearest ones that leave it as it is. "" if there are none.
  std::string best() {
    collect();
    std::stable_sort(all_.begin(), all_.end(), [](const Suggestion& a, const Suggestion& b) {
      return a.keys != b.keys ? a.keys < b.keys : a.distance < b.distance;
    });
    const std::string first = nearest_legal(false);
    const bool keeps_batch = first.find("batch_size") == std::string::npos;
    const std::string second = keeps_batch ? "" : nearest_legal(true);
    return first + (first.empty() || second.empty() ? "" : ", or with " + second);
  }

 private:
  std::string nearest_legal(bool with_this_batch) const {
    std::size_t tried = 0;
    for (const Suggestion& one : all_) {
      if (with_this_batch && one.text.find("batch_size") != std::string::npos) continue;
      if (++tried > most_tried) break;
      const std::vector<Diagnostic> list = errors_of(one.config);
      if (std::all_of(list.begin(), list.end(), [&](const Diagnostic& e) { return is_old(e); })) {
        return one.text;
      }
    }
    return "";
  }

  std::vector<Diagnostic> errors_of(const Config& config) const {
    Diagnostics found;
    const SourceMap nowhere;
    Check check(nowhere, found);
    check_rules(Facts(config, site_), check);
    found.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
    return found.list();
  }

  /// An error that the given sizes have too, and that no sizes cure.
  bool is_old(const Diagnostic& error) const {
    return std::any_of(others_.begin(), others_.end(), [&](const Diagnostic& one) {
      return one.code == error.code && one.path == error.path;
    });
  }

  void collect() {
    const std::int64_t world = site_.world_size;
    const std::int64_t heads = std::max<std::int64_t>(1, config_.model.num_attention_heads);
    const std::int64_t layers = std::max<std::int64_t>(1, config_.model.num_layers);
    const std::int64_t context = std::max<std::int64_t>(8, config_.parallel.context_parallel);
    for (const std::int64_t tp : divisors(world, std::min<std::int64_t>(heads, 1024))) {
      for (const std::int64_t pp : divisors(world / tp, std::min<std::int64_t>(layers, 1024))) {
        for (const std::int64_t cp : divisors(world / tp / pp, context)) {
          if (!is_worth_it(cp)) continue;
          add(tp, pp, cp, world / tp / pp / cp);
        }
      }
    }
  }

  /// Short sequences are not cut.
  bool is_worth_it(std::int64_t cp) const {
    return cp == 1 || cp == config_.parallel.context_parallel ||
           config_.model.seq_length / cp >= 4096;
  }

  void add(std::int64_t tp, std::int64_t pp, std::int64_t cp, std::int64_t dp) {
    Suggestion one{config_, "", 0, 0};
    ParallelConfig& parallel = one.config.parallel;
    parallel.device_num.reset();
    if (tp * pp * cp > 1) parallel.parallel_mode.reset();
    change(one, "tensor_parallel", parallel.tensor_parallel, tp);
    change(one, "pipeline_stages", parallel.pipeline_stages, pp);
    change(one, "context_parallel", parallel.context_parallel, cp);
    if (parallel.data_parallel) change(one, "data_parallel", *parallel.data_parallel, dp);
    if (tp == 1) parallel.sequence_parallel = false;
    // Tensor parallelism beyond a host is slow.
    if (tp > std::max<std::int64_t>(site_.ranks_per_host, config_.parallel.tensor_parallel)) {
      one.distance += 4;
    }
    set_batch(one, dp, pp);
    if (one.keys > 0) all_.push_back(std::move(one));
  }

  /// The global batch stays, if whole micro-batches of the given size make it up.
  void set_batch(Suggestion& one, std::int64_t dp, std::int64_t pp) {
    TrainConfig& train = one.config.train;
    if (train.global_batch_size <= 0) return;
    std::int64_t micro = train.micro_batch_size.value_or(1);
    const std::int64_t batch = train.global_batch_size;
    if (batch % dp == 0 && (batch / dp) % micro != 0) {
      std::int64_t fits = micro;
      while ((batch / dp) % fits != 0) --fits;
      change(one, "micro_batch_size", *train.micro_batch_size, fits);
      micro = fits;
    }
    const std::int64_t least = product_of({dp, micro, pp});
    if (batch % product_of({dp, micro}) != 0) {
      const std::int64_t part = product_of({dp, micro});
      const std::int64_t whole = std::max<std::int64_t>(1, (batch + part / 2) / part) * part;
      change(one, "global_batch_size", train.global_batch_size, std::max(whole, least));
    }
    if (!train.micro_batch_num) return;
    const std::int64_t count = std::max<std::int64_t>(1, train.global_batch_size / dp / micro);
    change(one, "micro_batch_num", *train.micro_batch_num, count);
  }

  static void change(Suggestion& one, const char* key, std::int64_t& value, std::int64_t wanted) {
    if (value == wanted) return;
    one.distance += distance_between(std::max<std::int64_t>(1, value), wanted);
    one.text += (one.text.empty() ? "" : ", ") + std::string(key) + ": " + std::to_string(wanted);
    ++one.keys;
    value = wanted;
  }

  const Config& config_;
  const Site& site_;
  std::vector<Suggestion> all_;
  std::vector<Diagnostic> others_;  // errors that are not about sizes
};

}  // namespace

void suggest_joint_layout(const Config& config, const Site& site, Diagnostics& diagnostics) {
  const auto& list = diagnostics.list();
  if (std::none_of(list.begin(), list.end(), is_about_sizes)) return;
  if (site.world_size > (1 << 20)) return;
  const std::string found = Search(config, site).best();
  if (found.empty()) return;
  bool is_said = false;
  change_help(diagnostics, [&](const Diagnostic& one) {
    if (is_said || !is_about_sizes(one)) return one.help;
    is_said = true;
    const bool has_value = one.help.starts_with("set ") || one.help.starts_with("start ");
    return "all rules hold with " + found + (has_value ? "; or " + one.help : "");
  });
}

}  // namespace trainctl
