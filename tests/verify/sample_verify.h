// Declarations that the tests of the comparison share: small models, one layout compared, and a
// mistake with the place where it must be found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/read/read.h"
#include "sample_run.h"
#include "verify/verify.h"

namespace trainctl {

using Options = std::vector<std::string>;

/// Four layers, eight heads: a GPT-2 with dropout, and a Llama with two KV heads, q/k norms and
/// SGD.
extern const Options small_gpt;
extern const Options small_llama;
/// Options that make another model run in 16 bits.
inline const Options in_bf16{"precision.compute=bf16"};
inline const Options in_fp16{"precision.compute=fp16"};

/// One batch is prepared ahead unless `options` say otherwise, so that a day of a free run has five
/// steps, of which two are before noon.
ReadResult read_sample(const Options& options);
/// Throws Error where the configuration is not legal.
Plan plan_of(const Config& config, std::int64_t ranks);
/// Two steps of a layout, by its name.
LayoutVerdict compare_sample(const Options& options, const std::string& layout,
                             const Faults& faults = {}, double deadline = 20);
/// The free run of a layout.
LayoutVerdict run_sample_freely(const Options& options, const std::string& layout,
                                const Faults& faults = {}, double deadline = 20);
std::string told(const LayoutVerdict& verdict);
/// The layouts that the default run compares: a few that together have each word with some number.
/// A thorough run compares all, and one under a sanitizer every fourth.
std::vector<std::string> with_each_word(const std::vector<std::string>& layouts);
void check_equal(const Options& options, const std::vector<std::string>& layouts);
void check_free(const Options& options, const std::vector<std::string>& layouts);

/// Every rank runs a changed plan.
Faults of_plan(std::function<void(Plan&)> change);

/// A mistake of a free run in the order of its data.
Faults of_order(std::function<void(BatchLoader::Order&)> change);

struct FaultRow {
  std::string name;
  Options options;
  std::string layout;
  Faults faults;
  std::string what;    // of the first departure; "": any
  std::string tensor;  // a part of its name
  int rank = -1;       // -1: any
  std::int64_t step = 1;
};

/// The layout is equal without the mistake, and with it departs first where the row says.
void check_fault(const FaultRow& row, decltype(compare_sample)& compare = compare_sample);
void check_faults(const std::vector<FaultRow>& rows,
                  decltype(compare_sample)& compare = compare_sample);

}  // namespace trainctl
