// Command lines, parsed by CLI11 with additional rules: unknown words are reported first, with the
// nearest known one; numbers are decimal; every mistake is Error{usage}. Only arguments.cpp
// includes CLI11, which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace trainctl {

using Arguments = std::vector<std::string>;

/// The description of --search-again.
inline constexpr const char* search_again_text =
    "auto_parallel: search although the run has the answer of an earlier search";

/// The options of one command, and the variables that their values go to.
class CommandLine {
 public:
  /// `name`: the command as shown in messages and the help, "trainctl plan".
  CommandLine(const std::string& summary, const std::string& name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// `names`: names of an option ("-o,--output") or, without dashes, of a positional argument;
  /// `text`: its description in the help; `value`: the name of its value in the help.
  void add_text(const std::string& names, std::string& target, const std::string& text,
                const std::string& value = "");
  /// Adds an option with several values: `count`, or any number.
  void add_texts(const std::string& names, std::vector<std::string>& target,
                 const std::string& text, const std::string& value, int count = any_number);
  void add_flag(const std::string& names, bool& target, const std::string& text);
  /// Adds an option for a whole decimal number in [least, most]; `target` must hold all of these.
  template <class Number>
  void add_whole_number(const std::string& names, Number& target, const std::string& text,
                        std::int64_t least, std::int64_t most = no_limit) {
    const auto take = [&target](std::int64_t number) { target = static_cast<Number>(number); };
    add_whole(names, take, text, least, most);
  }
  /// Adds an option for a finite number >= `least`.
  void add_number(const std::string& names, double& target, const std::string& text, double least);
  /// Adds an option whose value is one of `known`.
  void add_choice(const std::string& names, std::string& target, const std::string& text,
                  const std::vector<std::string>& known);
  /// Adds an option whose value is one of `known`; `take` is called with the value.
  void add_choice(const std::string& names, const std::string& text,
                  const std::vector<std::string>& known,
                  const std::function<void(const std::string&)>& take);
  /// Adds `--format`, one of `known`.
  void add_format(std::string& format, const std::vector<std::string>& known);
  /// Adds `--set path=value`, any number of times.
  void add_set(std::vector<std::string>& set_options);
  /// Adds `name value`, any number of times.
  void add_repeated(const std::string& name, std::vector<std::string>& target,
                    const std::string& text, const std::string& value);
  /// Adds `name path=value`, any number of times.
  void add_changes(const std::string& name, std::vector<std::string>& changes,
                   const std::string& text);
  /// Adds `--device`, short for `--set parallel.device=`.
  void add_device(std::vector<std::string>& set_options);
  /// Adds `--weights`, trained or ema: the weights of a checkpoint to use.
  void add_weights(bool& averages);
  /// Adds `-c FILE`, `--config FILE` or a plain word (required), and `--set`.
  void add_config(std::string& config, std::vector<std::string>& set_options);

  /// Adds `--quiet` and `--verbose`, which set the lowest level of messages.
  void add_verbosity();
  /// The level set by --quiet or --verbose: "error", "debug", or "" if neither is given.
  std::string log_level() const;

  /// Sets whether the option `name` must be given. By default only `--config` must.
  void require(const std::string& name, bool required = true);
  void remove(const std::string& name);

  /// Parses `arguments` (without the command's own name) into the targets. Returns false when the
  /// help was asked for and has been printed, `examples` first. Throws Error{usage}.
  bool parse(const Arguments& arguments, const std::string& examples);
  /// Whether the option `name` was among the parsed words.
  bool given(const std::string& name) const;
  /// Throws Error{usage} with the command's name before `message`.
  [[noreturn]] void refuse(const std::string& message) const;
  /// Refuses --local-ranks under mpirun, where each rank would start a job of its own.
  void check_ranks(std::int64_t local_ranks) const;

  static constexpr int any_number = -1;

 private:
  static constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  void add_whole(const std::string& names, const std::function<void(std::int64_t)>& take,
                 const std::string& text, std::int64_t least, std::int64_t most);
  struct Parser;
  std::unique_ptr<Parser> parser_;
  bool quiet_ = false;
  bool verbose_ = false;
};

struct Subcommand {
  std::string name;
  std::string summary;
  int (*run)(const Arguments& arguments);  // takes the words after the name, returns the exit code
};

/// Runs the subcommand that `arguments` starts with. Handles a missing word, "help" and "--help";
/// unknown words are Error{usage}.
int run_subcommand(const std::string& program, const Arguments& arguments,
                   const std::string& examples, const std::vector<Subcommand>& known);

/// The options and subcommands of a command or a group of commands, as its parser knows them.
struct CommandShape {
  struct Option {
    std::vector<std::string> names;  // "--config", "-c"; empty for a plain word
    std::string text;
    std::string value;  // the name of its value, "a|b" for a choice, "" for a flag
  };
  std::string name;
  std::string summary;
  std::vector<Option> options;
  std::vector<CommandShape> commands;
};
/// Asks the command's own parser. Nothing else of the command is run.
CommandShape shape_of(const Subcommand& command);

/// Throws Error{usage} with `message` and a reference to the help.
[[noreturn]] void refuse(const std::string& program, const std::string& message);

/// The numbers of an option's value, such as "0,50,199". Throws Error{usage} for any other text, or
/// if a number is below `least`.
std::vector<std::int64_t> numbers_of(const std::string& program, const std::string& option,
                                     const std::string& text, std::int64_t least);

/// Throws Error{usage} if `path` exists, because --force was not given.
void refuse_existing(const std::string& program, const std::string& path);

/// Throws Error{usage} for `word`, which is not in `known`: "unknown command 'trian'; did you mean
/// ...".
[[noreturn]] void refuse_word(const std::string& program, const std::string& kind,
                              const std::string& word, const std::vector<std::string>& known);

}  // namespace trainctl
