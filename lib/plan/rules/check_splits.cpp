// What the parallel degrees divide: heads, widths, vocabulary and sequence.
#include <algorithm>

#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

bool clean_of_tensor(const Facts& facts, Check& check) {
  return facts.mesh_is_clean(check) && facts.mesh.tp > 1;
}

void refuse_tensor(const char* code, const std::string& key, std::int64_t count, const Facts& facts,
                   Check& check) {
  check.error(code, "parallel.tensor_parallel",
              indivisible(named(key, count), named("tensor_parallel", facts.mesh.tp)),
              "set tensor_parallel to " + divisors_near(count, facts.mesh.tp) + ", or " + key +
                  " to " + multiples_near(facts.mesh.tp, count));
}

/// Numbers of query groups that fit the heads and the tensor-parallel ranks.
std::string legal_groups(std::int64_t heads, std::int64_t ranks) {
  std::vector<std::string> legal;
  for (std::int64_t groups = 1; groups <= heads && legal.size() < 4; ++groups) {
    const bool fits = groups % ranks == 0 || ranks % groups == 0;
    if (heads % groups == 0 && fits) legal.push_back(std::to_string(groups));
  }
  return alternatives(legal);
}

void check_heads(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!clean_of_tensor(facts, check) ||
      !check.clean({"model.num_attention_heads", "model.num_query_groups"})) {
    return;
  }
  const std::int64_t tp = facts.mesh.tp;
  if (shape.heads % tp != 0) {
    refuse_tensor("heads-tensor", "num_attention_heads", shape.heads, facts, check);
    return;
  }
  if (shape.kv_heads % tp == 0 || tp % shape.kv_heads == 0) return;
  check.error("groups-tensor", "parallel.tensor_parallel",
              named("num_query_groups", shape.kv_heads) + " must be a multiple or a divisor of " +
                  named("tensor_parallel", tp),
              "set tensor_parallel to " + divisors_near(shape.kv_heads, tp) +
                  ", or num_query_groups to " + legal_groups(shape.heads, tp));
}

void check_widths(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!clean_of_tensor(facts, check) ||
      !check.clean({"model.hidden_size", "model.family", "model.ffn_hidden_size"})) {
    return;
  }
  if (shape.ffn % facts.mesh.tp != 0) {
    refuse_tensor("ffn-tensor", "ffn_hidden_size", shape.ffn, facts, check);
  } else if (facts.compiled && shape.hidden % facts.mesh.tp != 0) {
    refuse_tensor("hidden-tensor", "hidden_size", shape.hidden, facts, check);
  }
}

void check_vocabulary(const Facts& facts, const ModelShape& shape, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  if (!clean_of_tensor(facts, check) || parallel.vocab_emb_dp.value_or(false) ||
      !check.clean(
          {"model.vocab_size", "model.make_vocab_size_divisible_by", "parallel.vocab_emb_dp"})) {
    return;
  }
  const std::int64_t tp = facts.mesh.tp;
  if (shape.padded_vocab % tp == 0) return;
  const std::int64_t pad = facts.config.model.make_vocab_size_divisible_by;
  check.error("vocab-tensor", "parallel.tensor_parallel",
              indivisible(named("vocab_size", shape.vocab) + ", padded to " +
                              std::to_string(shape.padded_vocab) + " (a multiple of " +
                              std::to_string(pad) + "),",
                          named("tensor_parallel", tp)),
              "set tensor_parallel to " + divisors_near(shape.padded_vocab, tp) +
                  ", model.make_vocab_size_divisible_by to " +
                  std::to_string(product_of({pad, tp})) + ", or vocab_emb_dp to true");
}

void check_sequence_parallel(const Facts& facts, Check& check) {
  const char* path = "parallel.sequence_parallel";
  if (!facts.parallel().sequence_parallel || !check.clean({path})) return;
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no tensor-parallel ranks");
  } else if (facts.mesh_is_clean(check) && facts.mesh.tp <= 1) {
    check.error("sequence-parallel-tensor", path,
                "sequence_parallel splits tokens among tensor-parallel ranks, but "
                "tensor_parallel is 1",
                "set tensor_parallel to 2 or more, or sequence_parallel to false");
  }
}

void check_sequence(const Facts& facts, Check& check) {
  if (!facts.mesh_is_clean(check) || !check.clean({"model.seq_length"})) return;
  const std::int64_t length = facts.config.model.seq_length;
  const Mesh& mesh = facts.mesh;
  if (mesh.cp > 1 && length % product_of({2, mesh.cp}) != 0) {
    const std::string halves =
        length % 2 == 0 ? "context_parallel to " + divisors_near(length / 2, mesh.cp) + ", or "
                        : "";
    check.error(
        "sequence-context", "parallel.context_parallel",
        indivisible(named("seq_length", length), "2 x " + named("context_parallel", mesh.cp) +
                                                     " = " + std::to_string(2 * mesh.cp)),
        "set " + halves + "seq_length to " + multiples_near(2 * mesh.cp, length));
    return;
  }
  const bool tokens = facts.parallel().sequence_parallel && mesh.tp > 1;
  if (!tokens || length % product_of({mesh.tp, mesh.cp}) == 0) return;
  const std::int64_t product = mesh.tp * mesh.cp;
  check.error(
      "sequence-tensor", "parallel.sequence_parallel",
      indivisible(named("seq_length", length), named("tensor_parallel", mesh.tp) + " x " +
                                                   named("context_parallel", mesh.cp) + " = " +
                                                   std::to_string(product)),
      "set seq_length to " + multiples_near(product, length) + ", or sequence_parallel to false");
}

/// The number of ranks that exchange heads in attention; 1 if heads are not exchanged.
std::int64_t head_ranks(const Facts& facts) {
  const ParallelConfig& parallel = facts.parallel();
  if (parallel.cp_comm_type == CpCommType::a2a) return facts.mesh.cp;
  if (parallel.cp_comm_type != CpCommType::a2a_p2p) return 1;
  const auto& sizes = parallel.hierarchical_context_parallel_sizes;
  return sizes && !sizes->empty() ? sizes->front() : 1;
}

void check_context_heads(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!facts.mesh_is_clean(check) || facts.mesh.cp == 1 ||
      !check.clean({"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes",
                    "model.num_attention_heads", "model.num_query_groups"})) {
    return;
  }
  const std::int64_t ranks = head_ranks(facts);
  if (ranks == 1) return;
  const std::int64_t split = product_of({facts.mesh.tp, ranks});
  const bool heads = shape.heads % split != 0;
  if (!heads && shape.kv_heads % split == 0) return;
  const std::string shown =
      heads ? named("num_attention_heads", shape.heads) : named("num_query_groups", shape.kv_heads);
  check.error(
      "context-heads", "parallel.cp_comm_type",
      std::string(word_of(facts.parallel().cp_comm_type)) +
          " exchanges heads between context-parallel ranks, so " +
          indivisible(shown, named("tensor_parallel", facts.mesh.tp) + " x " +
                                 std::to_string(ranks) + " ranks = " + std::to_string(split)),
      "set cp_comm_type to p2p or all_gather");
}

void check_hierarchy(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const char* path = "parallel.hierarchical_context_parallel_sizes";
  if (!check.clean({path, "parallel.cp_comm_type"}) || !facts.mesh_is_clean(check)) return;
  const bool two_levels = parallel.cp_comm_type == CpCommType::a2a_p2p && facts.mesh.cp > 1;
  const std::int64_t cp = facts.mesh.cp;
  if (!parallel.hierarchical_context_parallel_sizes) {
    if (!two_levels) return;
    const std::string help = cp % 2 == 0
                                 ? "set hierarchical_context_parallel_sizes to [2, " +
                                       std::to_string(cp / 2) + "], or cp_comm_type to p2p or a2a"
                                 : "set cp_comm_type to p2p or a2a";
    check.error("hierarchical-missing", "parallel.cp_comm_type",
                "a2a+p2p needs hierarchical_context_parallel_sizes, two factors of " +
                    named("context_parallel", cp),
                help);
    return;
  }
  if (!facts.splits) {
    check.no_effect(path, true, "this parallel_mode has no context-parallel ranks");
    return;
  }
  std::int64_t product = 1;
  std::string shown;
  for (const std::int64_t size : *parallel.hierarchical_context_parallel_sizes) {
    product = product_of({product, std::max<std::int64_t>(1, size)});
    shown += (shown.empty() ? "" : " x ") + std::to_string(size);
  }
  if (product != cp) {
    check.error(
        "hierarchical-product", path,
        shown + " = " + std::to_string(product) + " must equal " + named("context_parallel", cp),
        (cp % 2 == 0 ? "set the sizes to [2, " + std::to_string(cp / 2) + "], or " : "set ") +
            std::string("context_parallel to ") + std::to_string(product));
  } else if (!two_levels) {
    check.no_effect(
        path, true,
        "cp_comm_type " + std::string(word_of(parallel.cp_comm_type)) + " has one level");
  }
}

}  // namespace

void check_splits(const Facts& facts, Check& check) {
  const ModelShape& shape = facts.model;
  check_sequence_parallel(facts, check);
  check_heads(facts, shape, check);
  check_widths(facts, shape, check);
  check_vocabulary(facts, shape, check);
  check_sequence(facts, check);
  check_hierarchy(facts, check);
  check_context_heads(facts, shape, check);
  if (facts.mesh_is_clean(check) && facts.splits && facts.mesh.cp == 1) {
    check.no_effect("parallel.cp_comm_type", facts.parallel().cp_comm_type != CpCommType::p2p,
                    "context_parallel is 1");
  }
}

}  // namespace trainctl
