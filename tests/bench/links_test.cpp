// The figures that ranks measure of the links between them, and their places in a device's file.
#include "bench/device/links.h"

#include <cmath>

#include "bench/overlap.h"
#include "catch.h"
#include "comm/world.h"
#include "config/devices/figures.h"
#include "config/read/read.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

/// Threads that find themselves on hosts of `each` threads.
class OnHosts : public ForwardingWorld {
 public:
  OnHosts(World& inner, int each)
      : ForwardingWorld(inner), host_("host " + std::to_string(inner.rank() / each)) {}
  const std::string& host() const override { return host_; }

 private:
  std::string host_;
};

constexpr CommBench few{.min_bytes = 512, .max_bytes = 8192, .factor = 4, .iterations = 2};

std::vector<LinkFindings> links_of(int ranks, int each) {
  const Plan plan = plan_on_threads(read_config_text(sample_yaml(), "sample.yaml", {}).config);
  std::vector<LinkFindings> found(static_cast<std::size_t>(ranks));
  run_thread_world(ranks, {}, [&](World& world) {
    OnHosts hosts(world, each);
    found[static_cast<std::size_t>(world.rank())] = measure_links(hosts, few, plan);
  });
  return found;
}

}  // namespace

TEST_CASE("links are measured inside each host and between hosts", "[threads]") {
  for (const LinkFindings& found : links_of(4, 2)) {
    CHECK(found.host_ranks == 2);
    CHECK(found.hosts == 2);
    CHECK(found.inside.size() == found.between.size());
    for (const auto* level : {&found.inside, &found.between}) {
      CHECK(level->size() > 12);
      for (const CollectiveSpeed& speed : *level) CHECK(speed.wrong == 0);
    }
    CHECK(std::isfinite(found.contention));
  }
  for (const LinkFindings& found : links_of(2, 2)) {
    CHECK(found.hosts == 1);
    CHECK(found.between.empty());
  }
  CHECK_THROWS_WITH(links_of(3, 2),
                    Catch::Contains("levels are measured on equally many ranks of each host"));
}

TEST_CASE("what links carry has its place in a device's file, which can be read back") {
  LinkFindings found{.host_ranks = 2, .hosts = 3, .inside = {}, .between = {}, .contention = 1.5};
  const auto add = [](std::vector<CollectiveSpeed>& list, const char* operation, std::int64_t bytes,
                      double seconds) {
    list.push_back({.operation = operation, .bytes = bytes, .seconds = seconds});
  };
  add(found.inside, "all_gather", 1000, 2e-5);
  add(found.inside, "all_gather", 4000, 1e-5);  // no faster than fewer bytes
  add(found.inside, "barrier", 0, 3e-6);
  add(found.inside, "send_receive", 1000, 1e-5);
  add(found.inside, "send_receive", 4000, 2e-5);
  add(found.between, "send_receive", 1000, 1e-4);
  add(found.between, "send_receive", 4000, 4e-4);
  Diagnostics mistakes;
  DeviceFigures device =
      read_device(find_known(known_devices(), "cpu-avx2")->text, "cpu-avx2", mistakes);
  take_links(found, device);
  const DeviceFigures read = read_device(write_device(device), "own.yaml", mistakes);
  CHECK_FALSE(mistakes.has_errors());
  REQUIRE(read.collectives.size() == 1);
  CHECK(read.collectives.at(GroupOperation::all_gather).at(2).seconds[1] == Approx(2e-5));
  CHECK(read.link == Approx(2e8));
  CHECK(read.link_latency == Approx(1e-5));
  CHECK(read.network_bandwidth == Approx(1e7));
  CHECK(read.network_latency == Approx(1e-4));
  CHECK(read.network_links == 2);  // one for each rank of a host, which sent at once
  CHECK(read.host_ranks == 2);
  CHECK(read.contention == 1);
}
