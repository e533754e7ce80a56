// The rules across fields of a configuration: what the plan needs to hold before it can be made.
// Every broken rule is one diagnostic that shows its arithmetic and legal alternatives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/diagnostics.h"

namespace trainctl {

struct Site;

/// Adds findings with their positions. A rule whose fields were already found wrong stays silent:
/// one mistake gives one message.
class Check {
 public:
  Check(const SourceMap& sources, Diagnostics& diagnostics)
      : sources_(sources), diagnostics_(diagnostics) {}

  /// No error has been reported at any of these paths.
  bool clean(std::initializer_list<std::string_view> paths) const;
  /// The user wrote this value himself (file or --set), so a remark about it is of use.
  bool given(const std::string& path) const;
  void error(const char* code, const std::string& path, const std::string& message,
             const std::string& help = "");
  void warning(const char* code, const std::string& path, const std::string& message,
               const std::string& help = "");
  /// Error "out-of-range" unless least <= value <= most.
  void range(const std::string& path, std::int64_t value, std::int64_t least, std::int64_t most);
  /// Error "out-of-range" with the rule in words unless `holds`.
  void rule(const std::string& path, bool holds, double value, const char* rule);
  /// Warning "no-effect" when the user gave `path` and it `differs` from its default (so that a
  /// dump of every value reads back in silence).
  void no_effect(const std::string& path, bool differs, const std::string& reason);

 private:
  const SourceMap& sources_;
  Diagnostics& diagnostics_;
};

/// Divisors of n, at most `most` of them, those nearest to `near`, ascending: "1, 2, 3, 6".
std::string divisors_near(std::int64_t n, std::int64_t near, std::size_t most = 4);
/// The multiples of `n` around `near`, ascending: "8, 16".
std::string multiples_near(std::int64_t n, std::int64_t near);
/// As people write it, up to nine digits: "0.1", "1e-05".
std::string number(double value);

void check_model(const ModelConfig& model, Check& check);
void check_sizes(const Config& config, const Site& site, Check& check);  // ranks and batches
void check_optimizer(const OptimizerConfig& optimizer, Check& check);
void check_schedule(const LrScheduleConfig& schedule, std::int64_t steps, Check& check);
void check_data(const Config& config, Check& check);
/// What a plan may ask for that does not exist yet.
void check_built(const Config& config, Check& check);

}  // namespace trainctl
