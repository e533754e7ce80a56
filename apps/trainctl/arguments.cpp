#include "arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/world.h"
#include "config/explain/reference.h"
#include "config/report/diagnostics.h"
#include "output.h"

namespace trainctl {

namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// Whether all of `text` is a decimal number, which `number` then gets.
template <class Number>
bool reads_as(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  return status == std::errc() && stop == end;
}

/// Refuses options without a value: CLI11 would accept an option as the value of another, and read
/// "--config=" as if the next word were its value.
void check_values_present(const CLI::App& app, const Arguments& arguments) {
  const std::vector<std::string> names = option_names(app);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1) {
      refuse(app.get_name(), word.substr(0, word.size() - 1) + " has no value");
    }
    const CLI::Option* option = contains(names, word) ? app.get_option_no_throw(word) : nullptr;
    if (option == nullptr || option->get_expected_min() * option->get_type_size() == 0) continue;
    if (i + 1 == arguments.size()) refuse(app.get_name(), word + " has no value");
    if (contains(names, arguments[i + 1])) {
      refuse(app.get_name(), word + " has no value: the next word is " + arguments[i + 1]);
    }
  }
}

/// The option that was probably meant by a plain word without an option; "" if none is likely.
std::string option_for_words(const CLI::App& app) {
  for (const char* name : {"--run", "--input", "--prompt"}) {
    if (app.get_option_no_throw(name) != nullptr) return name;
  }
  return "";
}

/// The key of the configuration with the name of an unknown option: "train.steps" for "--steps"
/// where train alone has that option, "lr_schedule.max_lr" for "--max-lr"; "" if there is none.
std::string key_meant_by(const CLI::App& app, const std::string& word) {
  if (app.get_option_no_throw("--set") == nullptr || !word.starts_with("--")) return "";
  std::string name = word.substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string path = nearest_path(name);
  if (path.ends_with("." + name)) return path;
  const bool is_near = !nearest(word, option_names(app)).empty();
  return word == "--output" && !is_near ? "output.dir" : "";
}

void check_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  const bool is_option = word.starts_with("-") && word != "-";
  if (!is_option && extras.front().find('=') != std::string::npos &&
      app.get_option_no_throw("--set") != nullptr) {
    refuse(app.get_name(), "unexpected word '" + extras.front() + "'; did you mean '--set " +
                               extras.front() + "'?");
  }
  if (!is_option) {
    const std::string meant = option_for_words(app);
    refuse(app.get_name(),
           "unexpected word '" + extras.front() + "'" +
               (meant.empty() ? "" : "; did you mean '" + meant + " " + extras.front() + "'?"));
  }
  const std::string key = key_meant_by(app, word);
  if (key.empty()) refuse_word(app.get_name(), "option", word, option_names(app));
  const std::size_t equals = extras.front().find('=');
  const std::string value = equals != std::string::npos ? extras.front().substr(equals + 1)
                            : extras.size() > 1         ? extras[1]
                                                        : "VALUE";
  refuse(app.get_name(),
         "unknown option '" + word + "'; did you mean '--set " + key + "=" + value + "'?");
}

/// The name of a required option in messages: --config also has a short and a plain form.
std::string required_name(const CLI::Option& option) {
  const bool is_config = option.check_lname("config");
  return is_config ? "--config" : option.get_name(true, true);
}

CommandShape* shape = nullptr;  // if set, receives the options for shape_of()

void describe(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    CommandShape::Option one;
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    one.text = option->get_description();
    one.value = option->get_type_size() == 0 ? "" : option->get_type_name();
    shape->options.push_back(std::move(one));
  }
}

void show_help(const CLI::App& app, const std::string& examples) {
  print("Examples:\n" + examples + "\n" + app.help());
}

std::string overview(const std::string& program, const std::string& examples,
                     const std::vector<Subcommand>& known) {
  std::string text =
      "Examples:\n" + examples + "\nUsage: " + program + " COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Subcommand& command : known) {
    std::string name = command.name;
    name.resize(12, ' ');
    text += "  " + name + command.summary + "\n";
  }
  return text + "\n'" + program + " COMMAND --help' shows the options of one command;\n" +
         "--version prints the version; --no-color (or NO_COLOR=1) turns colours off.\n";
}

}  // namespace

void refuse(const std::string& program, const std::string& message) {
  throw Error(ExitCode::usage, program + ": " + message + " (see '" + program + " --help')");
}

std::vector<std::int64_t> numbers_of(const std::string& program, const std::string& option,
                                     const std::string& text, std::int64_t least) {
  std::vector<std::int64_t> numbers;
  // The text after a last comma is empty, which is refused as well.
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t number = -1;
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    if (!reads_as(part, number) || number < least) {
      refuse(program, formatted("{} {}: must be whole numbers of at least {}, separated by commas",
                                option, text, least));
    }
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

void refuse_existing(const std::string& program, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) return;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::character || kind == std::filesystem::file_type::fifo)
    return;
  refuse(program, path + " is there already; --force replaces it");
}

void refuse_word(const std::string& program, const std::string& kind, const std::string& word,
                 const std::vector<std::string>& known) {
  const std::string close = nearest(word, known);
  refuse(program, "unknown " + kind + " '" + word + "'" +
                      (close.empty() ? std::string() : "; did you mean '" + close + "'?"));
}

int run_subcommand(const std::string& program, const Arguments& arguments,
                   const std::string& examples, const std::vector<Subcommand>& known) {
  if (shape != nullptr) {
    CommandShape* const group = shape;
    for (const Subcommand& command : known) group->commands.push_back(shape_of(command));
    return 0;
  }
  if (arguments.empty()) refuse(program, "a command is required");
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || (first == "help" && arguments.size() == 1)) {
    print(overview(program, examples, known));
    return 0;
  }
  const bool asks_help = first == "help";
  const std::string& word = asks_help ? arguments[1] : first;
  std::vector<std::string> names = {"help"};
  for (const Subcommand& command : known) {
    if (word == command.name) {
      return command.run(asks_help ? Arguments{"--help"}
                                   : Arguments(arguments.begin() + 1, arguments.end()));
    }
    names.push_back(command.name);
  }
  const bool is_option = word.starts_with("-");
  if (is_option) names = {"--help", "--version", "--no-color"};
  refuse_word(program, is_option ? "option" : "command", word, names);
}

CommandShape shape_of(const Subcommand& command) {
  CommandShape found{command.name, command.summary, {}, {}};
  CommandShape* const outer = std::exchange(shape, &found);
  command.run({});
  shape = outer;
  return found;
}

struct CommandLine::Parser {
  Parser(const std::string& summary, const std::string& name) : app(summary, name) {}
  CLI::App app;
};

CommandLine::CommandLine(const std::string& summary, const std::string& name)
    : parser_(std::make_unique<Parser>(summary, name)) {}

CommandLine::~CommandLine() = default;

void CommandLine::add_text(const std::string& names, std::string& target, const std::string& text,
                           const std::string& value) {
  parser_->app.add_option(names, target, text)->type_name(value);
}

void CommandLine::add_texts(const std::string& names, std::vector<std::string>& target,
                            const std::string& text, const std::string& value, int count) {
  CLI::Option* option = parser_->app.add_option(names, target, text)->type_name(value);
  if (count != any_number) option->expected(count);
}

void CommandLine::add_flag(const std::string& names, bool& target, const std::string& text) {
  parser_->app.add_flag(names, target, text);
}

void CommandLine::add_whole(const std::string& names, const std::function<void(std::int64_t)>& take,
                            const std::string& text, std::int64_t least, std::int64_t most) {
  const auto read = [this, take, names, least, most](const std::string& value) {
    std::int64_t number = 0;
    if (reads_as(value, number) && number >= least && number <= most) return take(number);
    std::string rule = formatted("a whole number of at least {}", least);
    if (most != no_limit) rule += formatted(", at most {}", most);
    refuse(names + " " + value + ": must be " + rule);
  };
  parser_->app.add_option_function<std::string>(names, read, text)->type_name("N");
}

void CommandLine::add_number(const std::string& names, double& target, const std::string& text,
                             double least) {
  const auto read = [this, &target, names, least](const std::string& value) {
    if (reads_as(value, target) && std::isfinite(target) && target >= least) return;
    refuse(names + " " + value + ": must be a number of at least " + CLI::detail::to_string(least));
  };
  parser_->app.add_option_function<std::string>(names, read, text)->type_name("X");
}

void CommandLine::add_choice(const std::string& names, std::string& target, const std::string& text,
                             const std::vector<std::string>& known) {
  add_choice(names, text, known, [&target](const std::string& word) { target = word; });
}

void CommandLine::add_choice(const std::string& names, const std::string& text,
                             const std::vector<std::string>& known,
                             const std::function<void(const std::string&)>& take) {
  const std::string choices = joined(known, "|");
  const auto read = [this, take, names, known, choices](const std::string& value) {
    if (!contains(known, value)) refuse(names + " " + value + ": must be " + choices);
    take(value);
  };
  parser_->app.add_option_function<std::string>(names, read, text)->type_name(choices);
}

void CommandLine::add_format(std::string& format, const std::vector<std::string>& known) {
  add_choice("--format", format, "Default: " + known.front(), known);
}

void CommandLine::add_config(std::string& config, std::vector<std::string>& set_options) {
  add_text("-c,--config,CONFIG", config, "The YAML file that describes the run", "FILE");
  require("--config");
  add_set(set_options);
}

void CommandLine::add_device(std::vector<std::string>& set_options) {
  const auto set = [&set_options](const std::string& value) {
    set_options.push_back("parallel.device=" + value);
  };
  parser_->app
      .add_option_function<std::string>("--device", set, "The same as --set parallel.device=DEVICE")
      ->type_name("auto|cpu|cuda");
}

void CommandLine::add_weights(bool& averages) {
  add_choice("--weights",
             "The weights as the last update left them, or their average (optimizer.ema_decay); "
             "default trained",
             {"trained", "ema"},
             [&averages](const std::string& word) { averages = word == "ema"; });
}

void CommandLine::add_verbosity() {
  add_flag("--quiet", quiet_, "Show errors only");
  add_flag("--verbose", verbose_, "Show messages for finding faults too");
}

std::string CommandLine::log_level() const { return quiet_ ? "error" : verbose_ ? "debug" : ""; }

void CommandLine::add_set(std::vector<std::string>& set_options) {
  add_changes("--set", set_options, "Replace one value, for example train.steps=10; repeatable");
}

void CommandLine::add_changes(const std::string& name, std::vector<std::string>& changes,
                              const std::string& text) {
  add_repeated(name, changes, text, "PATH=VALUE");
}

void CommandLine::add_repeated(const std::string& name, std::vector<std::string>& target,
                               const std::string& text, const std::string& value) {
  parser_->app.add_option(name, target, text)->allow_extra_args(false)->type_name(value);
}

void CommandLine::require(const std::string& name, bool required) {
  parser_->app.get_option(name)->required(required);
}

void CommandLine::remove(const std::string& name) {
  parser_->app.remove_option(parser_->app.get_option(name));
}

bool CommandLine::parse(const Arguments& arguments, const std::string& examples) {
  CLI::App& app = parser_->app;
  bool no_color = false;
  app.add_flag("--no-color", no_color, "No colours, as with NO_COLOR=1");
  app.get_formatter()->column_width(34);
  app.allow_extras();
  if (shape != nullptr) {
    describe(app);
    return false;
  }
  // Required options are checked below, after unknown words, so that a misspelt option is reported
  // as such.
  std::vector<CLI::Option*> required;
  for (CLI::Option* option : app.get_options()) {
    if (option->get_required()) required.push_back(option);
  }
  if (contains(arguments, "--help") || contains(arguments, "-h")) {
    show_help(app, examples);
    return false;
  }
  for (CLI::Option* option : required) option->required(false);
  check_values_present(app, arguments);
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& failure) {
    refuse(failure.what());
  }
  check_extras(app);
  for (const CLI::Option* option : required) {
    if (option->count() == 0) refuse(required_name(*option) + " is required");
  }
  if (quiet_ && verbose_) refuse("--quiet and --verbose exclude each other");
  if (quiet_) set_log_level(LogLevel::error);
  if (verbose_) set_log_level(LogLevel::debug);
  if (no_color) setenv("NO_COLOR", "1", 1);
  return true;
}

bool CommandLine::given(const std::string& name) const {
  return parser_->app.get_option(name)->count() > 0;
}

void CommandLine::refuse(const std::string& message) const {
  trainctl::refuse(parser_->app.get_name(), message);
}

void CommandLine::check_ranks(std::int64_t local_ranks) const {
  const LaunchedAs launched = launched_as();
  // A batch script of Slurm also sees the size of its job, and may be one process.
  if (local_ranks > 0 && launched.size > 1 && launched.launcher != "Slurm") {
    refuse(formatted("--local-ranks starts ranks, and {} has started {} already; use one of them",
                     launched.launcher, launched.size));
  }
}

}  // namespace trainctl
