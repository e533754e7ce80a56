// The codes about parallel degrees, what they divide, and experts.
#include "config/report/codes.h"

namespace trainctl {

namespace {

constexpr CodeNote mesh_notes[] = {
    {"world-size", "The parallel degrees do not multiply to the world size",
     "tensor_parallel x pipeline_stages x context_parallel x data_parallel must equal the number "
     "of "
     "ranks (Megatron: initialize_model_parallel; MindFormers: check_rules). If data_parallel is "
     "left out, it is the number of ranks divided by the other three. A smaller product, which "
     "MindSpore 2022 treated as repeated work, is refused.",
     "8 ranks: parallel: {tensor_parallel: 2, pipeline_stages: 2, data_parallel: 3}",
     "8 ranks: parallel: {tensor_parallel: 2, pipeline_stages: 2, data_parallel: 2}"},
    {"device-num", "device_num differs from the number of ranks",
     "device_num (MindSpore) must equal the number of ranks that are started or planned for. It "
     "may "
     "be left out. MindSpore's limit of 4096 does not apply.",
     "4 ranks: parallel: {device_num: 8}", "8 ranks: parallel: {device_num: 8}"},
    {"global-rank", "global_rank is outside the range of ranks",
     "Ranks are numbered from 0 to the number of ranks - 1 (MindSpore: 0 <= global_rank < "
     "device_num). The launcher numbers them; the key only selects the rank that `plan` shows.",
     "4 ranks: parallel: {global_rank: 4}", "4 ranks: parallel: {global_rank: 3}"},
    {"stand-alone", "parallel_mode stand_alone with several ranks",
     "stand_alone means one rank (MindSpore). With several, each would train its own model.",
     "2 ranks: parallel: {parallel_mode: stand_alone}",
     "2 ranks: parallel: {parallel_mode: data_parallel}"},
    {"expert-world-size", "The parallel degrees for experts do not divide the world size",
     "For experts, the number of ranks is expert_tensor_parallel x expert_parallel x expert data "
     "parallelism x pipeline_stages, so it must be divisible by expert_tensor_parallel x "
     "expert_parallel x pipeline_stages (Megatron). With expert_tensor_parallel = tensor_parallel "
     "this is MindSpore's rule that expert_parallel divides data_parallel x context_parallel.",
     "8 ranks: parallel: {expert_parallel: 3}, moe: {num_experts: 6}",
     "8 ranks: parallel: {expert_parallel: 2}, moe: {num_experts: 6}"},
    {"rank-order", "rank_order has an unknown or repeated axis",
     "rank_order lists the axes tp, cp, ep, dp and pp from the smallest stride to the largest, "
     "joined by dashes, in either case (Megatron: order).",
     "parallel: {rank_order: tp-xp-dp-pp}", "parallel: {rank_order: tp-cp-ep-dp-pp}"},
    {"rank-order-missing", "rank_order leaves out an axis that has several ranks",
     "rank_order may leave out an axis only if it has one rank, both for dense layers and for "
     "experts (Megatron: RankGenerator).",
     "parallel: {tensor_parallel: 2, rank_order: dp-pp}",
     "parallel: {tensor_parallel: 2, rank_order: tp-dp-pp}"},
    {"rank-order-pipeline", "Dense layers and experts would have different pipelines",
     "A rank belongs to one pipeline, for dense layers and for experts. Therefore the order must "
     "end "
     "in pp, or experts must have the same data-parallel size as dense layers and pipeline "
     "neighbours the same distance in both (Megatron: initialize_model_parallel).",
     "16 ranks: parallel: {context_parallel: 2, pipeline_stages: 2, rank_order: tp-cp-ep-pp-dp}",
     "16 ranks: parallel: {context_parallel: 2, pipeline_stages: 2, rank_order: tp-cp-ep-dp-pp}"},
    {"heads-tensor", "num_attention_heads is not divisible by tensor_parallel",
     "Each tensor-parallel rank computes num_attention_heads / tensor_parallel heads (Megatron, "
     "MindFormers).",
     "model: {num_attention_heads: 4}, parallel: {tensor_parallel: 8}",
     "model: {num_attention_heads: 8}, parallel: {tensor_parallel: 8}"},
    {"groups-tensor", "num_query_groups does not fit tensor_parallel",
     "Either the key and value heads are split among the ranks, or each is held by several ranks, "
     "so "
     "one of the two numbers must divide the other. Megatron refuses fewer groups than ranks; here "
     "the groups are copied.",
     "model: {num_query_groups: 3}, parallel: {tensor_parallel: 2}",
     "model: {num_query_groups: 2}, parallel: {tensor_parallel: 4}"},
    {"ffn-tensor", "ffn_hidden_size is not divisible by tensor_parallel",
     "The weights of the MLP are split by columns and by rows into ffn_hidden_size / "
     "tensor_parallel (Megatron: divide; MindFormers: ffn_hidden_size % model_parallel).",
     "model: {ffn_hidden_size: 510}, parallel: {tensor_parallel: 4}",
     "model: {ffn_hidden_size: 512}, parallel: {tensor_parallel: 4}"},
    {"hidden-tensor", "hidden_size is not divisible by tensor_parallel",
     "A rule of MindFormers; it applies to semi_auto_parallel and auto_parallel only. It can be "
     "broken only if kv_channels gives the head size; otherwise heads-tensor implies it.",
     "model: {hidden_size: 129, kv_channels: 32}, parallel: {tensor_parallel: 2}",
     "model: {hidden_size: 128, kv_channels: 32}, parallel: {tensor_parallel: 2}"},
    {"vocab-tensor", "The padded vocabulary is not divisible by tensor_parallel",
     "Without vocab_emb_dp the rows of the embedding are split (MindFormers, Megatron). The rule "
     "applies to vocab_size padded to a multiple of model.make_vocab_size_divisible_by; the "
     "padding "
     "does not depend on tensor_parallel.",
     "model: {make_vocab_size_divisible_by: 1, vocab_size: 255}, parallel: {tensor_parallel: 2}",
     "model: {vocab_size: 255}, parallel: {tensor_parallel: 2}"},
    {"operator-splits", "operator_splits cannot be read",
     "attention and feed_forward are one of features, tokens and whole, or a list with one for "
     "each "
     "layer, in which *n repeats a word.",
     "2 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, operator_splits: "
     "{attention: 'tokens*3'}}",
     "2 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, operator_splits: "
     "{attention: 'tokens*3, whole'}}"},
    {"operator-splits-table", "Two splits of one table",
     "vocab_emb_dp says whether each tensor-parallel rank holds the whole token table; with tied "
     "embeddings the head reads the same table. Gradients of a whole table are summed if the ranks "
     "split tokens and are not if every rank computes everything, so both operators must agree.",
     "2 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, operator_splits: "
     "{head: tokens}}",
     "2 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, operator_splits: "
     "{embedding: tokens, head: tokens}}"},
    {"operator-splits-heads", "Heads cannot be divided among the ranks that exchange them",
     "Attention that is split by tokens exchanges q, k and v, so that each rank has all tokens of "
     "a "
     "part of the heads: tensor_parallel must divide heads and query groups.",
     "2 ranks: model: {num_query_groups: 1}, parallel: {parallel_mode: semi_auto_parallel, "
     "tensor_parallel: 2, operator_splits: {attention: tokens}}",
     "2 ranks: model: {num_query_groups: 1}, parallel: {parallel_mode: semi_auto_parallel, "
     "tensor_parallel: 2, operator_splits: {attention: whole}}"},
    {"operator-splits-context", "Two exchanges of tokens for heads",
     "Tensor-parallel ranks by tokens exchange tokens for heads; a2a does the same over "
     "context-parallel ranks.",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, context_parallel: "
     "2, cp_comm_type: a2a, operator_splits: {attention: tokens}}",
     "4 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, context_parallel: "
     "2, cp_comm_type: p2p, operator_splits: {attention: tokens}}"},
    {"operator-splits-tokens", "Tokens cannot be divided among the tensor-parallel ranks",
     "An operator that is split by tokens gets as many tokens on each rank.",
     "3 ranks: model: {num_attention_heads: 4}, parallel: {parallel_mode: semi_auto_parallel, "
     "tensor_parallel: 3, operator_splits: {attention: whole, feed_forward: tokens, embedding: "
     "whole, head: whole}}, train: {micro_batch_size: 1}",
     "2 ranks: parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, operator_splits: "
     "{feed_forward: tokens}}, train: {micro_batch_size: 1}"},
    {"sequence-tensor", "seq_length is not divisible by tensor_parallel x context_parallel",
     "With sequence_parallel each rank holds seq_length / (tensor_parallel x context_parallel) "
     "tokens (Megatron).",
     "model: {seq_length: 66}, parallel: {sequence_parallel: true, tensor_parallel: 4}",
     "model: {seq_length: 64}, parallel: {sequence_parallel: true, tensor_parallel: 4}"},
    {"sequence-context", "seq_length is not divisible by 2 x context_parallel",
     "Each sequence is split into 2 x context_parallel equal parts and each rank gets two, so that "
     "the work of causal attention is balanced (Megatron: validate_args).",
     "model: {seq_length: 64}, parallel: {context_parallel: 3}",
     "model: {seq_length: 64}, parallel: {context_parallel: 4}"},
    {"context-heads", "Heads cannot be divided among the ranks that exchange them",
     "cp_comm_type a2a gives each context-parallel rank some of the heads for the whole sequence, "
     "so heads and query groups must be divisible by tensor_parallel x context_parallel; with "
     "a2a+p2p the first of hierarchical_context_parallel_sizes replaces context_parallel "
     "(Transformer Engine, Ulysses).",
     "model: {num_attention_heads: 4}, parallel: {context_parallel: 8, cp_comm_type: a2a}",
     "model: {num_attention_heads: 8}, parallel: {context_parallel: 8, cp_comm_type: a2a}"},
    {"context-layers", "cp_comm_type has words for another number of layers",
     "A list of cp_comm_type has one word for each of the model's layers (Megatron: "
     "cp_comm_type); a2a*3 stands for three layers.",
     "model: {num_layers: 4}, parallel: {context_parallel: 2, cp_comm_type: [p2p, a2a]}",
     "model: {num_layers: 4}, parallel: {context_parallel: 2, cp_comm_type: [p2p, a2a*3]}"},
    {"hierarchical-missing", "cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes",
     "a2a+p2p exchanges heads within small groups and passes keys and values between the groups; "
     "hierarchical_context_parallel_sizes gives their sizes (Megatron: validate_args).",
     "parallel: {context_parallel: 4, cp_comm_type: a2a+p2p}",
     "parallel: {context_parallel: 4, cp_comm_type: a2a+p2p, "
     "hierarchical_context_parallel_sizes: [2, 2]}"},
    {"hierarchical-product", "The product of the sizes differs from context_parallel",
     "hierarchical_context_parallel_sizes are the levels of one context-parallel group (Megatron).",
     "parallel: {context_parallel: 4, hierarchical_context_parallel_sizes: [2, 4]}",
     "parallel: {context_parallel: 4, hierarchical_context_parallel_sizes: [2, 2]}"},
    {"experts-needed", "expert_parallel without experts",
     "expert_parallel divides the experts among ranks, so moe.num_experts must be above 1 "
     "(Megatron: TransformerConfig).",
     "parallel: {expert_parallel: 2}", "parallel: {expert_parallel: 2}, moe: {num_experts: 4}"},
    {"experts-divide", "num_experts is not divisible by expert_parallel",
     "Each rank owns num_experts / expert_parallel experts (Megatron, MindFormers).",
     "parallel: {expert_parallel: 4}, moe: {num_experts: 6}",
     "parallel: {expert_parallel: 2}, moe: {num_experts: 6}"},
    {"expert-fp16", "Expert parallelism in fp16",
     "Megatron refuses fp16 with expert_parallel above 1: the gradients of rarely chosen experts "
     "underflow.",
     "precision: {compute: fp16}, parallel: {expert_parallel: 2}, moe: {num_experts: 2}",
     "precision: {compute: bf16}, parallel: {expert_parallel: 2}, moe: {num_experts: 2}"},
    {"expert-bias", "Shared experts beside linear layers with biases",
     "With add_bias_linear routed experts have biases, but shared experts have none (Megatron: "
     "SharedExpertMLP), so the two exclude each other.",
     "model: {add_bias_linear: true}, moe: {num_experts: 2, shared_expert_intermediate_size: 64}",
     "model: {add_bias_linear: false}, moe: {num_experts: 2, shared_expert_intermediate_size: "
     "64}"},
    {"expert-ffn-divide", "The width of an expert is not divisible by expert_tensor_parallel",
     "moe.ffn_hidden_size (default: model.ffn_hidden_size) must be divisible by "
     "expert_tensor_parallel.",
     "parallel: {expert_tensor_parallel: 4}, moe: {num_experts: 4, ffn_hidden_size: 510}",
     "parallel: {expert_tensor_parallel: 4}, moe: {num_experts: 4, ffn_hidden_size: 512}"},
    {"router-topk", "router_topk is larger than num_experts",
     "router_topk (MindFormers: num_experts_chosen) must be at most num_experts.",
     "moe: {num_experts: 2, router_topk: 3}", "moe: {num_experts: 4, router_topk: 3}"},
    {"expert-group-size", "auto_parallel needs expert_group_size",
     "With experts, auto_parallel and a search_mode other than sharding_propagation, "
     "expert_group_size is the number of tokens in each data-parallel group (MindFormers: "
     "MoEConfig).",
     "parallel: {parallel_mode: auto_parallel}, moe: {num_experts: 4}",
     "parallel: {parallel_mode: auto_parallel}, moe: {num_experts: 4, expert_group_size: 64}"},
    {"expert-group-divide", "Routing groups do not divide a micro-batch",
     "Capacity and balance are counted over routing groups of expert_group_size neighbouring "
     "tokens. A rank must hold whole groups: the size must divide micro_batch_size x seq_length / "
     "context_parallel.",
     "model: {seq_length: 64}, moe: {num_experts: 4, expert_group_size: 48}",
     "model: {seq_length: 64}, moe: {num_experts: 4, expert_group_size: 32}"},
    {"router-rounds", "A choice in rounds with other parts",
     "What MindFormers' TopkRouter does belongs together: router_choice rounds, "
     "router_load_balancing_type round_aux_loss and overflow position, with softmax and without "
     "groups of experts.",
     "moe: {num_experts: 4, router_topk: 2, router_choice: rounds}",
     "moe: {num_experts: 4, router_topk: 2, router_choice: rounds, router_load_balancing_type: "
     "round_aux_loss}"},
    {"router-softmax", "A router that cannot learn",
     "With router_topk 1 the weight of the chosen expert is always 1 if it is divided by the sum "
     "of "
     "the choices, so the router gets no gradient from the main loss. Its own losses may still "
     "move it (a warning); without them it is an error, where something is trained.",
     "moe: {num_experts: 4, router_pre_softmax: false, router_load_balancing_type: none}",
     "moe: {num_experts: 4, router_pre_softmax: true, router_load_balancing_type: none}"},
    {"router-sigmoid", "A router's bias without sigmoid scores",
     "The bias of an expert is added to a score that each expert has by itself (DeepSeek-V3; "
     "Megatron: moe_router_enable_expert_bias).",
     "moe: {num_experts: 4, router_topk: 2, router_enable_expert_bias: true}",
     "moe: {num_experts: 4, router_topk: 2, router_enable_expert_bias: true, "
     "router_score_function: sigmoid}"},
    {"router-groups", "Groups of experts that do not fit",
     "router_num_groups divides num_experts, router_group_topk divides router_topk and is at most "
     "router_num_groups, and the chosen groups have at least router_topk experts.",
     "moe: {num_experts: 8, router_topk: 3, router_score_function: sigmoid, router_num_groups: 4, "
     "router_group_topk: 2}",
     "moe: {num_experts: 8, router_topk: 4, router_score_function: sigmoid, router_num_groups: 4, "
     "router_group_topk: 2}"},
    {"shared-expert-divide", "The width of the shared experts is not divisible by tensor_parallel",
     "Tensor parallelism cuts the width of the shared experts into equal parts.",
     "parallel: {tensor_parallel: 2}, moe: {num_experts: 4, shared_expert_intermediate_size: 33}",
     "parallel: {tensor_parallel: 2}, moe: {num_experts: 4, shared_expert_intermediate_size: 32}"},
    {"expert-layers", "No layer has experts",
     "Layer i (counted from 0) has experts if i is at least first_dense_layers and layer_frequency "
     "divides it.",
     "model: {num_layers: 4}, moe: {num_experts: 4, first_dense_layers: 4}",
     "model: {num_layers: 4}, moe: {num_experts: 4, first_dense_layers: 1}"},
    {"moe-sequence-parallel", "Experts and tensor parallelism without sequence_parallel",
     "Without sequence_parallel all tensor-parallel ranks hold and route the same tokens. Megatron "
     "warns here (its release 0.15 fails on a missing import) and refuses to train; MindFormers "
     "refuses.",
     "parallel: {tensor_parallel: 2, expert_parallel: 2}, moe: {num_experts: 2}",
     "parallel: {tensor_parallel: 2, expert_parallel: 2, sequence_parallel: true}, "
     "moe: {num_experts: 2}"},
};

}  // namespace

std::span<const CodeNote> codes_of_mesh() { return mesh_notes; }

}  // namespace trainctl
