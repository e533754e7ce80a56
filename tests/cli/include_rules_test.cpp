// Holds the direction of folders and rooms, the places of third-party headers, the size limits and
// the names within a library over every source file of lib/ and apps/; shows that each rule can
// fail.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "catch.h"
#include "library_names.h"
#include "source_rules.h"

namespace {

namespace fs = std::filesystem;

bool is_source(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string repeat(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

const std::string opening = "// What it is.\n#pragma once\n";

}  // namespace

TEST_CASE("every source file keeps the rules") {
  const fs::path root = TRAINCTL_SOURCE_DIR;
  std::map<std::string, std::string> texts;
  for (const char* folder : {"lib", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const std::string path = fs::relative(entry.path(), root).generic_string();
      texts[path] = text_of(entry.path());
      for (const std::string& violation : rule_violations(path, texts[path])) {
        UNSCOPED_INFO(violation);
        CHECK(violation.empty());
      }
    }
  }
  CHECK(texts.size() > 50);
  for (const std::string& violation : structure_violations(texts)) {
    UNSCOPED_INFO(violation);
    CHECK(violation.empty());
  }
  for (const std::string& violation : shared_names(texts)) {
    UNSCOPED_INFO(violation);
    CHECK(violation.empty());
  }
}

TEST_CASE("files do not include each other in a circle") {
  std::map<std::string, std::string> texts;
  texts["lib/plan/cost/b.h"] = "#include \"plan/cost/c.h\"\n";
  texts["lib/plan/cost/c.h"] = "#include \"plan/cost/b.h\"\n";
  const std::vector<std::string> found = structure_violations(texts);
  CHECK(found ==
        std::vector<std::string>{"lib/plan/cost/c.h: includes lib/plan/cost/b.h in a circle"});
}

TEST_CASE("files of one library do not share names in unnamed namespaces") {
  const auto within = [](const std::string& text) {
    return "#include <map>\nnamespace trainctl {\n\nnamespace {\n\n" + text +
           "\n}  // namespace\n\nint outside = 1;\nvoid open() {\n  int inside = 2;\n}\n}\n";
  };
  const std::string first =
      "constexpr std::size_t size = std::size_t{1} << 20;\n"
      "const std::map<int, std::string> words = {{1, \"struct\"}};  // size {\n"
      "const char* const names[] = {\"{\", \"}\"};\n"
      "struct Row {\n  int column = '}';\n  int width() const { return 0; }\n};\n"
      "enum class Kind { one, two };\n"
      "std::vector<int> rows_of(const Row& row,\n                         int first = 1) {\n"
      "  int local = 3;\n  return {local};\n}\n"
      "template <class T>\nvoid print(const T& value) {\n}\n"
      "void print(const Row& row) {\n}\n"
      "void print_operator() {\n}\n"
      "bool operator==(const Row& a, const Row& b) {\n}\n";
  const auto found_with = [&](const std::string& second, const std::string& path) {
    return shared_names({{"lib/nn/a.cpp", within(first)}, {path, within(second)}});
  };
  const std::pair<std::string, std::string> shared[] = {
      {"size", "constexpr int size{3};\n"},
      {"size", "int size() {\n  return 3;\n}\n"},
      {"words", "thread_local std::string words;\n"},
      {"names", "const std::vector<int> names(3);\nint names[3];\n"},
      {"Row", "class Row final : public Base {\n};\n"},
      {"Kind", "enum class Kind : int { three };\n"},
      {"print_operator", "void print_operator() {\n}\n"},
      {"rows_of", "std::set<int> rows_of(const Row& row, int first = 1) {\n  return {};\n}\n"},
  };
  for (const auto& [name, text] : shared) {
    INFO(text);
    const std::string line = "lib/nn/b.cpp: " + name + " is a name of lib/nn/a.cpp, too";
    CHECK(found_with(text, "lib/nn/b.cpp") == std::vector<std::string>{line});
    CHECK(found_with(text, "lib/engine/b.cpp").empty());
    CHECK(found_with(text, "lib/nn/b.h").empty());
  }
  for (const char* text : {"void print(const Column& column) {\n}\n", "int column = 2;\n",
                           "int local = 2;\n", "int inside = 3;\n", "using Row = int;\n",
                           "class Row;\n", "bool operator==(const Row& a, const Row& b) {\n}\n",
                           "int rows_of(const Row& row) {\n}\n", ""}) {
    INFO(text);
    CHECK(found_with(text, "lib/nn/b.cpp").empty());
  }
}

TEST_CASE("each rule can fail") {
  struct Row {
    std::string path;
    std::string text;
    std::string violation;
  };
  const std::vector<Row> rows = {
      {"lib/base/a.cpp", "#include \"config/read/read.h\"\n",
       "base/ may not include config/read/read.h"},
      {"lib/ops/a.cpp", "#include \"comm/group.h\"\n", "ops/ may not include"},
      {"lib/nn/a.cpp", "#include \"config/schema/config.h\"\n", "nn/ may not include"},
      {"lib/data/a.cpp", "#include \"device/tensor.h\"\n", "data/ may not include"},
      {"lib/new/a.cpp", "#include \"base/error.h\"\n", "new/ may not include"},
      {"lib/comm/threads/thread_world.cpp", "#include <mpi.h>\n", "mpi.h belongs in"},
      {"lib/comm/mpi/mpi_world.cpp", "#include <nccl.h>\n", "nccl.h belongs in"},
      {"lib/config/read/read.h", opening + "#include <yaml-cpp/yaml.h>\n",
       "yaml-cpp/yaml.h belongs in"},
      {"lib/engine/a.cpp", "#include <CLI/CLI.hpp>\n", "CLI/CLI.hpp belongs in"},
      {"lib/engine/a.cpp", "#include <cuda_runtime.h>\n", "cuda_runtime.h belongs in"},
      {"lib/ops/rmsnorm.cpp", "#include <omp.h>\n", "omp.h belongs in"},
      {"lib/run/run.cpp", "#include \"plan/prepare/make_plan.h\"\n",
       "plan/prepare/make_plan.h belongs in"},
      {"lib/ops/a.h", "#pragma once\n", "a header opens with"},
      {"lib/ops/a.h", repeat("// x\n", 7) + "#pragma once\n", "a header opens with"},
      {"lib/ops/a.h", "// What it is.\n#include <new>\n", "#pragma once follows"},
      {"lib/ops/a.h", opening + repeat("int a;\n", 249), "251 lines, more than 250"},
      {"lib/ops/a.cpp", repeat("int a;\n", 801), "801 lines, more than 800"},
      {"lib/ops/a.cpp", std::string(101, 'x') + "\n", "wider than 100 columns"},
      {"lib/ops/a.cpp", "void f() {\n" + repeat("  g();\n", 79) + "}\n", "function of 81 lines"},
      {"lib/ops/a.cpp", "class GroupManager {\n", "a vague type name"},
      {"lib/ops/string_utils.cpp", "", "a vague file name"},
      {"lib/ops/a.cpp", "// TODO: later\n", "a promise for later"},
      {"lib/ops/a.cpp", "std::shared_ptr<int> a;\n", "shared_ptr"},
      {"lib/ops/a.cpp", "namespace a {\nvoid f() {\n#ifdef X\n}\n}\n", "conditional comp"},
      {"lib/ops/cuda/a.cu", "  __shared__ float sums[32];\n",
       "belongs in lib/ops/cuda/block.cuh or conversions.cuh"},
      {"lib/ops/a.cpp", "#define TWICE(x) ((x) + (x))\n", "a function-like macro, TWICE"},
      {"lib/ops/a.cpp", "#define KERNEL(entry, Args) f(entry);\nf();\n", "macro, KERNEL"},
  };
  for (const Row& row : rows) {
    const auto found = rule_violations(row.path, row.text);
    INFO(row.path << ": " << row.violation);
    REQUIRE(found.size() == 1);
    CHECK(found.front().find(row.violation) != std::string::npos);
  }
}

TEST_CASE("what is allowed") {
  const std::pair<std::string, std::string> rows[] = {
      {"lib/run/run.cpp", "#include \"config/read/read.h\"\n#include \"data/batch.h\"\n"},
      {"lib/comm/mpi/mpi_world.cpp", "#include <mpi.h>\n"},
      {"lib/ops/cuda/rmsnorm.cu", "#include <cuda_runtime.h>\nnamespace a {\n#if X\n"},
      {"lib/comm/nccl/nccl_group.cpp", "#include <nccl.h>\n#include <cuda_runtime.h>\n"},
      {"lib/ops/a.cpp", "void f() {\n" + repeat("  g();\n", 78) + "}\n"},
      {"lib/ops/cpu/a.cpp", "void f() {\n" + repeat("  g();\n", 118) + "}\n"},
      {"lib/ops/a.cpp", "const char* text = \"no shared_ptr\";  // shared_ptr\n"},
      {"lib/ops/a.cpp", repeat("\xc3\xa9", 100) + "\n"},
  };
  for (const auto& [path, text] : rows) {
    INFO(path);
    CHECK(rule_violations(path, text).empty());
  }
}
