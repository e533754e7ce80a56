// Many runs in one directory, two at a time, some killed: what a run that ended has written stays
// as it is, and no directory holds a mixture of two runs.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "catch.h"
#include "sessions.h"
#include "thorough.h"

namespace {

namespace fs = std::filesystem;

constexpr int killed = 128 + SIGKILL;
constexpr std::size_t steps = 60;

const Words options =
    set({"parallel.threads_per_rank=1", "checkpoint.every=5"}, {"--steps", std::to_string(steps)});

/// Every file below a directory with what is in it, but not who uses the directory.
using Files = std::map<std::string, std::string>;
Files files_in(const fs::path& directory) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string name = fs::relative(entry.path(), directory).string();
    if (entry.is_regular_file() && !name.starts_with("lease/"))
      files[name] = read_file(entry.path());
  }
  return files;
}

std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

/// The text after "weights: " in the messages of a run that wrote them, without the file's name.
std::string folder_of_weights(const std::string& messages) {
  const std::string mark = "weights: ";
  const std::size_t end = messages.find("/model.safetensors\n");
  const std::size_t begin = messages.rfind(mark, end);
  return messages.substr(begin + mark.size(), end - begin - mark.size());
}

class ManyRuns {
 public:
  ManyRuns() {
    for (const char* size : {"32", "16"}) {
      std::string text = small_config();
      text.replace(text.find("hidden_size: 32"), 15, "hidden_size: " + std::string(size));
      configs_.push_back(dir_.write("size-" + std::string(size) + ".yaml", text));
      wholes_.push_back(dir_ / ("whole-" + std::string(size)));
      REQUIRE(trainctl(command(configs_.back(), wholes_.back(), options)).exit_code == 0);
    }
    fs::create_directory(dir_ / "runs");
  }

  /// Two runs at once; each is killed after a random time, or comes to its end.
  void start_two() {
    std::vector<std::unique_ptr<Process>> pair;
    for (int i = 0; i < 2; ++i) {
      pair.push_back(std::make_unique<Process>(TRAINCTL_PROGRAM, words_of_next()));
    }
    for (const auto& process : pair) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 500));
      if (random_() % 3 > 0) kill(process->pid(), SIGKILL);
    }
    for (const auto& process : pair) {
      const Outcome outcome = process->wait();
      INFO(outcome.err);
      const int code = outcome.exit_code;
      CHECK((code == 0 || code == killed || code == exits::taken || code == exits::invalid));
      if (code == 0 && !contains(outcome.err, "is finished")) note_end(outcome.err);
    }
    check_ended();
  }

  /// Every directory gives what a run that nothing disturbs gives.
  void finish_all() {
    for (const fs::path& folder : folders_in(dir_ / "runs")) {
      INFO(folder.string());
      if (!fs::exists(folder / "config.yaml")) continue;  // killed before it entered
      const std::string config = (folder / "config.yaml").string();
      const Outcome outcome = trainctl({"train", config});
      INFO(outcome.err);
      REQUIRE(outcome.exit_code == 0);
      const bool large = contains(read_file(config), "hidden_size: 32");
      const std::string& whole = wholes_[large ? 0 : 1];
      check_no_gap(folder.string(), steps);
      CHECK(repeatable_metrics(folder.string()) == repeatable_metrics(whole));
      CHECK(read_file(folder / "model.safetensors") == read_file(whole + "/model.safetensors"));
    }
    check_ended();
  }

  std::size_t ended() const { return ended_.size(); }

 private:
  /// A new directory, one for which several runs of two models compete, or one that is there.
  Words words_of_next() {
    const int number = started_++;
    const unsigned kind = number < 2 ? 0 : random_() % 4;
    const std::string& config = configs_[random_() % 2];
    if (kind == 0) return command(config, dir_ / "runs/{n}", options);
    if (kind < 3) {
      return command(config, dir_ / ("runs/shared-" + std::to_string(number / 8)), options);
    }
    const auto folders = folders_in(dir_ / "runs");
    const fs::path again = folders[random_() % folders.size()] / "config.yaml";
    if (!fs::exists(again)) return command(config, dir_ / "runs/{n}", options);
    return {"train", again.string()};
  }

  void note_end(const std::string& messages) {
    const std::string folder = folder_of_weights(messages);
    REQUIRE(fs::exists(folder));
    CHECK(ended_.emplace(folder, files_in(folder)).second);
  }

  void check_ended() const {
    for (const auto& [folder, files] : ended_) {
      INFO(folder);
      CHECK(files_in(folder) == files);
    }
  }

  TempDir dir_;
  std::mt19937 random_{5};
  Words configs_;
  Words wholes_;  // runs of them that nothing disturbed
  int started_ = 0;
  std::map<std::string, Files> ended_;
};

}  // namespace

TEST_CASE("many runs in one directory, two at a time, neither lose nor mix anything", "[many]") {
  ManyRuns runs;
  const int number = tries(10, 50);
  for (int started = 0; started < number; started += 2) runs.start_two();
  std::printf("%d runs, of which %zu ended by themselves\n", number, runs.ended());
  runs.finish_all();
}
