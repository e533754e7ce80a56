#include "data/token_file.h"

#include <sys/resource.h>

#include <csignal>

#include "catch.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

TEST_CASE("the writer makes the worked example's bytes") {
  const ScratchFolder folder;
  TokenWriter writer(folder / "t", 65499);
  writer.append(std::vector<std::int32_t>{7, 8});
  writer.append(std::vector<std::int32_t>{9});
  writer.end_document(-1);
  writer.end_document(5);  // no tokens: left out
  writer.append(std::vector<std::int32_t>{10});
  writer.end_document(11);
  CHECK(folder.names().size() == 2);  // temporary ones
  writer.commit();
  CHECK(folder.names() == std::vector<std::string>{"t.bin", "t.idx"});
  CHECK(bytes_of(folder / "t.idx") == megatron_index(8, 2, {3, 2}));
  CHECK(bytes_of(folder / "t.bin") == packed<std::uint16_t>({7, 8, 9, 10, 11}));
  CHECK(writer.tokens() == 5);
  CHECK(writer.documents() == 2);
}

TEST_CASE("a vocabulary of 65500 takes four bytes per token") {
  const ScratchFolder folder;
  TokenWriter writer(folder / "t", 65500);
  writer.append(std::vector<std::int32_t>{65499, 1});
  writer.end_document(-1);
  writer.commit();
  CHECK(writer.token_bytes() == 4);
  CHECK(bytes_of(folder / "t.idx") == megatron_index(4, 4, {2}));
  CHECK(bytes_of(folder / "t.bin") == packed<std::int32_t>({65499, 1}));
}

TEST_CASE("a document too long for one sequence becomes several") {
  const ScratchFolder folder;
  TokenWriter writer(folder / "t", 256, 4);
  writer.append(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  writer.end_document(-1);
  writer.append(std::vector<std::int32_t>{10, 11, 12, 13});
  writer.end_document(14);
  writer.append(std::vector<std::int32_t>{15});
  writer.end_document(-1);
  writer.commit();
  const TokenFile file = TokenFile::open(folder / "t");
  CHECK(file.sequences() == 6);
  CHECK(file.documents() == 3);
  CHECK(file.document_start(1) == 9);
  CHECK(file.document_start(2) == 14);
  CHECK(file.document_start(3) == 15);
}

TEST_CASE("without commit nothing is left, and an older pair stays") {
  const ScratchFolder folder;
  folder.write("t.bin", "old");
  {
    TokenWriter writer(folder / "t", 256);
    writer.append(std::vector<std::int32_t>(1'000'000, 1));
  }
  CHECK(folder.names() == std::vector<std::string>{"t.bin"});
  CHECK(bytes_of(folder / "t.bin") == "old");
}

TEST_CASE("an output that cannot be written is an io error and leaves nothing") {
  const ScratchFolder folder;
  CHECK(missing_in(error_of([&] { TokenWriter writer(folder / "no/t", 256); }),
                   {"74 cannot create", "no/t.bin", "No such file"}) == "");
  std::filesystem::create_directories(folder / "t.bin/x");
  CHECK(missing_in(error_of([&] {
                     TokenWriter writer(folder / "t", 256);
                     writer.append(std::vector<std::int32_t>{1});
                     writer.end_document(-1);
                     writer.commit();
                   }),
                   {"74 cannot write", "t.bin"}) == "");
  CHECK(folder.names() == std::vector<std::string>{"t.bin"});
}

TEST_CASE("a full disk is an io error and leaves nothing") {
  const ScratchFolder folder;
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{100'000, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string error = error_of([&] {
    TokenWriter writer(folder / "t", 256);
    writer.append(std::vector<std::int32_t>(1'000'000, 1));
  });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  std::signal(SIGXFSZ, before);
  CHECK(missing_in(error, {"74 cannot write", "t.bin"}) == "");
  CHECK(folder.names().empty());
}
