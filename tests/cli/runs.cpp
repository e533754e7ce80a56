#include "runs.h"

#include <unistd.h>

#include <sstream>

std::vector<std::string> mpirun_words(int ranks) {
  std::vector<std::string> words = {"--oversubscribe", "--bind-to", "none"};
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", std::to_string(ranks), TRAINCTL_PROGRAM});
  return words;
}

std::vector<std::string> train_words(const std::string& config, const std::string& output,
                                     const std::vector<std::string>& more) {
  std::vector<std::string> words = {"train", "--config", config, "--output", output, "--overwrite"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome train_over_mpi(int ranks, const std::vector<std::string>& words) {
  std::vector<std::string> all = mpirun_words(ranks);
  all.insert(all.end(), words.begin(), words.end());
  return run_program("mpirun", all);
}

std::vector<nlohmann::json> metrics_of(const std::string& directory) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(directory + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::string repeatable_metrics(const std::string& directory) {
  std::string text;
  for (const nlohmann::json& line : metrics_of(directory)) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "val_loss"}) {
      text += std::string(key) + " " + (line.contains(key) ? line[key].dump() : "-") + "\n";
    }
  }
  return text;
}
