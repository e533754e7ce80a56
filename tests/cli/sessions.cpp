#include "sessions.h"

#include <sys/wait.h>

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

namespace {

Words names_in(const std::string& folder) {
  Words names;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Words checkpoints_of(const std::string& run) { return names_in(run + "/checkpoints"); }

Words lease_of(const std::string& run) {
  Words names = names_in(run + "/lease");
  std::erase_if(names, [](const std::string& name) { return name.size() != 10; });
  return names;
}

bool owner_lives(const std::string& run) {
  const Words numbers = lease_of(run);
  if (numbers.empty()) return false;
  const auto owner =
      nlohmann::json::parse(read_file(run + "/lease/" + numbers.back()), nullptr, false);
  return owner.is_object() && owner.contains("process") &&
         std::filesystem::exists("/proc/" + std::to_string(owner["process"].get<long>()));
}

bool is_running(const Process& process) {
  siginfo_t state{};
  ::waitid(P_PID, static_cast<id_t>(process.pid()), &state, WEXITED | WNOHANG | WNOWAIT);
  return state.si_pid == 0;
}

void wait_while_running(const Process& process, const std::string& run, std::size_t steps) {
  for (int i = 0; i < 1200 && steps_of(run) < steps && is_running(process); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
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
  auto lines = metrics_of(run);
  // The last line of a run that a signal ended says so.
  if (!lines.empty() && lines.back().contains("end")) lines.pop_back();
  REQUIRE(lines.size() == steps);
  for (std::size_t i = 0; i < steps; ++i) CHECK(lines[i]["step"] == i + 1);
}
