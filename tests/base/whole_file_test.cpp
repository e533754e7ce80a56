#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "catch.h"

using namespace trainctl;
namespace fs = std::filesystem;

namespace {

const fs::path prefix = fs::temp_directory_path() / "whole-file";

std::string content_of(const fs::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("a file is replaced at the end of a link, and the link stays") {
  const TemporaryFolder made(prefix);
  const fs::path folder = made.path();
  write_whole_file(folder / "file", "before");
  fs::create_symlink("file", folder / "link");
  write_whole_file(folder / "link", "after");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(content_of(folder / "file") == "after");
  fs::create_symlink("new", folder / "ahead");
  write_whole_file(folder / "ahead", "there");
  CHECK(fs::is_symlink(folder / "ahead"));
  CHECK(content_of(folder / "new") == "there");
}

TEST_CASE("pipes are written to, never replaced") {
  const TemporaryFolder made(prefix);
  const fs::path folder = made.path();
  const fs::path pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("pipe", folder / "link");
  const int reader = open(pipe.c_str(), O_RDWR);
  REQUIRE(reader >= 0);
  for (const char* name : {"pipe", "link"}) {
    write_whole_file(folder / name, "text");
    char text[8] = {};
    CHECK(read(reader, text, sizeof text) == 4);
    CHECK(std::string(text) == "text");
    CHECK_THROWS_AS(WholeFile(folder / name), Error);
  }
  close(reader);
  CHECK(fs::is_fifo(pipe));
  CHECK(fs::is_symlink(folder / "link"));
}

TEST_CASE("a line of a signal handler is written in one piece, and cut where it has no more room") {
  const TemporaryFolder made(prefix);
  const fs::path path = made.path() / "told";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(file >= 0);
  SignalLine line;
  line << "rank " << 12 << ", code " << std::numeric_limits<std::int64_t>::min() << "\n";
  line.write_to(file);
  CHECK(content_of(path) == "rank 12, code -9223372036854775808\n");
  for (int i = 0; i < 100; ++i) line << "0123456789";
  line.write_to(file);
  ::close(file);
  CHECK(content_of(path).size() == 35 + 320);
}

TEST_CASE("a file is copied whole, or what was there stays") {
  const TemporaryFolder made(prefix);
  const fs::path folder = made.path();
  std::string text(1'000'000, 'a');
  text.back() = 'z';
  write_whole_file(folder / "from", text);
  copy_whole_file(folder / "from", folder / "to");
  CHECK(content_of(folder / "to") == text);
  CHECK_THROWS_AS(copy_whole_file(folder / "absent", folder / "to"), Error);
  CHECK(content_of(folder / "to") == text);
}
