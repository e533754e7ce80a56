// Checks of a run before its first step.
#include "run/preflight/preflight.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "catch.h"
#include "run/preflight/machine.h"
#include "run/prepare.h"
#include "run/records/step_records.h"

using namespace trainctl;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() { fs::remove_all(path_); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_ = fs::temp_directory_path() / "trainctl-preflight-test";
};

constexpr const char* two_gigabytes =
    "MemTotal:        2000000 kB\nMemFree:          500000 kB\nMemAvailable:    1000000 kB\n";

std::vector<Finding> findings_of(const Folder& folder, const std::string& options) {
  folder.write("a.yaml", R"(model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2,
  vocab_size: 256, seq_length: 32}
train: {steps: 4, global_batch_size: 2}
lr_schedule: {max_lr: 1e-3}
)" + options);
  ReadResult read = read_config(folder.path() / "a.yaml", {});
  const Plan plan = prepare(read, {}, Purpose::train);
  INFO(render_text(read.diagnostics, false));
  REQUIRE_FALSE(read.diagnostics.has_errors());
  return preflight(
      {.read = read, .plan = plan, .directory = folder.path() / "run", .whole_data = true});
}

}  // namespace

TEST_CASE("the memory of a machine is that of the tightest of its cgroups") {
  const Folder folder;
  CHECK_FALSE(memory_room(folder.path()));
  folder.write("proc/meminfo", two_gigabytes);
  CHECK(memory_room(folder.path())->limit == 2000000LL * 1024);
  CHECK(memory_room(folder.path())->free == 1000000LL * 1024);
  folder.write("proc/self/cgroup", "0::/job/step\n");
  folder.write("sys/fs/cgroup/job/memory.max", "900000000\n");
  folder.write("sys/fs/cgroup/job/memory.current", "500000000\n");
  folder.write("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 100000000\n");
  folder.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  const auto limited = memory_room(folder.path());
  CHECK(limited->limit == 900000000);
  CHECK(limited->free == 500000000);
  CHECK(limited->of == "cgroup /job");
}

TEST_CASE("the older kind of cgroups limits memory too") {
  const Folder folder;
  folder.write("proc/meminfo", two_gigabytes);
  folder.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/box\n");
  folder.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "800000000\n");
  folder.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "300000000\n");
  CHECK(memory_room(folder.path())->limit == 800000000);
  CHECK(memory_room(folder.path())->free == 500000000);
}

TEST_CASE("cores are those of the CPU set, and no more than the cgroups' share of time") {
  const Folder folder;
  CHECK_FALSE(core_quota(folder.path()));
  const auto allowed = static_cast<int>(allowed_processors().size());
  REQUIRE(allowed > 0);
  CHECK(usable_cores(folder.path()) == allowed);
  folder.write("proc/self/cgroup", "0::/job/step\n");
  folder.write("sys/fs/cgroup/job/cpu.max", "350000 100000\n");
  folder.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  CHECK(core_quota(folder.path()) == 4);
  CHECK(usable_cores(folder.path()) == std::min(4, allowed));
  folder.write("sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
  CHECK(usable_cores(folder.path()) == 1);
}

TEST_CASE("the older kind of cgroups limits cores too") {
  const Folder folder;
  folder.write("proc/self/cgroup", "3:cpu,cpuacct:/box/inner\n");
  folder.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n");
  folder.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  folder.write("sys/fs/cgroup/cpu/box/inner/cpu.cfs_quota_us", "-1\n");
  folder.write("sys/fs/cgroup/cpu/box/inner/cpu.cfs_period_us", "100000\n");
  CHECK(core_quota(folder.path()) == 2);
}

TEST_CASE("all that is wrong is found at once, and each is one line") {
  const Folder folder;
  folder.write("text.txt", "a few words, and several more that they make a sample\n");
  folder.write("odd.bin", "abc");
  const auto findings = findings_of(
      folder, "data:\n  train: [" + folder.path().string() + "/none.bin, " +
                  folder.path().string() + "/odd.bin, " + folder.path().string() + "/text.txt]\n");
  std::vector<ExitCode> errors;
  std::string all;
  for (const Finding& finding : findings) {
    if (finding.level == LogLevel::error) errors.push_back(finding.code);
    CHECK(finding.text.find('\n') == std::string::npos);
    all += finding.text + "\n";
  }
  INFO(all);
  CHECK(errors == std::vector{ExitCode::missing_input, ExitCode::bad_data});
  for (const char* part : {"tokenizer: byte has 256 tokens", "text.txt: text, 1 file, 54 B",
                           "disk: ", "memory: ", "open files: up to ", "threads: 1 rank x "}) {
    CHECK_THAT(all, Catch::Contains(part));
  }
  CHECK_FALSE(fs::exists(folder.path() / "run"));
}

TEST_CASE("a limit of address space that the plan does not fit in is found before a step") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const Folder folder;
  folder.write("text.txt", "a few words, and several more that they make a sample\n");
  folder.write("a.yaml", R"(model: {num_layers: 2, hidden_size: 1024, num_attention_heads: 16,
  vocab_size: 256, seq_length: 4096}
train: {steps: 4, global_batch_size: 2}
lr_schedule: {max_lr: 1e-3}
data: {train: )" + folder.path().string() +
                             "/text.txt}\n");
  ReadResult read = read_config(folder.path() / "a.yaml", {});
  const Plan plan = prepare(read, {}, Purpose::train);
  INFO(render_text(read.diagnostics, false));
  REQUIRE_FALSE(read.diagnostics.has_errors());
  const MemoryEstimate memory = plan.max_memory();
  // The line about address space, with `room` bytes in addition to those that the process has.
  const auto finding = [&](std::int64_t room) {
    const rlimit wide{std::int64_t{1} << 47, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &wide) == 0);
    REQUIRE(address_space_limit() == std::int64_t{1} << 47);
    const rlimit now{static_cast<rlim_t>(virtual_bytes() + room), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
    const auto findings =
        preflight({.read = read, .plan = plan, .directory = folder.path() / "run"});
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    for (const Finding& one : findings) {
      if (one.text.find("address space: ") == 0) return one;
    }
    return Finding{};
  };
  // With the stacks of its threads, and what measuring the machine takes.
  const std::int64_t planned = memory.total() - memory.runtime +
                               (plan.threads_per_rank + std::int64_t{4}) * thread_stack() +
                               (std::int64_t{64} << 20);
  REQUIRE(planned > std::int64_t{256} << 20);
  const Finding fits = finding(planned + (std::int64_t{64} << 20));
  CHECK(fits.level == LogLevel::info);
  CHECK_THAT(fits.text, Catch::Contains("planned for a process"));
  const Finding tight = finding(planned - (std::int64_t{64} << 20));
  CHECK(tight.level == LogLevel::error);
  CHECK(tight.code == ExitCode::unavailable);
  CHECK(tight.help == "raise it with ulimit -v");
}

TEST_CASE("tokens beyond the vocabulary are found when the whole data is read") {
  const Folder folder;
  folder.write("small.bin", std::string("\x01\x00\xff\x7f", 4) + std::string(200, '\0'));
  const auto findings =
      findings_of(folder, "data: {train: " + folder.path().string() + "/small.bin}\n");
  CHECK(findings[0].level == LogLevel::error);
  CHECK_THAT(findings[0].text, Catch::Contains("32767"));
}
