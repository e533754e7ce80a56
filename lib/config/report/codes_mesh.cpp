// The codes about ranks over axes, what the axes divide, and experts.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote notes[] = {
    {"world-size", "The sizes do not multiply to the number of ranks",
     "tensor_parallel x pipeline_stages x context_parallel x data_parallel is the number of ranks "
     "(Megatron: initialize_model_parallel; MindFormers: check_rules). data_parallel may be left "
     "out: it is what the others leave, if that is whole. A smaller product, which MindSpore 2022 "
     "took as repeated work, is refused.",
     "8 ranks: parallel: {tensor_parallel: 2, pipeline_stages: 2, data_parallel: 3}",
     "8 ranks: parallel: {tensor_parallel: 2, pipeline_stages: 2, data_parallel: 2}"},
    {"device-num", "device_num is not the number of ranks",
     "device_num (MindSpore) is checked against the ranks that are started or planned for. It may "
     "be left out. There is no limit of 4096 as in MindSpore.",
     "4 ranks: parallel: {device_num: 8}", "8 ranks: parallel: {device_num: 8}"},
    {"global-rank", "global_rank is none of the ranks",
     "Ranks are numbered from 0 to the number of ranks - 1 (MindSpore: 0 <= global_rank < "
     "device_num). The launcher numbers them; the key only chooses the rank that plan shows.",
     "4 ranks: parallel: {global_rank: 4}", "4 ranks: parallel: {global_rank: 3}"},
    {"stand-alone", "parallel_mode stand_alone with several ranks",
     "stand_alone is one rank (MindSpore). With more, each would train a model of its own.",
     "2 ranks: parallel: {parallel_mode: stand_alone}",
     "2 ranks: parallel: {parallel_mode: data_parallel}"},
    {"expert-world-size", "The experts' sizes do not divide the ranks",
     "For experts the same ranks are cut as expert tensor x expert x expert data x pipeline, so "
     "expert_tensor_parallel x expert_parallel x pipeline_stages divides the number of ranks "
     "(Megatron). With expert_tensor_parallel = tensor_parallel this is MindSpore's rule that "
     "expert_parallel divides data_parallel x context_parallel.",
     "8 ranks: parallel: {expert_parallel: 3}, moe: {num_experts: 6}",
     "8 ranks: parallel: {expert_parallel: 2}, moe: {num_experts: 6}"},
    {"rank-order", "rank_order has an unknown or a repeated word",
     "rank_order lists the axes tp, cp, ep, dp and pp from the smallest stride to the largest, "
     "joined by dashes, in either case (Megatron: order).",
     "parallel: {rank_order: tp-xp-dp-pp}", "parallel: {rank_order: tp-cp-ep-dp-pp}"},
    {"rank-order-missing", "rank_order leaves out an axis that has several ranks",
     "An axis may be left out of rank_order where it has one rank, for dense layers and for "
     "experts (Megatron: RankGenerator).",
     "parallel: {tensor_parallel: 2, rank_order: dp-pp}",
     "parallel: {tensor_parallel: 2, rank_order: tp-dp-pp}"},
    {"rank-order-pipeline", "Dense layers and experts would have different pipelines",
     "A rank is in one pipeline, for dense layers and for experts. So the order ends in pp, or "
     "expert data parallelism equals data parallelism, and pipeline neighbours are equally far "
     "apart in both (Megatron: initialize_model_parallel).",
     "16 ranks: parallel: {context_parallel: 2, pipeline_stages: 2, rank_order: tp-cp-ep-pp-dp}",
     "16 ranks: parallel: {context_parallel: 2, pipeline_stages: 2, rank_order: tp-cp-ep-dp-pp}"},
    {"heads-tensor", "Attention heads do not divide over the tensor-parallel ranks",
     "Each tensor-parallel rank computes num_attention_heads / tensor_parallel heads (Megatron, "
     "MindFormers).",
     "model: {num_attention_heads: 4}, parallel: {tensor_parallel: 8}",
     "model: {num_attention_heads: 8}, parallel: {tensor_parallel: 8}"},
    {"groups-tensor", "Key and value heads do not divide over the tensor-parallel ranks",
     "num_query_groups is split over the ranks, or each group is held by several: one of the two "
     "numbers divides the other. Megatron refuses fewer groups than ranks; here they are copied.",
     "model: {num_query_groups: 3}, parallel: {tensor_parallel: 2}",
     "model: {num_query_groups: 2}, parallel: {tensor_parallel: 4}"},
    {"ffn-tensor", "The MLP's width does not divide over the tensor-parallel ranks",
     "The MLP's products are split by columns and rows: ffn_hidden_size / tensor_parallel is whole "
     "(Megatron: divide; MindFormers: ffn_hidden_size % model_parallel).",
     "model: {ffn_hidden_size: 510}, parallel: {tensor_parallel: 4}",
     "model: {ffn_hidden_size: 512}, parallel: {tensor_parallel: 4}"},
    {"hidden-tensor", "hidden_size does not divide over the tensor-parallel ranks",
     "A rule of MindFormers, so of semi_auto_parallel and auto_parallel only. It can be broken "
     "only where kv_channels gives the head size; otherwise heads-tensor implies it.",
     "model: {hidden_size: 129, kv_channels: 32}, parallel: {tensor_parallel: 2}",
     "model: {hidden_size: 128, kv_channels: 32}, parallel: {tensor_parallel: 2}"},
    {"vocab-tensor", "The vocabulary does not divide over the tensor-parallel ranks",
     "Without vocab_emb_dp the embedding's rows are split (MindFormers, Megatron). What counts is "
     "vocab_size padded to a multiple of model.make_vocab_size_divisible_by; the padding does not "
     "depend on tensor_parallel.",
     "model: {make_vocab_size_divisible_by: 1, vocab_size: 255}, parallel: {tensor_parallel: 2}",
     "model: {vocab_size: 255}, parallel: {tensor_parallel: 2}"},
    {"sequence-parallel-tensor", "sequence_parallel without tensor parallelism",
     "sequence_parallel splits tokens over the tensor-parallel ranks, so there must be some "
     "(Megatron: ModelParallelConfig; its command line switches it off instead).",
     "parallel: {sequence_parallel: true}",
     "parallel: {sequence_parallel: true, tensor_parallel: 2}"},
    {"sequence-tensor", "The sequence does not divide over tensor x context ranks",
     "With sequence_parallel each rank holds seq_length / (tensor_parallel x context_parallel) "
     "tokens (Megatron).",
     "model: {seq_length: 66}, parallel: {sequence_parallel: true, tensor_parallel: 4}",
     "model: {seq_length: 64}, parallel: {sequence_parallel: true, tensor_parallel: 4}"},
    {"sequence-context", "The sequence does not divide into context-parallel chunks",
     "Each sequence is cut into 2 x context_parallel equal chunks, so that causal attention is "
     "shared evenly (Megatron: validate_args).",
     "model: {seq_length: 64}, parallel: {context_parallel: 3}",
     "model: {seq_length: 64}, parallel: {context_parallel: 4}"},
    {"context-heads", "Heads do not divide over the ranks that exchange them",
     "cp_comm_type a2a gives each context-parallel rank some of the heads for the whole sequence, "
     "so heads and query groups divide by tensor_parallel x context_parallel; with a2a+p2p the "
     "first of hierarchical_context_parallel_sizes counts (Transformer Engine, Ulysses).",
     "model: {num_attention_heads: 4}, parallel: {context_parallel: 8, cp_comm_type: a2a}",
     "model: {num_attention_heads: 8}, parallel: {context_parallel: 8, cp_comm_type: a2a}"},
    {"hierarchical-missing", "cp_comm_type a2a+p2p without its levels",
     "a2a+p2p exchanges heads within small groups and passes keys and values between them; "
     "hierarchical_context_parallel_sizes says how large they are (Megatron: validate_args).",
     "parallel: {context_parallel: 4, cp_comm_type: a2a+p2p}",
     "parallel: {context_parallel: 4, cp_comm_type: a2a+p2p, "
     "hierarchical_context_parallel_sizes: [2, 2]}"},
    {"hierarchical-product", "The levels do not multiply to context_parallel",
     "hierarchical_context_parallel_sizes are the levels of one context-parallel group (Megatron).",
     "parallel: {context_parallel: 4, hierarchical_context_parallel_sizes: [2, 4]}",
     "parallel: {context_parallel: 4, hierarchical_context_parallel_sizes: [2, 2]}"},
    {"experts-needed", "expert_parallel without experts",
     "expert_parallel divides the experts over ranks, so moe.num_experts is above 1 (Megatron: "
     "TransformerConfig).",
     "parallel: {expert_parallel: 2}", "parallel: {expert_parallel: 2}, moe: {num_experts: 4}"},
    {"experts-divide", "The experts do not divide over the expert-parallel ranks",
     "Each rank owns num_experts / expert_parallel experts (Megatron, MindFormers).",
     "parallel: {expert_parallel: 4}, moe: {num_experts: 6}",
     "parallel: {expert_parallel: 2}, moe: {num_experts: 6}"},
    {"expert-fp16", "Expert parallelism in fp16",
     "Megatron refuses fp16 with expert_parallel above 1: the gradients of rarely chosen experts "
     "underflow.",
     "precision: {compute: fp16}, parallel: {expert_parallel: 2}, moe: {num_experts: 2}",
     "precision: {compute: bf16}, parallel: {expert_parallel: 2}, moe: {num_experts: 2}"},
    {"expert-bias", "Experts with biases cannot be split by tensor parallelism",
     "With add_bias_linear an expert is held whole: expert_tensor_parallel is 1 (Megatron: "
     "TransformerConfig).",
     "model: {add_bias_linear: true}, parallel: {tensor_parallel: 2}, moe: {num_experts: 2}",
     "model: {add_bias_linear: false}, parallel: {tensor_parallel: 2}, moe: {num_experts: 2}"},
    {"expert-ffn-divide", "An expert's width does not divide over its tensor-parallel ranks",
     "moe.ffn_hidden_size (default: the model's) / expert_tensor_parallel is whole.",
     "parallel: {expert_tensor_parallel: 4}, moe: {num_experts: 4, ffn_hidden_size: 510}",
     "parallel: {expert_tensor_parallel: 4}, moe: {num_experts: 4, ffn_hidden_size: 512}"},
    {"router-topk", "More experts are chosen than there are",
     "router_topk (MindFormers: num_experts_chosen) is at most num_experts.",
     "moe: {num_experts: 2, router_topk: 3}", "moe: {num_experts: 4, router_topk: 3}"},
    {"expert-group-size", "auto_parallel needs the number of tokens in a group",
     "With experts, auto_parallel and a search_mode other than sharding_propagation, "
     "expert_group_size is the number of tokens in each data-parallel group (MindFormers: "
     "MoEConfig).",
     "parallel: {parallel_mode: auto_parallel}, moe: {num_experts: 4}",
     "parallel: {parallel_mode: auto_parallel}, moe: {num_experts: 4, expert_group_size: 64}"},
    {"moe-sequence-parallel", "Experts and tensor parallelism without sequence_parallel",
     "Without sequence_parallel all tensor-parallel ranks hold and route the same tokens. Megatron "
     "warns here (its release 0.15 fails on a missing import) and refuses to train; MindFormers "
     "refuses.",
     "parallel: {tensor_parallel: 2, expert_parallel: 2}, moe: {num_experts: 2}",
     "parallel: {tensor_parallel: 2, expert_parallel: 2, sequence_parallel: true}, "
     "moe: {num_experts: 2}"},
};

}  // namespace

std::span<const CodeNote> codes_of_mesh() { return notes; }

}  // namespace trainctl
