// Layouts of a run whose batch grows, against a single rank.
#include "catch.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/layouts.h"

using namespace trainctl;

namespace {

Options growing(Options options) {
  options.insert(options.end(), {"train.micro_batch_size=1", "train.rampup_batch_size=[4, 2, 9]"});
  return options;
}

}  // namespace

TEST_CASE("layouts of a batch-size ramp equal a single rank") {
  int model = 0;
  for (const Options& options : {growing(small_gpt), growing(small_llama)}) {
    const ReadResult read = read_sample(options);
    const Verification verification(read.config, 4);
    int number = 0;
    for (const std::string& layout :
         with_each_word({"dp2", "dp2+zero2", "dp2+zero3", "pp2+zero3+dp2", "pp4", "pp2+dp2+gpipe",
                         "pp2+zb-h1", "pp2+zb-v", "tp2sp+pp2+dp2+zero1", "pp2+vp2", "dp2+each_sum",
                         "pp2+recompute", "pp2+partial", "pp2+gpipe+overlapped", "pp2+offload",
                         "dp2+offload2", "pp2+vp2+zb-h1", "pp2+dp2+zero3+selective+offload"})) {
      if (!thorough() && !watched() && number++ % 2 != model) continue;  // the models take turns
      const LayoutChoice choice = parse_layouts(layout, 0).front();
      const Config own = with_layout(read.config, choice);
      const VerifiedLayout verified{own, plan_of(own, choice.ranks()), 20};
      REQUIRE(verified.plan.smaller.size() > 1);
      const LayoutVerdict verdict = verification.compare(verified);
      INFO(options[0] << " " << layout << ": " << told(verdict));
      CHECK(verdict.equal);
      const LayoutVerdict free = verification.run_freely(verified);
      INFO(told(free));
      CHECK(free.equal);
    }
    ++model;
  }
}

TEST_CASE("a layout whose batches are rounded otherwise is not compared") {
  Options options = small_gpt;
  options.insert(options.end(), {"train.global_batch_size=10", "train.micro_batch_size=3",
                                 "train.decrease_batch_size_if_needed=true"});
  const ReadResult read = read_sample(options);
  const Verification verification(read.config, 1);
  const auto verdict_of = [&](const char* layout, std::int64_t ranks) {
    const Config own = with_layout(read.config, parse_layouts(layout, 0).front());
    return verification.compare({own, plan_of(own, ranks), 20});
  };
  CHECK(verdict_of("pp3", 3).equal);                 // 9 sequences, as one rank
  const LayoutVerdict other = verdict_of("dp2", 2);  // 6
  CHECK_FALSE(other.equal);
  CHECK(other.failure.find("other batches") != std::string::npos);
}
