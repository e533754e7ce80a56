#include "execute.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

std::vector<char*> argument_vector(const std::string& program, const Arguments& words) {
  std::vector<char*> pointers = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::string read_all(int file) {
  constexpr std::size_t most = 1 << 16;
  std::string text;
  std::array<char, 4096> block;
  while (text.size() < most) {
    const ssize_t count = read(file, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

std::string execute(const std::string& program, const Arguments& words) {
  std::vector<char*> arguments = argument_vector(program, words);
  std::signal(SIGPIPE, SIG_DFL);  // an ignored signal would stay ignored in the new program
  execvp(program.c_str(), arguments.data());
  const int reason = errno;
  std::signal(SIGPIPE, SIG_IGN);
  return std::strerror(reason);
}

std::string output_of(const std::string& program, const Arguments& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> arguments = argument_vector(program, words);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const std::string text = failed == 0 ? read_all(ends[0]) : "";
  close(ends[0]);
  if (failed == 0) waitpid(child, nullptr, 0);
  return text;
}

std::string shell_line(const Arguments& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace trainctl
