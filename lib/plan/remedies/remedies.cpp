#include "plan/remedies/remedies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/read/read.h"
#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/schema/known_paths.h"
#include "plan/rules/check.h"
#include "plan/tables/site.h"

namespace trainctl {

namespace {

/// The errors that the rules find in a configuration.
std::vector<Diagnostic> errors_of(const Config& config, const SourceMap& sources,
                                  const Site& site) {
  Diagnostics found;
  Check check(sources, found);
  check_rules(Facts(config, site), check);
  found.drop_if([](const Diagnostic& one) { return one.severity != Severity::error; });
  return found.list();
}

bool same(const Diagnostic& one, const Diagnostic& other) {
  return one.code == other.code && one.path == other.path;
}

bool contains(const std::vector<Diagnostic>& list, const Diagnostic& error) {
  return std::ranges::any_of(list, [&](const Diagnostic& one) { return same(one, error); });
}

/// Tells which errors a changed configuration has that the given one does not have.
class Trial {
 public:
  Trial(const Config& config, const SourceMap& sources, const Site& site)
      : sources_(sources), before_(errors_of(config, sources, site)) {}

  /// Whether `changed`, in which `given` was written, does not have the error and breaks no rule
  /// that the original satisfies.
  bool cures(const Diagnostic& error, const Config& changed, const Site& site,
             const std::string& given = "") const {
    SourceMap sources = sources_;
    if (!given.empty()) sources.record(given, {Place::Origin::set_option, given});
    return std::ranges::all_of(errors_of(changed, sources, site), [&](const Diagnostic& one) {
      return contains(before_, one) && !same(one, error);
    });
  }

 private:
  const SourceMap& sources_;
  std::vector<Diagnostic> before_;
};

/// Replaces the help of each finding by the result of `make`.
template <class Make>
void change_help(Diagnostics& diagnostics, Make make) {
  std::vector<Diagnostic> list = diagnostics.list();
  for (Diagnostic& one : list) one.help = make(std::as_const(one));
  diagnostics.drop_if([](const Diagnostic&) { return true; });
  for (Diagnostic& one : list) diagnostics.add(std::move(one));
}

constexpr std::size_t max_errors = 20;  // most errors whose suggested values are tried

// Matches "4", "1, 2 or 4", "tp-cp-ep-dp-pp or tp-pp-ep-dp-cp".
const char* const values_pattern = R"(([-+.\w]+(?:, [-+.\w]+)*(?: or [-+.\w]+)?))";

std::string section_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

/// Splits a help such as "set a to 1 or 2, b to 3, or start 4 ranks" into its three parts.
std::vector<std::string> parts_of(const std::string& help) {
  static const std::regex between(R"(, or |, (?=(?:set )?[A-Za-z_.]+ to ))");
  return {std::sregex_token_iterator(help.begin(), help.end(), between, -1),
          std::sregex_token_iterator()};
}

/// Splits "1, 2 or 4" into its values.
std::vector<std::string> values_of(const std::string& text) {
  static const std::regex between(", | or ");
  return {std::sregex_token_iterator(text.begin(), text.end(), between, -1),
          std::sregex_token_iterator()};
}

class Prover {
 public:
  Prover(const Config& config, const SourceMap& sources, const Site& site,
         const Diagnostics& diagnostics)
      : config_(config), site_(site), diagnostics_(diagnostics), trial_(config, sources, site) {}

  /// The help with only those values that cure the error.
  std::string proven(const Diagnostic& error) const {
    if (error.help.find(" to ") == std::string::npos &&
        error.help.find("start ") == std::string::npos) {
      return error.help;
    }
    const std::string set = "set ";
    std::string text;
    for (const std::string& part : parts_of(error.help)) {
      const bool sets = part.starts_with(set);
      const std::string kept = proven_part(error, sets ? part.substr(set.size()) : part);
      if (kept.empty()) continue;
      // The "set" of the first part may also apply to the parts after it.
      const bool says = sets || (text.empty() && kept.find(" to ") != std::string::npos &&
                                 error.help.starts_with(set));
      text += (text.empty() ? "" : ", or ") + (says ? set : "") + kept;
    }
    if (text.empty()) return "no single value will do: several must change together";
    return text;
  }

 private:
  std::string proven_part(const Diagnostic& error, const std::string& part) const {
    static const std::regex limit(
        "([A-Za-z_.]+) to (?:at (?:most|least) )?([-+.\\w]+)(?: or more)?");
    static const std::regex sets("([A-Za-z_.]+) to " + std::string(values_pattern) + "(|[ ;].*)");
    static const std::regex starts("start (\\d+(?:, \\d+)*(?: or \\d+)?)( ranks?.*)");
    std::smatch found;
    if (std::regex_match(part, found, starts)) {
      const std::string kept = alternatives(kept_worlds(error, values_of(found[1])), " or ");
      return kept.empty() ? "" : "start " + kept + (kept == "1" ? " rank" : found[2].str());
    }
    if (std::regex_match(part, found, limit)) return holds(error, found[1], found[2]) ? part : "";
    if (!std::regex_match(part, found, sets)) return part;
    const std::string path = path_of(found[1], error.path);
    if (path.empty()) return part;
    std::vector<std::string> kept;
    for (const std::string& value : values_of(found[2])) {
      Config changed = config_;
      if (set_value(changed, path, value)) return part;  // not a single value
      if (trial_.cures(error, changed, site_, path)) kept.push_back(value);
    }
    return kept.empty() ? ""
                        : found[1].str() + " to " + alternatives(kept, " or ") + found[3].str();
  }

  /// Whether one value cures the error; true if the key or the value cannot be tried.
  bool holds(const Diagnostic& error, const std::string& key, const std::string& value) const {
    const std::string path = path_of(key, error.path);
    Config changed = config_;
    return path.empty() || set_value(changed, path, value) ||
           trial_.cures(error, changed, site_, path);
  }

  std::vector<std::string> kept_worlds(const Diagnostic& error,
                                       const std::vector<std::string>& values) const {
    std::vector<std::string> kept;
    for (const std::string& value : values) {
      Site site = site_;
      site.world_size = std::strtoll(value.c_str(), nullptr, 10);
      site.ranks_per_host = std::min(site.ranks_per_host, site.world_size);
      if (site.world_size > 0 && trial_.cures(error, config_, site)) kept.push_back(value);
    }
    return kept;
  }

  /// The path of a key in a message, in the project's or the user's spelling; empty if ambiguous.
  std::string path_of(const std::string& key, const std::string& near) const {
    std::vector<std::string> found;
    for (const std::string& path : all_known_paths()) {
      const bool is_ours = path == key || path.ends_with("." + key);
      const std::string theirs = diagnostics_.written(path);
      const bool is_theirs = theirs != path && last_key(theirs) == last_key(key);
      if (!is_ours && !is_theirs) continue;
      if (section_of(path) == section_of(near)) return path;
      found.push_back(path);
    }
    return found.size() == 1 ? found.front() : "";
  }

  const Config& config_;
  const Site& site_;
  const Diagnostics& diagnostics_;
  Trial trial_;
};

}  // namespace

void keep_proven_values(const Config& config, const SourceMap& sources, const Site& site,
                        Diagnostics& diagnostics) {
  if (!diagnostics.has_errors()) return;
  const Prover prover(config, sources, site, diagnostics);
  std::size_t count = 0;
  change_help(diagnostics, [&](const Diagnostic& one) {
    const bool is_tried = one.severity == Severity::error && count < max_errors;
    if (!is_tried) return one.help;
    ++count;
    return prover.proven(one);
  });
}

namespace {

constexpr std::size_t max_tried = 300;

/// Codes of errors that other sizes can cure.
constexpr auto codes = take_words<18>(
    "world-size|expert-world-size|batch-divides|micro-batch-divides|micro-batch-product|"
    "heads-tensor|groups-tensor|ffn-tensor|vocab-tensor|hidden-tensor|sequence-tensor|"
    "stage-layers|chunk-layers|interleave-micro-batches|sequence-context|context-heads|"
    "virtual-stages|micro-batches-stages");

bool is_about_sizes(const Diagnostic& one) {
  return one.severity == Severity::error && std::ranges::find(codes, one.code) != codes.end();
}

/// A changed configuration, and its distance from the given values.
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
    others_ = errors_of(config, SourceMap{}, site);
    std::erase_if(others_, is_about_sizes);
  }

  /// The nearest sizes that satisfy all rules, as text; if they change the batch, also the nearest
  /// sizes for the given batch. Empty if there are none.
  std::string best() {
    collect();
    std::ranges::stable_sort(
        all_, {}, [](const Suggestion& one) { return std::pair(one.keys, one.distance); });
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
      if (++tried > max_tried) break;
      const bool legal =
          std::ranges::all_of(errors_of(one.config, SourceMap{}, site_),
                              [&](const Diagnostic& error) { return contains(others_, error); });
      if (legal) return one.text;
    }
    return "";
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

  /// Whether context parallelism is reasonable: short sequences are not divided.
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
    // Tensor parallelism across hosts is slow.
    if (tp > std::max<std::int64_t>(site_.ranks_per_host, config_.parallel.tensor_parallel)) {
      one.distance += 4;
    }
    set_batch(one, dp, pp);
    if (one.keys > 0) all_.push_back(std::move(one));
  }

  /// Keeps the global batch if whole micro-batches of the given size divide it.
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
  // Errors of the given sizes that are not about sizes, which no sizes cure.
  std::vector<Diagnostic> others_;
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
