// The commands that README.md, the tutorial and the help of each command tell people to type run as
// written, in a folder that has the files that they mention. A thorough run does all of it; else
// training has two steps, and what would take more than a minute is only parsed.
#include <algorithm>
#include <array>
#include <regex>
#include <sstream>

#include "catch.h"
#include "process.h"
#include "thorough.h"

namespace {

namespace fs = std::filesystem;

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The contents of the blocks ```KIND of a Markdown page.
std::vector<Lines> blocks_of(const std::string& page, const std::string& kind) {
  std::vector<Lines> blocks;
  bool inside = false;
  for (const std::string& line : lines_of(read_file(TRAINCTL_SOURCE_DIR "/" + page))) {
    if (!inside && line == "```" + kind) {
      blocks.emplace_back();
      inside = true;
    } else if (inside && line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

/// Commands on one line each, without what a shell takes for comments.
Lines commands_in(const Lines& lines) {
  Lines commands;
  std::string open;
  for (std::string line : lines) {
    line = std::regex_replace(line, std::regex("(^|\\s+)#.*$"), "");
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    open += line.substr(begin);
    if (open.back() == '\\') {
      open.pop_back();
      continue;
    }
    commands.push_back(open);
    open.clear();
  }
  return commands;
}

/// A line that cannot do its work here: it needs a device, other hosts or files that nobody has.
bool needs_more(const std::string& command) {
  static const std::regex needs("device[ =]cuda|trainctl devices$|--hostfile|models/|hf:|/scratch");
  return std::regex_search(command, needs);
}

/// A line that takes minutes.
bool takes_long(const std::string& command) {
  static const std::regex slow("trainctl (bench|verify) ");
  return std::regex_search(command, slow);
}

bool trains(const std::string& command) {
  static const std::regex train("(trainctl|--) train ");
  return std::regex_search(command, train);
}

/// The files that the lines mention, and a folder for the user's own files.
class Workplace {
 public:
  Workplace() {
    const fs::path source = TRAINCTL_SOURCE_DIR;
    fs::copy(source / "configs", at("configs"), fs::copy_options::recursive);
    fs::create_directories(at("tests/plan"));
    fs::copy(source / "tests/plan/published_steps.json", at("tests/plan/published_steps.json"));
    fs::copy(source / "README.md", at("README.md"));
    fs::create_directories(at("build/release"));
    fs::create_directory_symlink(fs::path(TRAINCTL_PROGRAM).parent_path(), at("build/release/bin"));
    fs::create_directory_symlink(source / "scripts", at("scripts"));
    for (const char* name : {"texts", "config", ".zfunc", ".config/fish/completions"}) {
      fs::create_directories(at(name));
    }
    const std::string text = read_file("/usr/share/common-licenses/GPL-3");
    for (const char* name : {"book.txt", "other.txt", "texts/a.txt"}) dir_.write(name, text);
    dir_.write("start.txt", "You may\n");
    dir_.write("more.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    dir_.write("hosts.txt", "localhost slots=16\n");
    const std::string gpt = read_file(source / "configs/gpt.yaml");
    dir_.write("other.yaml", std::regex_replace(gpt, std::regex("num_layers: 4"), "num_layers: 2"));
    const std::string old =
        "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 2, seq_length: 32,\n"
        "        vocab_size: 256}\nparallel: {model_parallel: 1}\n"
        "data: {train: book.txt}\ntrain: {steps: 4, global_batch_size: 4}\n"
        "lr_schedule: {max_lr: 1e-3}\n";
    dir_.write("old.yaml", old);
    dir_.write("finetune_llama.yaml", old);
    dir_.write("config/train_shakespeare_char.py",
               "n_layer = 2\nn_head = 2\nn_embd = 64\nblock_size = 32\nbatch_size = 4\n"
               "max_iters = 10\nlearning_rate = 1e-3\ndataset = 'shakespeare_char'\n");
    dir_.write("pretrain_gpt.sh",
               "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
               "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 "
               "--global-batch-size 4 --train-iters 10 --lr 1e-3\n");
  }

  /// Runs that the examples look at: of two steps.
  void make_runs() {
    for (const char* name : {"quickstart", "gpt"}) {
      expect_done("trainctl train configs/" + std::string(name) + ".yaml --steps 2 --quiet");
    }
    const fs::path checkpoints = at("runs/gpt/checkpoints");
    for (const char* step : {"step-00000400", "step-00000500"}) {
      fs::create_directory_symlink("step-00000002", checkpoints / step);
    }
    for (const char* copy : {"a", "b", "c"}) {
      fs::copy(at("runs/gpt"), at("runs") / copy, fs::copy_options::recursive);
    }
  }

  void write(const std::string& name, const Lines& lines) const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    dir_.write(name, text);
  }

  fs::path at(const std::string& name) const { return dir_.path() / name; }

  Outcome run(const std::string& command) const {
    const std::string home = dir_.path().string();
    return run_program(
        "bash", {"-c", "cd '" + home + "' && set -o pipefail && " + command},
        {"PATH=" + fs::path(TRAINCTL_PROGRAM).parent_path().string() + ":" + std::getenv("PATH"),
         "HOME=" + home, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
         "OMPI_MCA_rmaps_base_oversubscribe=1", "MY_PATH=/tmp"});
  }

  void expect_done(const std::string& command) const {
    const Outcome outcome = run(command);
    INFO(command << "\n" << outcome.out << outcome.err);
    const bool compares = command.find("| diff ") != std::string::npos;  // 1: there are differences
    CHECK(outcome.exit_code <= (compares ? 1 : 0));
    if (command.find(" --quiet") == std::string::npos && trains(command) &&
        command.find("--dry-run") == std::string::npos) {
      CHECK(std::regex_search(outcome.err, std::regex("trained [0-9,]+ steps? in|--stop-after")));
    }
  }

  /// As written, or as much of it as the kind of run allows.
  void try_command(const std::string& command) const {
    if (command.starts_with("scripts/")) {
      const Outcome outcome = run("test -x " + command.substr(0, command.find(' ')) +
                                  " && bash -n " + command.substr(0, command.find(' ')));
      INFO(command << outcome.err);
      CHECK(outcome.exit_code == 0);
    } else if (needs_more(command) || (takes_long(command) && !thorough())) {
      expect_parsed(command);
    } else if (trains(command) && !thorough()) {
      expect_done(std::regex_replace(command, std::regex("--steps [0-9]+"), "") + " --steps 2");
    } else {
      expect_done(command);
    }
  }

  /// No option of it is unknown or out of range.
  void expect_parsed(const std::string& command) const {
    constexpr int usage = 2;
    std::string line = command;
    if (command.find("launch") != std::string::npos) {
      line = std::regex_replace(line, std::regex(" launch "), " launch --dry-run ");
    } else if (std::regex_search(command, std::regex("(bench (?!comm)|verify )"))) {
      line += " --set model.num_layers=0";  // it ends there
    } else if (command.find("bench comm") != std::string::npos) {
      line += " --iterations 1";
    }
    const Outcome outcome = run(line);
    INFO(line << "\n" << outcome.err);
    CHECK(outcome.exit_code != usage);
    CHECK(outcome.exit_code < 126);
  }

 private:
  TempDir dir_;
};

/// The examples at the top of `trainctl WORDS --help`.
Lines examples_of(const std::string& help) {
  Lines examples;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (inside && line.empty()) break;
    if (inside) examples.push_back(line);
    inside = inside || line == "Examples:";
  }
  return commands_in(examples);
}

/// The commands that a help lists.
Lines listed_in(const std::string& help) {
  Lines names;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (inside && line.empty()) break;
    if (inside) names.push_back(line.substr(2, line.find(' ', 2) - 2));
    inside = inside || line == "Commands:";
  }
  return names;
}

/// Every example of every help, once.
Lines all_examples() {
  const std::string overview = trainctl({"--help"}).out;
  Lines examples = examples_of(overview);
  for (const std::string& name : listed_in(overview)) {
    const std::string help = trainctl({name, "--help"}).out;
    for (const std::string& one : examples_of(help)) examples.push_back(one);
    for (const std::string& inner : listed_in(help)) {
      for (const std::string& one : examples_of(trainctl({name, inner, "--help"}).out)) {
        examples.push_back(one);
      }
    }
  }
  std::sort(examples.begin(), examples.end());
  examples.erase(std::unique(examples.begin(), examples.end()), examples.end());
  return examples;
}

/// The commands of a page, one after the other, with its first YAML block as book.yaml.
int try_page(const std::string& page) {
  const Workplace place;
  const std::vector<Lines> files = blocks_of(page, "yaml");
  REQUIRE_FALSE(files.empty());
  place.write("book.yaml", files.front());
  int count = 0;
  bool made = false;
  for (const Lines& block : blocks_of(page, "sh")) {
    for (const std::string& command : commands_in(block)) {
      if (!made && command.find("runs/quickstart") != std::string::npos) {
        place.expect_done("trainctl train configs/quickstart.yaml --steps 2 --quiet");
        made = true;
      }
      if (!command.starts_with("export ")) place.try_command(command);
      ++count;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("the commands of the README run in their order") { CHECK(try_page("README.md") > 10); }

TEST_CASE("the commands of the tutorial run in their order") {
  CHECK(try_page("docs/tutorial.md") > 6);
}

TEST_CASE("the commands of the planning page print the lines that it shows") {
  const std::string page = "docs/planning.md";
  const Workplace place;
  std::string printed;
  for (const Lines& block : blocks_of(page, "sh")) {
    for (const std::string& command : commands_in(block)) {
      const Outcome outcome = place.run(command);
      INFO(command << "\n" << outcome.err);
      CHECK(outcome.exit_code == 0);
      printed += outcome.out + outcome.err;
    }
  }
  Lines shown;
  for (const Lines& block : blocks_of(page, "text")) {
    shown.insert(shown.end(), block.begin(), block.end());
  }
  const std::string text = read_file(TRAINCTL_SOURCE_DIR "/" + page);
  const std::regex answer("`(total |does not fit |fits in )[^`]+`");
  for (std::sregex_iterator one(text.begin(), text.end(), answer); one != std::sregex_iterator();
       ++one) {
    const std::string quoted = one->str();
    if (quoted != "`fits in`") shown.push_back(quoted.substr(1, quoted.size() - 2));
  }
  CHECK(shown.size() > 12);
  for (const std::string& line : shown) {
    INFO(line);
    CHECK(printed.find(line) != std::string::npos);
  }
}

TEST_CASE("the examples in the help of every command run") {
  Workplace place;
  place.make_runs();
  Lines training;
  Lines other;
  for (const std::string& example : all_examples()) {
    (trains(example) ? training : other).push_back(example);
  }
  CHECK(training.size() > 6);
  CHECK(other.size() > 50);
  // Some lines read the files that others write.
  std::stable_partition(other.begin(), other.end(), [](const std::string& one) {
    return one.find("data build") != std::string::npos;
  });
  for (const std::string& example : other) {
    for (const char* made : {"models/mine", "gpt2_mine.bin", "plan.html", "gpt.yaml"}) {
      fs::remove_all(place.at(made));
    }
    place.try_command(example);
  }
  for (const std::string& example : training) {
    fs::remove_all(place.at("runs"));  // each is one way to begin
    place.try_command(example);
  }
}

TEST_CASE("every configuration trains a few steps, or is valid for that where it does not fit") {
  const Workplace place;
  fs::create_directories(place.at("data"));
  fs::copy(place.at("book.txt"), place.at("data/shakespeare.txt"));
  int trained = 0;
  for (const auto& entry : fs::directory_iterator(place.at("configs"))) {
    if (entry.is_directory()) continue;  // devices, software, and what only `plan` is for
    const std::string file = "configs/" + entry.path().filename().string();
    const std::string planned = place.run("trainctl validate " + file).out;
    const bool layouts = file.find("verify-") != std::string::npos;  // for `verify`: no data
    const bool small = planned.find(" MiB per rank") != std::string::npos;
    if (small && !layouts) {
      place.expect_done("trainctl train " + file + " --steps 5");
      ++trained;
    } else {
      place.expect_done("trainctl validate " + file + " --set train.steps=5");
      place.expect_done("trainctl plan " + file + " --set train.steps=5");
    }
  }
  CHECK(trained >= 6);
}
