// Command lines. CLI11 parses them. This adds what it lacks: unknown words are reported first,
// with the nearest known one; numbers are decimal; every mistake is Error{usage}.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace trainctl {

using Arguments = std::vector<std::string>;

/// Parses `arguments` (without the command's own name) into what `app` is bound to. Returns false
/// when the help was asked for and has been printed, `examples` first. Throws Error{usage}.
bool parse_arguments(CLI::App& app, const Arguments& arguments, const std::string& examples);

/// An option whose value is a whole decimal number in [least, most].
CLI::Option* add_whole_number(CLI::App& app, const std::string& name, std::int64_t& target,
                              const std::string& text, std::int64_t least,
                              std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// An option whose value is a finite number >= `least`.
CLI::Option* add_number(CLI::App& app, const std::string& name, double& target,
                        const std::string& text, double least);

/// `--config FILE` (required) and `--set path=value`, any number of times.
void add_config_options(CLI::App& app, std::string& config, std::vector<std::string>& set_options);

/// `--format`, one of `known`.
void add_format(CLI::App& app, std::string& format, const std::vector<std::string>& known);

struct Subcommand {
  std::string name;
  std::string summary;
  int (*run)(const Arguments& arguments);  // takes the words after the name, returns the exit code
};

/// Runs the subcommand that `arguments` starts with. Handles a missing word, "help" and "--help";
/// unknown words are Error{usage}.
int run_subcommand(const std::string& program, const Arguments& arguments,
                   const std::string& examples, const std::vector<Subcommand>& known);

/// Throws Error{usage} with `message` and a reference to the help.
[[noreturn]] void refuse(const std::string& program, const std::string& message);

/// Throws Error{usage} for `word`, which is not in `known`: "unknown command 'trian'; did you mean
/// ...".
[[noreturn]] void refuse_word(const std::string& program, const std::string& kind,
                              const std::string& word, const std::vector<std::string>& known);

}  // namespace trainctl
