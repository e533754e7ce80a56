#include "plan/remedies/proven_values.h"

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "config/read/value_at.h"
#include "config/schema/known_paths.h"
#include "plan/remedies/trial.h"

namespace trainctl {

namespace {

constexpr std::size_t most_errors = 20;  // whose values are tried

// "4", "1, 2 or 4", "tp-cp-ep-dp-pp or tp-pp-ep-dp-cp"
const char* const values_pattern = R"(([-+.\w]+(?:, [-+.\w]+)*(?: or [-+.\w]+)?))";

std::string last_key(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::string section_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

/// "set a to 1 or 2, b to 3, or start 4 ranks" in its three parts.
std::vector<std::string> parts_of(const std::string& help) {
  static const std::regex between(R"(, or |, (?=(?:set )?[A-Za-z_.]+ to ))");
  return {std::sregex_token_iterator(help.begin(), help.end(), between, -1),
          std::sregex_token_iterator()};
}

/// "1, 2 or 4" one by one.
std::vector<std::string> values_of(const std::string& text) {
  static const std::regex between(", | or ");
  return {std::sregex_token_iterator(text.begin(), text.end(), between, -1),
          std::sregex_token_iterator()};
}

std::string listed(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == values.size() ? " or " : ", ") + values[i];
  }
  return text;
}

class Prover {
 public:
  Prover(const Config& config, const SourceMap& sources, const Site& site,
         const Diagnostics& diagnostics)
      : config_(config), site_(site), diagnostics_(diagnostics), trial_(config, sources, site) {}

  /// The help with the values that cure the error.
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
      // The first part says "set" for those after it.
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
      const std::string kept = listed(kept_worlds(error, values_of(found[1])));
      return kept.empty() ? "" : "start " + kept + (kept == "1" ? " rank" : found[2].str());
    }
    if (std::regex_match(part, found, limit)) return holds(error, found[1], found[2]) ? part : "";
    if (!std::regex_match(part, found, sets)) return part;
    const std::string path = path_of(found[1], error.path);
    if (path.empty()) return part;
    std::vector<std::string> kept;
    for (const std::string& value : values_of(found[2])) {
      Config changed = config_;
      if (set_value(changed, path, value)) return part;  // not a value of its own
      if (trial_.cures(error, changed, site_, path)) kept.push_back(value);
    }
    return kept.empty() ? "" : found[1].str() + " to " + listed(kept) + found[3].str();
  }

  /// Whether one value cures the error; also where the key or the value cannot be tried.
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

  /// The path that a message means by a key, in the user's spelling too; "" where it is not sure.
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
    const bool is_tried = one.severity == Severity::error && count < most_errors;
    if (!is_tried) return one.help;
    ++count;
    return prover.proven(one);
  });
}

}  // namespace trainctl
