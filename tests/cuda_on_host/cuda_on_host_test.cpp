// CUDA on the host finds faults that only devices have, and nothing where there is none.
#include <dlfcn.h>

#include "catch.h"
#include "contains.h"
#include "device/cuda_device.h"
#include "faults.h"

using cuda_on_host::EpilogueFault;

namespace {

const cuda_on_host::Faults& faults() {
  static const auto* const found = [] {
    void* module = dlopen(trainctl::cuda_module_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    INFO("the module: " << (module == nullptr ? dlerror() : "open"));
    REQUIRE(module != nullptr);
    void* symbol = dlsym(module, "cuda_on_host_faults");
    REQUIRE(symbol != nullptr);
    return reinterpret_cast<const cuda_on_host::Faults* (*)()>(symbol)();
  }();
  return *found;
}

constexpr const char* orders[] = {"eager", "lazy", "random"};

/// The number of seeds among 20 with which a program finds something.
template <class Program>
int times_found(const char* order, const Program& program) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    faults().restart(seed, order);
    if (!program().empty()) ++count;
  }
  faults().restart(1, "random");
  return count;
}

/// The message of a program that fails.
template <class Program>
std::string message_of(const Program& program) {
  faults().restart(1, "random");
  const std::string message = program();
  faults().restart(1, "random");
  return message;
}

}  // namespace

TEST_CASE("programs without a fault are right in every order") {
  for (const char* order : orders) {
    INFO(order);
    CHECK(times_found(order, [] { return faults().exchange_in_block(true); }) == 0);
    CHECK(times_found(order, [] { return faults().wait_for_stream(true); }) == 0);
    CHECK(times_found(order, [] { return faults().free_before(true); }) == 0);
    CHECK(times_found(order, [] { return faults().write_elements(100, 100); }) == 0);
    CHECK(times_found(order, [] { return faults().read_at(100, 99); }) == 0);
    CHECK(times_found(order, [] { return faults().meet(true, true); }) == 0);
    CHECK(times_found(order, [] { return faults().shuffle(true); }) == 0);
    CHECK(times_found(order, [] { return faults().load_sixteen(4); }) == 0);
    CHECK(times_found(order, [] { return faults().sum_shared(true); }) == 0);
    CHECK(times_found(order, [] { return faults().copy_asynchronously(true); }) == 0);
    CHECK(times_found(order, [] { return faults().write_shared(0); }) == 0);
    CHECK(times_found(order, [] { return faults().join_blocks(); }) == 0);
    CHECK(times_found(order, [] { return faults().launch_with(1024, 227); }) == 0);
    CHECK(times_found(order, [] { return faults().multiply_with(EpilogueFault::none); }) == 0);
    CHECK(times_found(order, [] { return faults().launch_graph(""); }) == 0);
  }
}

TEST_CASE("a missing barrier is found by every seed") {
  CHECK(times_found("random", [] { return faults().exchange_in_block(false); }) == 20);
}

TEST_CASE("a missing wait of a stream is found") {
  CHECK(times_found("lazy", [] { return faults().wait_for_stream(false); }) == 20);
  CHECK(times_found("random", [] { return faults().wait_for_stream(false); }) >= 5);
}

TEST_CASE("memory that is freed while a stream still uses it is found") {
  CHECK(times_found("lazy", [] { return faults().free_before(false); }) == 20);
  CHECK(times_found("random", [] { return faults().free_before(false); }) >= 5);
}

TEST_CASE("accesses beyond an allocation are found") {
  CHECK(contains(message_of([] { return faults().write_elements(100, 101); }),
                 "an allocation of 400 bytes is overrun"));
  CHECK(contains(message_of([] { return faults().write_elements(128, 129); }),
                 "an access to memory that is not there"));
  CHECK(contains(message_of([] { return faults().read_at(128, 128); }),
                 "an access to memory that is not there"));
  CHECK(contains(message_of([] { return faults().read_at(1024, -1); }),
                 "an access to memory that is not there"));
  CHECK(contains(message_of([] { return faults().write_shared(1); }),
                 "an array in shared memory is overrun"));
}

TEST_CASE("threads that do not meet are found, with the places where they wait") {
  const std::string ended = message_of([] { return faults().meet(false, true); });
  CHECK(contains(ended, "ended"));
  CHECK(contains(ended, "block (0, 0, 0)") + contains(ended, "block (1, 0, 0)") == 1);
  const std::string apart = message_of([] { return faults().meet(true, false); });
  CHECK(contains(apart, "waits for the block at faults.cu:"));
  CHECK(contains(apart, "another thread at faults.cu:"));
  CHECK(contains(message_of([] { return faults().shuffle(false); }), "a lane that has ended"));
}

TEST_CASE("loads that are not aligned are found") {
  CHECK(contains(message_of([] { return faults().load_sixteen(1); }), "not aligned"));
}

TEST_CASE("what is read before it is there is not what was meant") {
  CHECK(times_found("random", [] { return faults().sum_shared(false); }) == 20);
  CHECK(times_found("random", [] { return faults().copy_asynchronously(false); }) == 20);
}

TEST_CASE("the host's reads of device memory fault where that is asked for") {
  CHECK(message_of([] { return faults().read_on_host(true); }) == "ended by a signal");
  CHECK(message_of([] { return faults().read_on_host(false); }) == "");
}

TEST_CASE("a wrong epilogue of a product is refused, or its values are wrong") {
  for (const EpilogueFault fault :
       {EpilogueFault::other_algorithm, EpilogueFault::narrow_rows, EpilogueFault::overlap,
        EpilogueFault::same_memory, EpilogueFault::short_matrix, EpilogueFault::unaligned,
        EpilogueFault::other_type}) {
    CAPTURE(static_cast<int>(fault));
    CHECK(message_of([fault] { return faults().multiply_with(fault); }) == "refused");
  }
  const auto other = [] { return faults().multiply_with(EpilogueFault::other_epilogue); };
  CHECK(message_of(other) == "wrong");
}

TEST_CASE("launches that no device takes are refused") {
  CHECK(contains(message_of([] { return faults().launch_with(1025, 0); }), "1024 threads"));
  CHECK(contains(message_of([] { return faults().launch_with(128, 228); }), "227 KiB"));
}

TEST_CASE("graphs whose streams do not wait, and calls that a capture forbids, are found") {
  CHECK(times_found("random", [] { return faults().launch_graph("no_edge"); }) >= 5);
  CHECK(contains(message_of([] { return faults().launch_graph("unjoined"); }),
                 "does not wait for all work of the others"));
  CHECK(contains(message_of([] { return faults().launch_graph("host_waits"); }),
                 "cudaStreamSynchronize within the capture of a graph"));
  CHECK(contains(message_of([] { return faults().launch_graph("allocates"); }),
                 "cudaMalloc within the capture of a graph"));
  CHECK(contains(message_of([] { return faults().launch_graph("event_from_outside"); }),
                 "an event from outside of the capture"));
  CHECK(contains(message_of([] { return faults().launch_graph("query_of_captured"); }),
                 "a query of an event that was captured"));
}
