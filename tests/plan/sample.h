// Configurations in memory for the tests of this folder.
#pragma once

#include <stdexcept>

#include "config/schema/config.h"
#include "plan/prepare/make_plan.h"

namespace trainctl {

inline constexpr double no_time = 1e30;  // a rate so high that what it measures takes no time

/// A small GPT-2 that every rule accepts on 1, 2, 3, 4, 6 or 12 ranks.
inline Config small_config() {
  Config config;
  config.model.num_layers = 4;
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 64;
  config.model.vocab_size = 256;
  config.data.train = {DataSource{"text", 1.0}};
  config.train.steps = 2000;
  config.train.global_batch_size = 12;
  config.lr_schedule.max_lr = 1e-3;
  return config;
}

inline Config gpt2_124m() {
  Config config = small_config();
  config.model.num_layers = 12;
  config.model.hidden_size = 768;
  config.model.num_attention_heads = 12;
  config.model.seq_length = 1024;
  config.model.vocab_size = 50257;
  config.train.global_batch_size = 4;
  return config;
}

inline Config llama3_8b() {
  Config config = small_config();
  config.model.family = "llama";
  config.model.num_layers = 32;
  config.model.hidden_size = 4096;
  config.model.ffn_hidden_size = 14336;
  config.model.num_attention_heads = 32;
  config.model.num_query_groups = 8;
  config.model.seq_length = 8192;
  config.model.vocab_size = 128256;
  config.model.rotary_base = 500000.0;
  return config;
}

inline Site site_of(std::int64_t ranks) {
  return Site{.world_size = ranks, .ranks_per_host = ranks, .cores_per_host = 2};
}

/// The plan of a configuration without mistakes; throws std::logic_error with them where it has.
inline Plan plan_of(const Config& config, std::int64_t ranks = 1) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, site_of(ranks), SourceMap{}, diagnostics);
  if (diagnostics.has_errors()) throw std::logic_error(render_text(diagnostics, false));
  return plan;
}

}  // namespace trainctl
