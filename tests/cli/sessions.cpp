#include "sessions.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <thread>

#include "catch.h"

Words command(const std::string& config, const std::string& run, const Words& more) {
  return joined({"train", "--config", config, "--output", run}, more);
}

Words set(const Words& options, Words more) {
  for (const std::string& option : options) more.insert(more.end(), {"--set", option});
  return more;
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words checkpoints_of(const std::string& run) {
  Words names;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", failure)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t newest_good_checkpoint(const std::string& run) {
  std::size_t newest = 0;
  for (const std::string& name : checkpoints_of(run)) {
    const std::string path = run + "/checkpoints/" + name;
    if (name.ends_with(".partial") || !std::filesystem::exists(path + "/manifest.json")) continue;
    const Outcome checked = trainctl({"checkpoint", "verify", path});
    INFO(checked.err << checked.out);
    CHECK(checked.exit_code == 0);
    newest = std::max(newest, static_cast<std::size_t>(std::stoul(name.substr(5))));
  }
  return newest;
}

std::size_t steps_of(const std::string& run) {
  std::istringstream text(read_file(run + "/metrics.jsonl"));
  std::size_t steps = 0;
  for (std::string line; std::getline(text, line);) steps += line.starts_with("{\"step\"") ? 1 : 0;
  return steps;
}

bool wait_for_steps(const std::string& run, std::size_t count) {
  for (int i = 0; i < 600 && steps_of(run) < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return steps_of(run) >= count;
}

void check_no_gap(const std::string& run, std::size_t steps) {
  const auto lines = metrics_of(run);
  REQUIRE(lines.size() == steps);
  for (std::size_t i = 0; i < steps; ++i) CHECK(lines[i]["step"] == i + 1);
}
