#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& change : changes) replaced = replaced || change.starts_with(name);
    if (!replaced) all.push_back(text);
  }
  return all;
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& words,
                 const std::vector<std::string>& environment) {
  const std::string out = dir_ / "out";
  const std::string err = dir_ / "err";
  std::vector<std::string> all = {program};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<std::string> changes = environment;
  changes.push_back("XDG_CACHE_HOME=" + (dir_ / "cache"));  // leaves nothing at the user's
  const std::vector<std::string> variables = environment_with(changes);
  const auto arguments = pointers_to(all);
  const auto entries = pointers_to(variables);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int create = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), create, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), create, 0600);
  // A shell that started the tests in the background has made them ignore Ctrl-C.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int failed =
      posix_spawnp(&pid_, program.c_str(), &actions, &attributes, arguments.data(), entries.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) throw std::runtime_error("cannot start " + program);
}

Process::~Process() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> children_of(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> found;
  for (pid_t child = 0; file >> child;) found.push_back(child);
  return found;
}

Outcome Process::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(dir_ / "out"), read_file(dir_ / "err")};
}

Outcome run_program(const std::string& program, const std::vector<std::string>& words,
                    const std::vector<std::string>& environment) {
  return Process(program, words, environment).wait();
}

Outcome trainctl(const std::vector<std::string>& words,
                 const std::vector<std::string>& environment) {
  return run_program(TRAINCTL_PROGRAM, words, environment);
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "trainctl-cli-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::write(const std::string& name, const std::string& text) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << text;
  return (path_ / name).string();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string small_config() {
  return "model: {family: gpt2, num_layers: 2, hidden_size: 32, num_attention_heads: 4,\n"
         "        seq_length: 16, vocab_size: 256}\n"
         "data: {train: /usr/share/common-licenses, tokenizer: byte}\n"
         "train: {steps: 4, global_batch_size: 8}\n"
         "lr_schedule: {max_lr: 1.0e-3}\n";
}
