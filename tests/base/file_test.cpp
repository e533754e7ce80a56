// Reading from disks that fail for a moment or for good, pipes, mappings; what messages show.
#include "base/file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "catch.h"
#include "temp_folder.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

std::atomic<int> failures = 0;  // of the next reads
std::atomic<int> failure = EIO;

std::string text_of(const fs::path& path) { return read_beginning(path, 1 << 20); }

ExitCode code_of(const std::function<void()>& body, const std::string& part) {
  try {
    body();
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains(part));
    return error.code();
  }
  return ExitCode::ok;
}

}  // namespace

// Found before that of the C library.
extern "C" ssize_t pread(int file, void* bytes, size_t count, off_t at) {
  if (failures > 0) {
    --failures;
    errno = failure;
    return -1;
  }
  return ::syscall(SYS_pread64, file, bytes, count, at);
}

TEST_CASE("a read that fails for a moment is tried again") {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  std::ofstream(path) << "0123456789";
  const File file = File::open_to_read(path);
  for (const int error : {EIO, ESTALE, EAGAIN, EINTR, ETIMEDOUT}) {
    failure = error;
    failures = 3;
    std::string text(4, '\0');
    file.read_at(3, text);
    CHECK(text == "3456");
    CHECK(failures == 0);
  }
  std::string text(11, '\0');
  CHECK(code_of([&] { file.read_at(0, text); }, "the file now has 10 bytes") == ExitCode::bad_data);
  failure = ENOSPC;  // does not pass, and says nothing of the file
  failures = 1;
  CHECK(code_of([&] { file.read_at(0, std::span(text).first(1)); }, "No space left") ==
        ExitCode::io);
  CHECK(code_of([&] { File::open_to_read(folder.path() / "absent"); }, "No such file") ==
        ExitCode::missing_input);
}

TEST_CASE("a file that a server no longer knows by its handle is opened by its name") {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  std::ofstream(path) << "before";
  const File file = File::open_to_read(path);
  write_whole_file(path, "behind");
  failure = ESTALE;
  failures = 1;
  std::string text(6, '\0');
  file.read_at(0, text);
  CHECK(text == "behind");
}

TEST_CASE("what a folder holds is known, or that it is not known") {
  const TempFolder folder;
  const fs::path path = folder.path();
  CHECK(names_in(path / "absent").empty());
  std::ofstream(path / "b");
  std::ofstream(path / "a");
  CHECK(names_in(path) == std::vector<std::string>{"a", "b"});
  CHECK(names_in(path / "a").empty());  // no folder
  CHECK(kind_of_file(path) == FileKind::folder);
  CHECK(kind_of_file(path / "a") == FileKind::regular);
  CHECK(kind_of_file(path / "absent") == FileKind::none);
  CHECK(kind_of_file(path / "a" / "absent") == FileKind::none);
  CHECK(kind_of_file("/dev/null") == FileKind::other);
  fs::create_symlink(path / "absent", path / "link");
  CHECK(kind_of_file(path / "link") == FileKind::none);
}

TEST_CASE("a pipe is read to its end, and a device without waiting") {
  const TempFolder folder;
  const fs::path path = folder.path() / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::thread writer([&] {
    std::ofstream pipe(path);
    pipe << "from a" << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pipe << " pipe";
  });
  CHECK(text_of(path) == "from a pipe");
  writer.join();
  CHECK(text_of("/dev/null").empty());
  CHECK(read_beginning("/dev/zero", 5) == std::string(5, '\0'));
}

TEST_CASE("a mapping that the system cannot bring into memory ends the process with a line") {
  const TempFolder folder;
  const fs::path path = folder.path() / "mapped";
  std::ofstream(path) << std::string(10'000, 'x');
  const fs::path told = folder.path() / "told";
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(told.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDERR_FILENO);
    const Mapping mapping(File::open_to_read(path));
    if (::truncate(path.c_str(), 0) != 0) ::_exit(1);
    const volatile std::byte last = mapping.bytes().back();
    ::_exit(last == std::byte{} ? 2 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == static_cast<int>(ExitCode::io));
  CHECK_THAT(text_of(told), Catch::Contains("error: cannot read " + path.string()));
}

TEST_CASE("what a session has not finished is known by its name") {
  const Fence fence{813, {}};
  CHECK(fence.partial("runs/metrics.jsonl") == "runs/metrics.jsonl.813.partial");
  CHECK(Fence::is_partial("metrics.jsonl.813.partial", 813));
  CHECK(Fence::is_partial("step-00000500.12.partial", 813));
  CHECK(Fence::is_partial("step-00000500.partial", 813));  // of an earlier version
  CHECK_FALSE(Fence::is_partial("step-00000500.814.partial", 813));
  CHECK_FALSE(Fence::is_partial("step-00000500", 813));
}

TEST_CASE("a file in a folder with a fence gets its name only if the fence lets it") {
  const TempFolder folder;
  const fs::path path = folder.path() / "a";
  int asked = 0;
  write_whole_file(path, "one", Fence{5, [&] {
                                        ++asked;
                                        CHECK(text_of(folder.path() / "a.5.partial") == "one");
                                      }});
  CHECK(asked == 1);
  CHECK(text_of(path) == "one");
  const Fence closed{5, [] { throw Error(ExitCode::taken, "closed"); }};
  CHECK(code_of([&] { write_whole_file(path, "two", closed); }, "closed") == ExitCode::taken);
  const Fence late{5, [&] { fs::remove(folder.path() / "a.5.partial"); }};
  CHECK(code_of([&] { write_whole_file(path, "two", late); }, "another start has taken over") ==
        ExitCode::taken);
  CHECK(text_of(path) == "one");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"a"});
}

TEST_CASE("a message steers neither a terminal nor the log of a build") {
  CHECK(printable_lines("plain\n\ttext ü €") == "plain\n\ttext ü €");
  CHECK(printable_lines("\x1b[2J\r\x7f\x01") == "\\x1b[2J\\x0d\\x7f\\x01");
  CHECK(printable_lines("a\xc2\x9b z") == "a\\xc2\\x9b z");
  CHECK(printable_lines("a\u202ez\u2066\u200f") ==
        "a\\xe2\\x80\\xaez\\xe2\\x81\\xa6\\xe2\\x80\\x8f");
  CHECK(printable_lines("no\n::error::faked") == "no\n\\x3a:error::faked");
  CHECK(printable_lines("  ::set-output") == "  \\x3a:set-output");
  CHECK(printable_lines("##[error]x\n a ## b") == "\\x23#[error]x\n a ## b");
  CHECK(printable_lines("a::b") == "a::b");
}
