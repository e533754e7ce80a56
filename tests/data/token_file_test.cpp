#include "data/token_file.h"

#include "base/parallel_for.h"
#include "catch.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

/// The 82-byte index of docs/formats.md: two documents of 3 and 2 u16 tokens.
const std::string worked_example =
    "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000"
    "000000000600000000000000000000000000000001000000000000000200000000000000";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::vector<std::int32_t> all_tokens(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.tokens()));
  file.read(0, tokens);
  return tokens;
}

std::string replaced(std::string bytes, std::size_t offset, const std::string& by) {
  return bytes.replace(offset, by.size(), by);
}

/// The message of opening "t" when it consists of these bytes.
std::string pair_error(const std::string& idx, const std::string& bin) {
  const ScratchFolder folder;
  folder.write("t.idx", idx);
  folder.write("t.bin", bin);
  return error_of([&] { TokenFile::open(folder / "t"); });
}

std::string single_error(const std::string& bin) {
  const ScratchFolder folder;
  return error_of([&] { TokenFile::open(folder.write("t.bin", bin)); });
}

const std::string five_tokens = packed<std::uint16_t>({7, 8, 9, 10, 65535});

}  // namespace

TEST_CASE("the worked example of the Megatron format reads back") {
  const ScratchFolder folder;
  folder.write("t.idx", from_hex(worked_example));
  folder.write("t.bin", five_tokens);
  REQUIRE(from_hex(worked_example) == megatron_index(8, 2, {3, 2}));
  const std::string name = GENERATE("t", "t.bin", "t.idx");
  const TokenFile file = TokenFile::open(folder / name);
  CHECK(file.format() == "megatron");
  CHECK(file.path() == folder / "t.bin");
  CHECK(file.token_bytes() == 2);
  CHECK(file.tokens() == 5);
  CHECK(file.sequences() == 2);
  CHECK(file.documents() == 2);
  CHECK(file.document_start(0) == 0);
  CHECK(file.document_start(1) == 3);
  CHECK(file.document_start(2) == 5);
  CHECK(all_tokens(file) == std::vector<std::int32_t>{7, 8, 9, 10, 65535});
  std::vector<std::int32_t> middle(2);
  file.read(2, middle);
  CHECK(middle == std::vector<std::int32_t>{9, 10});
}

TEST_CASE("every integer type of the Megatron format is read") {
  const ScratchFolder folder;
  const auto read_as = [&](std::uint8_t code, std::int64_t width, const std::string& bin) {
    folder.write("t.idx", megatron_index(code, width, {2, 1}));
    folder.write("t.bin", bin);
    return all_tokens(TokenFile::open(folder / "t"));
  };
  using Tokens = std::vector<std::int32_t>;
  CHECK(read_as(1, 1, packed<std::uint8_t>({1, 200, 3})) == Tokens{1, 200, 3});
  CHECK(read_as(2, 1, packed<std::int8_t>({1, -2, 3})) == Tokens{1, -2, 3});
  CHECK(read_as(3, 2, packed<std::int16_t>({1, -2, 300})) == Tokens{1, -2, 300});
  CHECK(read_as(4, 4, packed<std::int32_t>({1, -2, 70000})) == Tokens{1, -2, 70000});
  CHECK(read_as(5, 8, packed<std::int64_t>({1, std::int64_t{1} << 40, 70000})) ==
        Tokens{1, -1, 70000});
  CHECK(read_as(8, 2, packed<std::uint16_t>({1, 65535, 3})) == Tokens{1, 65535, 3});
}

TEST_CASE("llm.c and nanoGPT files are told apart by their first bytes") {
  const ScratchFolder folder;
  const auto gpt2 = TokenFile::open(
      folder.write("gpt2.bin", llmc_header(20240520, 1, 3) + packed<std::uint16_t>({1, 50256, 2})));
  CHECK(gpt2.format() == "llm.c");
  CHECK(gpt2.token_bytes() == 2);
  CHECK(all_tokens(gpt2) == std::vector<std::int32_t>{1, 50256, 2});
  const auto llama = TokenFile::open(
      folder.write("llama.bin", llmc_header(20240801, 7, 2) + packed<std::uint32_t>({128000, 5})));
  CHECK(llama.token_bytes() == 4);
  CHECK(all_tokens(llama) == std::vector<std::int32_t>{128000, 5});
  const auto plain = TokenFile::open(folder.write("plain.bin", five_tokens));
  CHECK(plain.format() == "nanogpt");
  CHECK(plain.documents() == 1);
  CHECK(plain.document_start(1) == 5);
  CHECK(all_tokens(plain) == std::vector<std::int32_t>{7, 8, 9, 10, 65535});
}

TEST_CASE("a read longer than the buffer gives every token") {
  const ScratchFolder folder;
  std::vector<std::uint16_t> tokens(50000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i);
  const auto file = TokenFile::open(folder.write("t.bin", packed(tokens)));
  const auto read = all_tokens(file);
  CHECK(std::equal(read.begin(), read.end(), tokens.begin(), tokens.end()));
}

TEST_CASE("files that are missing are named") {
  const ScratchFolder folder;
  CHECK(missing_in(
            error_of([&] { TokenFile::open(folder / "t"); }),
            {"66 no text file or folder /", "/t, and no token file t.bin with t.idx there"}) == "");
  folder.write("t.bin", five_tokens);
  CHECK(missing_in(error_of([&] { TokenFile::open(folder / "t"); }),
                   {"66 ", "t.idx is missing", "named with its .bin"}) == "");
  folder.write("u.idx", megatron_index(8, 2, {3, 2}));
  CHECK(missing_in(error_of([&] { TokenFile::open(folder / "u.bin"); }), {"u.bin is missing"}) ==
        "");
  std::filesystem::create_directory(folder / "d.bin");
  CHECK(missing_in(error_of([&] { TokenFile::open(folder / "d.bin"); }),
                   {"66 ", "is a directory"}) == "");
}

TEST_CASE("a malformed index is refused with offset, found and expected") {
  const std::string good = megatron_index(8, 2, {3, 2});
  REQUIRE(pair_error(good, five_tokens) == "");
  CHECK(missing_in(pair_error("", five_tokens), {"65 ", "t.idx: offset 0: the file"}) == "");
  CHECK(missing_in(pair_error(good.substr(0, 33), five_tokens),
                   {"offset 33: the file ends", "34 bytes"}) == "");
  CHECK(missing_in(pair_error(replaced(good, 0, "MMIDXXX"), five_tokens),
                   {"offset 0: expected the magic 4d 4d 49 44 49 44 58 00 00",
                    "found 4d 4d 49 44 58 58 58 00 00"}) == "");
  CHECK(missing_in(pair_error(replaced(good, 9, "\x02"), five_tokens),
                   {"offset 9: expected version 1, found 2"}) == "");
  CHECK(missing_in(pair_error(replaced(good, 17, "\x06"), five_tokens),
                   {"offset 17: expected the code of an integer type", "found 6"}) == "");
  CHECK(missing_in(pair_error(good.substr(0, 60), five_tokens),
                   {"offset 18: 2 sequences and 3 document entries do not fit", "60 bytes"}) == "");
  CHECK(missing_in(pair_error(good + "x", five_tokens),
                   {"expected a file of 82 bytes", "found 83"}) == "");
  CHECK(missing_in(pair_error(good + "xx", five_tokens), {"offset 82", "multimodal"}) == "");
  CHECK(missing_in(pair_error(replaced(good, 18, std::string(8, '\xff')), five_tokens),
                   {"18446744073709551615 sequences"}) == "");
  CHECK(missing_in(pair_error(replaced(good, 26, std::string(8, '\xff')), five_tokens),
                   {"18446744073709551615 document entries"}) == "");
  CHECK(missing_in(pair_error(good.substr(0, 26) + packed<std::uint64_t>({0}) + good.substr(34, 24),
                              five_tokens),
                   {"at least one document entry"}) == "");
}

TEST_CASE("an index that lies about the .bin is refused") {
  const std::string good = megatron_index(8, 2, {3, 2});
  const std::size_t lengths = 34;
  const std::size_t pointers = 34 + 8;
  const std::size_t documents = 34 + 24;
  CHECK(missing_in(pair_error(replaced(good, lengths + 4, packed<std::int32_t>({3})), five_tokens),
                   {"offset 38: sequence 1 of 3 tokens at byte 6 does not fit", "10 bytes"}) == "");
  CHECK(missing_in(pair_error(replaced(good, lengths + 4, packed<std::int32_t>({-2})), five_tokens),
                   {"sequence 1 of -2 tokens"}) == "");
  CHECK(missing_in(pair_error(replaced(good, lengths + 4, packed<std::int32_t>({1})), five_tokens),
                   {"the sequences take 8 bytes", "has 10 bytes"}) == "");
  CHECK(missing_in(pair_error(replaced(good, pointers + 8, packed<std::int64_t>({8})), five_tokens),
                   {"offset 50: sequence 1 expected at byte 6 of the .bin, found 8"}) == "");
  CHECK(missing_in(pair_error(replaced(good, documents, packed<std::int64_t>({1})), five_tokens),
                   {"offset 58: document entry 0 expected in [0, 0], found 1"}) == "");
  CHECK(
      missing_in(pair_error(replaced(good, documents + 8, packed<std::int64_t>({-1})), five_tokens),
                 {"document entry 1 expected in [0, 2], found -1"}) == "");
  CHECK(
      missing_in(pair_error(replaced(good, documents + 8, packed<std::int64_t>({3})), five_tokens),
                 {"document entry 1 expected in [0, 2], found 3"}) == "");
  CHECK(
      missing_in(pair_error(replaced(good, documents + 16, packed<std::int64_t>({1})), five_tokens),
                 {"the last document ends at sequence 1, but there are 2"}) == "");
}

TEST_CASE("a truncated or empty .bin is refused") {
  const std::string good = megatron_index(8, 2, {3, 2});
  CHECK(missing_in(pair_error(good, five_tokens.substr(0, 8)),
                   {"65 ", "sequence 1 of 2 tokens at byte 6 does not fit", "t.bin of 8 bytes"}) ==
        "");
  CHECK(missing_in(pair_error(good, five_tokens.substr(0, 9)), {"t.bin of 9 bytes"}) == "");
  CHECK(missing_in(pair_error(good, ""), {"65 ", "t.bin: the file is empty"}) == "");
  CHECK(missing_in(single_error(""), {"65 ", "t.bin: the file is empty"}) == "");
  CHECK(missing_in(single_error("abc"), {"offset 2", "3 bytes is odd"}) == "");
}

TEST_CASE("malformed llm.c files and files of other kinds are refused") {
  const std::string tokens = packed<std::uint16_t>({1, 2, 3});
  CHECK(missing_in(single_error(llmc_header(20240520, 2, 3) + tokens),
                   {"offset 4: expected llm.c version 1, found 2"}) == "");
  CHECK(missing_in(single_error(llmc_header(20240520, 1, 4) + tokens),
                   {"offset 8: the header counts 4 tokens of 2 bytes", "6 bytes follow"}) == "");
  CHECK(missing_in(single_error(llmc_header(20240801, 7, -1) + tokens), {"counts -1 tokens"}) ==
        "");
  CHECK(missing_in(single_error(llmc_header(20240520, 1, 0)), {"offset 8: the file contains no"}) ==
        "");
  CHECK(missing_in(single_error(llmc_header(20240520, 1, 0).substr(0, 100)),
                   {"offset 100: the file ends", "1024 bytes"}) == "");
  CHECK(missing_in(single_error(llmc_header(20240522, 1, 0)), {"llm.c evaluation file"}) == "");
  CHECK(missing_in(single_error(llmc_header(20240326, 3, 0)), {"llm.c model file"}) == "");
  CHECK(missing_in(single_error("BIN.TOK\n12345678"), {"llmq token file"}) == "");
}

TEST_CASE("a file that shrinks after it was opened is an error, not a signal") {
  const ScratchFolder folder;
  const auto path = folder.write("t.bin", std::string(100000, '\1'));
  const TokenFile file = TokenFile::open(path);
  std::filesystem::resize_file(path, 1000);
  std::vector<std::int32_t> tokens(10);
  file.read(490, tokens);
  CHECK(missing_in(error_of([&] { file.read(491, tokens); }),
                   {"65 ", "offset 982", "now has 1000 bytes"}) == "");
  CHECK(missing_in(error_of([&] { file.check_vocabulary(1000); }), {"now has 1000 bytes"}) == "");
}

TEST_CASE("check_vocabulary names the first token outside") {
  const ScratchFolder folder;
  const int threads = GENERATE(1, 3);
  set_thread_count(threads);
  std::vector<std::uint16_t> tokens(3'000'000, 255);
  auto file = TokenFile::open(folder.write("u16.bin", packed(tokens)));
  CHECK_NOTHROW(file.check_vocabulary(256));
  CHECK_NOTHROW(file.check_vocabulary(1 << 20));
  CHECK(missing_in(error_of([&] { file.check_vocabulary(255); }),
                   {"offset 0: token number 0 is 255", "allows 0 to 254"}) == "");
  tokens[2'000'001] = 256;
  tokens[2'900'000] = 65535;
  file = TokenFile::open(folder.write("u16.bin", packed(tokens)));
  CHECK(missing_in(error_of([&] { file.check_vocabulary(256); }),
                   {"65 ", "offset 4000002: token number 2000001 is 256"}) == "");
  CHECK_NOTHROW(file.check_vocabulary(65536));
  CHECK(missing_in(error_of([&] { file.check_vocabulary(65535); }), {"2900000 is 65535"}) == "");
  set_thread_count(1);
}

TEST_CASE("check_vocabulary finds negative and huge tokens of every width") {
  const ScratchFolder folder;
  const auto error_with = [&](std::uint8_t code, std::int64_t width, const std::string& bin) {
    folder.write("t.idx", megatron_index(code, width, {3}));
    folder.write("t.bin", bin);
    const auto file = TokenFile::open(folder / "t");
    return error_of([&] { file.check_vocabulary(50257); });
  };
  CHECK(missing_in(error_with(2, 1, packed<std::int8_t>({1, 127, -1})), {"number 2 is -1;"}) == "");
  CHECK(missing_in(error_with(3, 2, packed<std::int16_t>({1, -7, 5})), {"number 1 is -7;"}) == "");
  CHECK(missing_in(error_with(4, 4, packed<std::int32_t>({1, 50256, 50257})), {"is 50257;"}) == "");
  CHECK(missing_in(error_with(4, 4, packed<std::int32_t>({1, 2, -50000})), {"is -50000;"}) == "");
  CHECK(missing_in(error_with(5, 8, packed<std::int64_t>({1, 2, std::int64_t{1} << 40})),
                   {"is 1099511627776;"}) == "");
  CHECK(error_with(1, 1, packed<std::uint8_t>({1, 255, 3})) == "");
  const auto llama = TokenFile::open(
      folder.write("l.bin", llmc_header(20240801, 7, 1) + packed<std::uint32_t>({4000000000U})));
  CHECK(missing_in(error_of([&] { llama.check_vocabulary(128256); }),
                   {"offset 1024", "is 4000000000;"}) == "");
}
