// The field lists of fused collectives; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<FusionConfig> auto& fusion) {
  visit(fusion.mode, field("mode",
                           "How tensors form blocks: auto (64 MB), size (config: MB) or index "
                           "(config: the last gradient of each block)")
                         .unset("bucket_rule decides"));
  visit(fusion.config, field("config", "null (auto), MB (size), or ascending indices (index)"));
}

template <class Visitor>
void fields(Visitor& visit, Is<CommFusionConfig> auto& fusion) {
  visit(fusion.openstate, field("openstate", "false: each tensor has its own collective"));
  visit.section(fusion.allreduce, field("allreduce", "Fusion of gradient all-reduces"));
  visit.section(fusion.allgather, field("allgather", "Fusion of parameter all-gathers"));
  visit.section(fusion.reducescatter, field("reducescatter", "Fusion of reduce-scatters"));
}

}  // namespace trainctl
