// Sizes that the parallel degrees divide: heads, widths, vocabulary and sequence.
#include <algorithm>

#include "base/text.h"
#include "config/schema/list_values.h"
#include "config/schema/words.h"
#include "plan/model/form.h"
#include "plan/rules/check.h"
#include "plan/tables/layout.h"

namespace trainctl {

namespace {

bool clean_of_tensor(const Facts& facts, Check& check) {
  return facts.mesh_is_clean(check) && facts.mesh.tp > 1;
}

void refuse_tensor(const char* code, const std::string& key, std::int64_t count, const Facts& facts,
                   Check& check) {
  check.error(
      code, "parallel.tensor_parallel",
      indivisible(named(key, count), named("tensor_parallel", facts.mesh.tp)),
      formatted("set tensor_parallel to {}, or {} to {}", divisors_near(count, facts.mesh.tp), key,
                multiples_near(facts.mesh.tp, count)));
}

/// The key with the kind of layers, if the config names kinds: "num_query_groups of layers local".
std::string of_kind(const std::string& key, const LayerKind& kind) {
  return kind.name.empty() ? key : formatted("{} of layers {}", key, kind.name);
}

/// Text with numbers of query groups that fit the heads and the tensor-parallel ranks.
std::string legal_groups(std::int64_t heads, std::int64_t ranks) {
  std::vector<std::string> legal;
  for (std::int64_t groups = 1; groups <= heads && legal.size() < 4; ++groups) {
    const bool fits = groups % ranks == 0 || ranks % groups == 0;
    if (heads % groups == 0 && fits) legal.push_back(formatted("{}", groups));
  }
  return alternatives(legal);
}

void check_heads(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!clean_of_tensor(facts, check) ||
      !check.clean({"model.num_attention_heads", "model.num_query_groups"})) {
    return;
  }
  const std::int64_t tp = facts.mesh.tp;
  if (!facts.operators.any_attention(SplitBy::features)) return;
  if (shape.heads % tp != 0) {
    return refuse_tensor("heads-tensor", "num_attention_heads", shape.heads, facts, check);
  }
  for (const LayerKind& kind : shape.kinds) {
    const std::int64_t groups = kind.kv_heads;
    if (groups % tp == 0 || tp % groups == 0) continue;
    return check.error(
        "groups-tensor", "parallel.tensor_parallel",
        formatted("{} must be a multiple or a divisor of {}",
                  named(of_kind("num_query_groups", kind), groups), named("tensor_parallel", tp)),
        formatted("set tensor_parallel to {}, or num_query_groups to {}", divisors_near(groups, tp),
                  legal_groups(shape.heads, tp)));
  }
}

/// The first kind of layers for which bad(kind) is true, or nullptr.
const LayerKind* first_kind(const ModelShape& shape, const auto& bad) {
  const auto found = std::ranges::find_if(shape.kinds, bad);
  return found == shape.kinds.end() ? nullptr : &*found;
}

/// The first kind of layers with query or key heads that `ranks` does not divide, or nullptr.
const LayerKind* indivisible_heads(const ModelShape& shape, std::int64_t ranks) {
  return first_kind(shape, [&](const LayerKind& kind) {
    return shape.heads % ranks != 0 || kind.kv_heads % ranks != 0;
  });
}

void check_widths(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!clean_of_tensor(facts, check) ||
      !check.clean({"model.hidden_size", "model.family", "model.ffn_hidden_size"})) {
    return;
  }
  const LayerKind* wrong =
      first_kind(shape, [&](const LayerKind& kind) { return kind.ffn % facts.mesh.tp != 0; });
  if (facts.operators.any_feed_forward(SplitBy::features) && wrong != nullptr) {
    refuse_tensor("ffn-tensor", of_kind("ffn_hidden_size", *wrong), wrong->ffn, facts, check);
  } else if (facts.compiled && shape.hidden % facts.mesh.tp != 0) {
    refuse_tensor("hidden-tensor", "hidden_size", shape.hidden, facts, check);
  }
}

void check_vocabulary(const Facts& facts, const ModelShape& shape, Check& check) {
  const OperatorSplits& splits = facts.operators;
  const bool cut = splits.embedding == SplitBy::features || splits.head == SplitBy::features;
  if (!cut || !clean_of_tensor(facts, check) ||
      !check.clean(
          {"model.vocab_size", "model.make_vocab_size_divisible_by", "parallel.vocab_emb_dp"})) {
    return;
  }
  const std::int64_t tp = facts.mesh.tp;
  if (shape.padded_vocab % tp == 0) return;
  const std::int64_t pad = facts.config.model.make_vocab_size_divisible_by;
  check.error("vocab-tensor", "parallel.tensor_parallel",
              indivisible(formatted("{}, padded to {} (a multiple of {}),",
                                    named("vocab_size", shape.vocab), shape.padded_vocab, pad),
                          named("tensor_parallel", tp)),
              formatted("set tensor_parallel to {}, model.make_vocab_size_divisible_by to {}, or "
                        "vocab_emb_dp to true",
                        divisors_near(shape.padded_vocab, tp), product_of({pad, tp})));
}

void check_sequence_parallel(const Facts& facts, Check& check) {
  const char* path = "parallel.sequence_parallel";
  if (!facts.parallel().sequence_parallel || !check.clean({path})) return;
  if (facts.unsplit) {
    check.no_effect(path, true, "this parallel_mode has no tensor-parallel ranks");
  } else if (facts.mesh_is_clean(check) && facts.mesh.tp <= 1) {
    check.no_effect(path, true,
                    "it splits tokens among tensor-parallel ranks, and tensor_parallel is 1");
  }
}

constexpr const char* attention_key = "parallel.operator_splits.attention";
constexpr const char* mlp_key = "parallel.operator_splits.feed_forward";
constexpr const char* embedding_key = "parallel.operator_splits.embedding";
constexpr const char* head_key = "parallel.operator_splits.head";

/// Checks the lists of splits by layer.
void check_layer_splits(const Facts& facts, Check& check) {
  const OperatorSplitsConfig& said = facts.parallel().operator_splits;
  const std::int64_t layers = facts.config.model.num_layers;
  const auto read = [&](const char* path, const std::optional<std::string>& text) {
    if (!text || !check.clean({path, "model.num_layers"})) return;
    const ParsedList<SplitBy> splits = parse_layer_splits(*text, layers);
    if (splits.error.empty()) return;
    check.error("operator-splits", path,
                formatted("{}; it needs one for all layers or for each of {}", splits.error,
                          named("model.num_layers", layers)),
                "a split is features, tokens or whole; *n repeats it: features*2, tokens*2");
  };
  read(attention_key, said.attention);
  read(mlp_key, said.feed_forward);
}

/// Checks the embedding and the head for consistency with vocab_emb_dp, and with each other if they
/// are one table.
void check_vocabulary_splits(const Facts& facts, Check& check) {
  const OperatorSplitsConfig& said = facts.parallel().operator_splits;
  const OperatorSplits& splits = facts.operators;
  const auto& whole = facts.parallel().vocab_emb_dp;
  const auto agree = [&](const char* path, const std::optional<SplitBy>& given, SplitBy split) {
    if (!given || !whole || *whole == (split != SplitBy::features)) return;
    check.error("operator-splits-table", path,
                formatted("it is {}, but vocab_emb_dp{} is {}", word_of(split),
                          check.place_of("parallel.vocab_emb_dp"),
                          *whole ? "true: the table is whole on every rank"
                                 : "false: ranks have parts of the table"),
                "leave vocab_emb_dp out");
  };
  agree(embedding_key, said.embedding, splits.embedding);
  agree(head_key, said.head, splits.head);
  if (!facts.model.tied || splits.embedding == splits.head) return;
  const bool by_head = said.head.has_value();
  const char* path = by_head ? head_key : embedding_key;
  if (!check.clean({embedding_key, head_key})) return;
  const std::string embedding(word_of(splits.embedding));
  const std::string head(word_of(splits.head));
  check.error("operator-splits-table", path,
              formatted("the embedding{} has the split {} and the head{} the split {}, but with "
                        "tie_word_embeddings both read embedding.token.weight",
                        check.place_of(embedding_key), embedding, check.place_of(head_key), head),
              "give both the same split, or set model.tie_word_embeddings to false");
}

/// Whether some layer exchanges tokens for heads over context-parallel ranks.
bool exchanges_heads(const Facts& facts) {
  const ContextSplits splits = split_context(facts.parallel(), facts.mesh.cp, facts.model.layers);
  for (std::int64_t layer = 0; layer < facts.model.layers; ++layer) {
    const int unit = static_cast<int>(layer) + 1;
    const bool by_tokens = facts.operators.of_unit(unit).attention == SplitBy::tokens;
    if (by_tokens && splits.of_unit(unit).heads > 1) return true;
  }
  return false;
}

/// Checks attention that is split by tokens, which exchanges tokens for heads.
void check_attention_split(const Facts& facts, Check& check) {
  const OperatorSplits& splits = facts.operators;
  const bool by_tokens = splits.any_attention(SplitBy::tokens);
  if (!by_tokens && !splits.any_attention(SplitBy::whole)) return;
  const std::int64_t tp = facts.mesh.tp;
  const ModelShape& shape = facts.model;
  if (by_tokens && facts.mesh.cp > 1 && exchanges_heads(facts)) {
    return check.error(
        "operator-splits-context", attention_key,
        formatted("split by tokens, tensor-parallel ranks exchange tokens for heads, and with {}{} "
                  "and cp_comm_type a2a context-parallel ranks would exchange them once more",
                  named("context_parallel", facts.mesh.cp),
                  check.place_of("parallel.context_parallel")),
        "set cp_comm_type to p2p or all_gather in layers by tokens, or "
        "operator_splits.attention to features or whole");
  }
  const LayerKind* wrong = by_tokens ? indivisible_heads(shape, tp) : nullptr;
  if (wrong == nullptr) return;
  const bool heads = shape.heads % tp != 0;
  check.error("operator-splits-heads", attention_key,
              "split by tokens, the ranks exchange q, k and v for all tokens of a part of the "
              "heads, so " +
                  indivisible(heads ? named("num_attention_heads", shape.heads)
                                    : named(of_kind("num_query_groups", *wrong), wrong->kv_heads),
                              named("tensor_parallel", tp)),
              formatted("set operator_splits.attention to whole{}, or tensor_parallel to {}",
                        heads ? "" : " or features",
                        divisors_near(heads ? shape.heads : wrong->kv_heads, tp)));
}

/// With sequence parallelism, other rules check that tp divides the tokens of a micro-batch.
void check_token_share(const Facts& facts, Check& check) {
  if (facts.parallel().sequence_parallel) return;
  const std::int64_t tokens =
      facts.batch.micro_batch_size * facts.config.model.seq_length / facts.mesh.cp;
  if (!facts.operators.any(SplitBy::tokens) || tokens % facts.mesh.tp == 0) return;
  check.error(
      "operator-splits-tokens", "parallel.operator_splits",
      indivisible(formatted("a micro-batch has {} on a rank, which", counted(tokens, "token")),
                  named("tensor_parallel", facts.mesh.tp) + " to be split by tokens"),
      formatted("set seq_length to {}, or use features or whole",
                multiples_near(facts.mesh.tp * facts.mesh.cp, facts.config.model.seq_length)));
}

void check_operator_splits(const Facts& facts, Check& check) {
  const OperatorSplitsConfig& said = facts.parallel().operator_splits;
  const char* path = "parallel.operator_splits";
  const bool given = said != OperatorSplitsConfig{};
  if (!facts.mesh_is_clean(check) || !check.clean({path})) return;
  if (facts.mode != ParallelMode::semi_auto_parallel || facts.mesh.tp == 1) {
    return check.no_effect(path, given,
                           facts.mesh.tp == 1
                               ? "tensor_parallel is 1, so no operator is split"
                               : formatted("with parallel_mode {} every operator is split by "
                                           "features; semi_auto_parallel reads it",
                                           word_of(facts.mode)));
  }
  check_layer_splits(facts, check);
  check_vocabulary_splits(facts, check);
  if (!check.clean({"model", "train", attention_key, mlp_key})) return;
  check_attention_split(facts, check);
  check_token_share(facts, check);
  check.no_effect(mlp_key, said.feed_forward && first_block_with(facts.model, false) == 0,
                  "every layer has experts, whose split is expert_tensor_parallel");
}

void check_sequence(const Facts& facts, Check& check) {
  if (!facts.mesh_is_clean(check) || !check.clean({"model.seq_length"})) return;
  const std::int64_t length = facts.config.model.seq_length;
  const Mesh& mesh = facts.mesh;
  if (mesh.cp > 1 && length % product_of({2, mesh.cp}) != 0) {
    const std::string halves = length % 2 == 0 ? formatted("context_parallel to {}, or ",
                                                           divisors_near(length / 2, mesh.cp))
                                               : "";
    return check.error(
        "sequence-context", "parallel.context_parallel",
        indivisible(named("seq_length", length),
                    formatted("2 x {} = {}", named("context_parallel", mesh.cp), 2 * mesh.cp)),
        formatted("set {}seq_length to {}", halves, multiples_near(2 * mesh.cp, length)));
  }
  const bool tokens = facts.parallel().sequence_parallel && mesh.tp > 1;
  if (!tokens || length % product_of({mesh.tp, mesh.cp}) == 0) return;
  const std::int64_t product = mesh.tp * mesh.cp;
  check.error("sequence-tensor", "parallel.sequence_parallel",
              indivisible(named("seq_length", length),
                          formatted("{} x {} = {}", named("tensor_parallel", mesh.tp),
                                    named("context_parallel", mesh.cp), product)),
              formatted("set seq_length to {}, or sequence_parallel to false",
                        multiples_near(product, length)));
}

/// cp_comm_type needs one word for all layers or one for each.
void check_context_layers(const Facts& facts, Check& check) {
  const CpCommTypes& types = facts.parallel().cp_comm_type;
  const std::int64_t count = std::ssize(types.layers);
  const std::int64_t layers = facts.model.layers;
  const char* path = "parallel.cp_comm_type";
  if (count == 1 || count == layers || !check.clean({path, "model.num_layers"})) return;
  check.error(
      "context-layers", path,
      formatted("the list has words for {} layers, but {}", count, named("num_layers", layers)),
      formatted("give one word for all layers, or {}; a2a*3 stands for three", layers));
}

void check_context_heads(const Facts& facts, const ModelShape& shape, Check& check) {
  if (!facts.mesh_is_clean(check) || facts.mesh.cp == 1 ||
      !check.clean({"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes",
                    "model.num_attention_heads", "model.num_query_groups"})) {
    return;
  }
  const ContextSplits context = split_context(facts.parallel(), facts.mesh.cp, facts.model.layers);
  const std::int64_t ranks = context.most(&ContextSplit::heads);
  if (ranks == 1) return;
  const bool whole = facts.parallel().cp_comm_type.has(CpCommType::a2a);
  const std::int64_t split = product_of({facts.mesh.tp, ranks});
  const LayerKind* wrong = indivisible_heads(shape, split);
  if (wrong == nullptr) return;
  const std::string shown = shape.heads % split != 0
                                ? named("num_attention_heads", shape.heads)
                                : named(of_kind("num_query_groups", *wrong), wrong->kv_heads);
  check.error("context-heads", "parallel.cp_comm_type",
              formatted("{} exchanges heads between context-parallel ranks, so {}",
                        word_of(whole ? CpCommType::a2a : CpCommType::a2a_p2p),
                        indivisible(shown, formatted("{} x {} ranks = {}",
                                                     named("tensor_parallel", facts.mesh.tp), ranks,
                                                     split))),
              "set cp_comm_type to p2p or all_gather");
}

void check_hierarchy(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const char* path = "parallel.hierarchical_context_parallel_sizes";
  if (!check.clean({path, "parallel.cp_comm_type"}) || !facts.mesh_is_clean(check)) return;
  const bool two_levels = parallel.cp_comm_type.has(CpCommType::a2a_p2p) && facts.mesh.cp > 1;
  const std::int64_t cp = facts.mesh.cp;
  if (!parallel.hierarchical_context_parallel_sizes) {
    if (!two_levels) return;
    const std::string help = cp % 2 == 0 ? formatted(
                                               "set hierarchical_context_parallel_sizes to [2, "
                                               "{}], or cp_comm_type to p2p or a2a",
                                               cp / 2)
                                         : "set cp_comm_type to p2p or a2a";
    return check.error("hierarchical-missing", "parallel.cp_comm_type",
                       "a2a+p2p needs hierarchical_context_parallel_sizes, two factors of " +
                           named("context_parallel", cp),
                       help);
  }
  if (!facts.splits) {
    return check.no_effect(path, true, "this parallel_mode has no context-parallel ranks");
  }
  std::int64_t product = 1;
  std::string shown;
  for (const std::int64_t size : *parallel.hierarchical_context_parallel_sizes) {
    product = product_of({product, std::max<std::int64_t>(1, size)});
    shown += formatted("{}{}", shown.empty() ? "" : " x ", size);
  }
  if (product != cp) {
    check.error("hierarchical-product", path,
                formatted("{} = {} must equal {}", shown, product, named("context_parallel", cp)),
                formatted("{}context_parallel to {}",
                          cp % 2 == 0 ? formatted("set the sizes to [2, {}], or ", cp / 2) : "set ",
                          product));
  } else if (!two_levels) {
    check.no_effect(path, true,
                    formatted("cp_comm_type {} has one level", write_value(parallel.cp_comm_type)));
  }
}

}  // namespace

void check_splits(const Facts& facts, Check& check) {
  const ModelShape& shape = facts.model;
  check_sequence_parallel(facts, check);
  check_heads(facts, shape, check);
  check_widths(facts, shape, check);
  check_vocabulary(facts, shape, check);
  check_operator_splits(facts, check);
  check_sequence(facts, check);
  check_context_layers(facts, check);
  check_hierarchy(facts, check);
  check_context_heads(facts, shape, check);
  if (facts.mesh_is_clean(check) && facts.splits && facts.mesh.cp == 1) {
    check.no_effect("parallel.cp_comm_type", facts.parallel().cp_comm_type != CpCommTypes{},
                    "context_parallel is 1");
  }
}

}  // namespace trainctl
