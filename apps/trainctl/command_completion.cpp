// trainctl completion: scripts with which a shell completes commands and options. They are made
// from the options that the commands themselves declare.
#include <algorithm>

#include "base/text.h"
#include "commands.h"
#include "config/report/codes.h"
#include "config/schema/known_paths.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* completion_examples =
    "  source <(trainctl completion bash)\n"
    "  trainctl completion zsh > ~/.zfunc/_trainctl\n"
    "  trainctl completion fish > ~/.config/fish/completions/trainctl.fish\n";

using Option = CommandShape::Option;

bool is_choice(const Option& option) { return option.value.find('|') != std::string::npos; }

/// Whether the option's value may be several words with commas between them: "a|b,...".
bool is_list(const Option& option) { return option.value.ends_with(",..."); }

std::string words_of(const Option& option) {
  std::string words = option.value.substr(0, option.value.rfind(",..."));
  std::replace(words.begin(), words.end(), '|', ' ');
  return words;
}

/// The keys that --set can change: all keys except sections.
std::vector<std::string> keys() {
  std::vector<std::string> found;
  for (const std::string& path : all_known_paths()) {
    if (!find_known_path(path)->is_section) found.push_back(path);
  }
  return found;
}

/// The words that `explain` takes: codes, keys and sections.
std::vector<std::string> explained_words() {
  std::vector<std::string> words = all_known_paths();
  for (const CodeNote& note : diagnostic_codes()) words.emplace_back(note.code);
  return words;
}

/// One arm of a shell's `case` for each key whose values are words, made by `arm`.
template <class Arm>
std::string for_each_words(Arm arm) {
  std::string text;
  for (const std::string& key : keys()) {
    const std::vector<std::string>& words = find_known_path(key)->words;
    if (!words.empty()) text += arm(key, joined(words, " "));
  }
  return text;
}

/// A command that takes options, with the words that lead to it.
struct Leaf {
  std::vector<std::string> words;  // {"data", "build"}
  const CommandShape* shape = nullptr;
};

void collect(const CommandShape& shape, std::vector<std::string> words, std::vector<Leaf>& leaves) {
  words.push_back(shape.name);
  if (shape.commands.empty()) leaves.push_back({words, &shape});
  for (const CommandShape& inner : shape.commands) collect(inner, words, leaves);
}

std::vector<Leaf> leaves_of(const CommandShape& root) {
  std::vector<Leaf> leaves;
  for (const CommandShape& command : root.commands) collect(command, {}, leaves);
  return leaves;
}

std::string names_of(const std::vector<CommandShape>& commands) {
  return joined(commands, " ", &CommandShape::name);
}

std::string bash_options(const CommandShape& shape) {
  std::vector<std::string> names;
  std::string values;
  if (shape.name == "explain") names = explained_words();
  for (const Option& option : shape.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.names.empty() || option.value.empty()) continue;
    // The completed text keeps the words before the last comma.
    const std::string before = is_list(option) ? "-P \"${cur%\"${cur##*,}\"}\" " : "";
    const std::string word = is_list(option) ? "${cur##*,}" : "$cur";
    const std::string wanted = is_choice(option)       ? "-W \"" + words_of(option) + "\""
                               : option.value == "DIR" ? "-d"
                               : option.value == "N"   ? "-W \"\""
                                                       : "-f";
    values += "        " + joined(option.names, "|") + ") COMPREPLY=($(compgen " + before + wanted +
              " -- \"" + word + "\")); return ;;\n";
  }
  return "      case \"$prev\" in\n" + values + "      esac\n      words=\"" + joined(names, " ") +
         "\" ;;\n";
}

std::string bash(const CommandShape& root) {
  std::string cases, groups;
  for (const CommandShape& command : root.commands) {
    if (command.commands.empty()) continue;
    groups += (groups.empty() ? "" : "|") + command.name;
    cases += "    " + command.name + ") files= words=\"" + names_of(command.commands) + "\" ;;\n";
  }
  for (const Leaf& leaf : leaves_of(root)) {
    cases += "    \"" + joined(leaf.words, " ") + "\")\n" + bash_options(*leaf.shape);
  }
  // A shell splits words at "=", so that a value of --set has its key two words before it.
  const std::string set =
      "  if [ \"$prev\" = --set ] && [ \"$cur\" != = ]; then\n"
      "    compopt -o nospace; COMPREPLY=($(compgen -S = -W \"" +
      joined(keys(), " ") +
      "\" -- \"$cur\")); return\n"
      "  fi\n"
      "  [ \"$cur\" = = ] && set_at=$((COMP_CWORD-1)) cur=\"\"\n"
      "  [ \"$prev\" = = ] && set_at=$((COMP_CWORD-2))\n"
      "  if [ \"$set_at\" -gt 1 ] && [ \"${COMP_WORDS[set_at-1]}\" = --set ]; then\n"
      "    case \"${COMP_WORDS[set_at]}\" in\n" +
      for_each_words([](const std::string& key, const std::string& values) {
        return "      " + key + ") COMPREPLY=($(compgen -W \"" + values + "\" -- \"$cur\")) ;;\n";
      }) +
      "    esac\n    return\n  fi\n";
  return "# bash completion of trainctl\n"
         "_trainctl() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" "
         "words=\"\" files=1 set_at=0\n" +
         set +
         "  local at=\"${COMP_WORDS[1]}\"\n"
         "  case \"$at\" in\n    " +
         groups +
         ") [ \"$COMP_CWORD\" -gt 2 ] && at=\"$at ${COMP_WORDS[2]}\" ;;\n  esac\n"
         "  [ \"$COMP_CWORD\" -eq 1 ] && at=\"\"\n"
         "  case \"$at\" in\n    \"\") words=\"" +
         names_of(root.commands) + " help\" ;;\n" + cases +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "  case \"$cur\" in -*) ;; *) [ \"$COMP_CWORD\" -gt 1 ] && [ -n \"$files\" ] && "
         "COMPREPLY+=($(compgen -f -- \"$cur\")) ;; esac\n"
         "}\n"
         "complete -o filenames -F _trainctl trainctl\n";
}

/// `text` in single quotes, with zsh's `special` characters escaped.
std::string quoted(const std::string& text, const std::string& special) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (special.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result + "'";
}

std::string zsh_options(const CommandShape& shape) {
  std::string text;
  for (const Option& option : shape.options) {
    const bool sets = !option.names.empty() && option.names.front() == "--set";
    const std::string action = sets                ? ":key=value:_trainctl_set"
                               : is_list(option)   ? ":words:_values -s , word " + words_of(option)
                               : is_choice(option) ? ":value:(" + words_of(option) + ")"
                               : option.value.empty()  ? ""
                               : option.value == "DIR" ? ":directory:_files -/"
                               : option.value == "N"   ? ":number: "
                                                       : ":file:_files";
    for (const std::string& name : option.names) {
      std::string spec = quoted("*" + name + "[" + option.text + "]", ":");
      spec.pop_back();
      text += " \\\n        " + spec + action + "'";
    }
  }
  const std::string rest =
      shape.name == "explain" ? "*:word:(" + joined(explained_words(), " ") + ")" : "*:file:_files";
  return "_arguments" + text + " \\\n        '" + rest + "'";
}

std::string zsh_commands(const std::vector<CommandShape>& commands) {
  std::string text;
  for (const CommandShape& command : commands) {
    text += " " + quoted(command.name + ":" + command.summary, "");
  }
  return text;
}

std::string zsh(const CommandShape& root) {
  std::string cases;
  for (const CommandShape& command : root.commands) {
    cases += "    " + command.name + ")\n";
    if (command.commands.empty()) {
      cases += "      " + zsh_options(command) + " ;;\n";
      continue;
    }
    cases += "      if (( CURRENT == 3 )); then commands=(" + zsh_commands(command.commands) +
             "); _describe command commands; return; fi\n      case $words[3] in\n";
    for (const CommandShape& inner : command.commands) {
      cases += "    " + inner.name + ")\n      " + zsh_options(inner) + " ;;\n";
    }
    cases += "      esac ;;\n";
  }
  const std::string set =
      "_trainctl_set() {\n"
      "  if compset -P '*='; then\n    case ${IPREFIX%=} in\n" +
      for_each_words([](const std::string& key, const std::string& values) {
        return "      " + key + ") compadd " + values + " ;;\n";
      }) +
      "    esac\n  else\n    compadd -S = " + joined(keys(), " ") + "\n  fi\n}\n";
  return "#compdef trainctl\n" + set +
         "_trainctl() {\n"
         "  local -a commands\n"
         "  if (( CURRENT == 2 )); then commands=(" +
         zsh_commands(root.commands) +
         "); _describe command commands; return; fi\n"
         "  case $words[2] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _trainctl ]; then _trainctl \"$@\"; else compdef _trainctl "
         "trainctl; fi\n";
}

/// The words after --set: "train.steps=", or "model.preset=gpt2-124m" if the values are words.
const std::string& fish_keys() {
  static const std::string text = [] {
    std::string all;
    for (const std::string& key : keys()) {
      const auto& words = find_known_path(key)->words;
      if (words.empty()) all += key + "= ";
      for (const std::string& word : words) all += key + "=" + word + " ";
    }
    return all;
  }();
  return text;
}

std::string fish_option(const Option& option, const std::string& when) {
  std::string line = "complete -c trainctl -n " + quoted(when, "");
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    line += is_long ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.names.front() == "--set") {
    line += " -x -a " + quoted(fish_keys(), "");
  } else if (is_list(option)) {
    line += " -x -a " + quoted("(__fish_append , " + words_of(option) + ")", "");
  } else if (is_choice(option)) {
    line += " -x -a " + quoted(words_of(option), "");
  } else if (!option.value.empty()) {
    line += option.value == "N" ? " -x" : " -r -F";
  }
  return line + " -d " + quoted(option.text, "\\") + "\n";
}

std::string fish(const CommandShape& root) {
  std::string text = "# fish completion of trainctl\n";
  for (const CommandShape& command : root.commands) {
    text += "complete -c trainctl -f -n __fish_use_subcommand -a " + command.name + " -d " +
            quoted(command.summary, "\\") + "\n";
    for (const CommandShape& inner : command.commands) {
      text += "complete -c trainctl -f -n '__fish_seen_subcommand_from " + command.name + "' -a " +
              inner.name + " -d " + quoted(inner.summary, "\\") + "\n";
    }
  }
  for (const Leaf& leaf : leaves_of(root)) {
    const std::string when = joined(leaf.words, "; and ", [](const std::string& word) {
      return "__fish_seen_subcommand_from " + word;
    });
    for (const Option& option : leaf.shape->options) {
      if (!option.names.empty()) text += fish_option(option, when);
    }
    if (leaf.words == std::vector<std::string>{"explain"}) {
      text += "complete -c trainctl -f -n " + quoted(when, "") + " -a " +
              quoted(joined(explained_words(), " "), "") + "\n";
    }
  }
  return text;
}

}  // namespace

int run_completion(const Arguments& arguments) {
  CommandLine line("Prints a script with which a shell completes commands and options.",
                   "trainctl completion");
  std::string shell;
  line.add_choice("SHELL", shell, "The shell", {"bash", "zsh", "fish"});
  line.require("SHELL");
  if (!line.parse(arguments, completion_examples)) return 0;
  const CommandShape root = shape_of({"trainctl", "", run_command});
  print(shell == "bash" ? bash(root) : shell == "zsh" ? zsh(root) : fish(root));
  return 0;
}

}  // namespace trainctl
