// The pipeline schedules: their names and what each of them allows. The rules, the generators'
// dispatch, `trainctl verify` and the tests read this table.
#pragma once

#include <cstdint>
#include <string_view>

namespace trainctl {

enum class PipelineScheduler : std::uint8_t { one_f_one_b, gpipe, zb_h1, zb_v };

/// On which stage each chunk of the model lies, in the order in which data passes them.
enum class ChunkRoute : std::uint8_t {
  round_robin,  // from the first stage to the last, then again from the first
  down_and_up,  // from the first stage to the last, then back to the first
};

struct ScheduleTraits {
  PipelineScheduler value = PipelineScheduler::one_f_one_b;
  std::string_view word;          // in YAML
  std::string_view name;          // in a plan; YAML accepts it too
  std::string_view chunked_name;  // in a plan with several chunks per stage
  int least_chunks = 1;           // per stage
  int most_chunks = 1 << 20;
  ChunkRoute route = ChunkRoute::round_robin;
  bool groups = false;          // several chunks are run in groups of micro-batches
  bool overlaps = true;         // messages may overlap with one chunk per stage
  bool batches = true;          // messages may be exchanged in batches
  bool apart = false;           // those of several chunks are by default exchanged one by one
  bool places_weights = false;  // W comes where it fills a gap, apart from its B
};

/// In the order of the enumerators.
inline constexpr ScheduleTraits schedules[] = {
    {.value = PipelineScheduler::one_f_one_b,
     .word = "1f1b",
     .name = "1f1b",
     .chunked_name = "interleaved_1f1b",
     .groups = true,
     .overlaps = false},
    {.value = PipelineScheduler::gpipe, .word = "gpipe", .name = "gpipe", .chunked_name = "gpipe"},
    {.value = PipelineScheduler::zb_h1,
     .word = "zb-h1",
     .name = "zb_h1",
     .chunked_name = "interleaved_zb_h1",
     .groups = true,
     .overlaps = false,
     .apart = true,
     .places_weights = true},
    {.value = PipelineScheduler::zb_v,
     .word = "zb-v",
     .name = "zb_v",
     .chunked_name = "zb_v",
     .least_chunks = 2,
     .most_chunks = 2,
     .route = ChunkRoute::down_and_up,
     .batches = false,
     .places_weights = true},
};

constexpr const ScheduleTraits& traits_of(PipelineScheduler scheduler) {
  return schedules[static_cast<int>(scheduler)];
}

}  // namespace trainctl
