// The field lists of the parallel section; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/gradient_fields.h"
#include "config/schema/model_fields.h"
#include "config/schema/parallel_config.h"
#include "config/schema/pipeline_fields.h"

namespace trainctl {

template <class Visitor>
void mesh_fields(Visitor& visit, Is<ParallelConfig> auto& parallel) {
  const auto size = [](const char* key, const char* meaning) consteval {
    return field(key, meaning).from(1).to(max_ranks);
  };
  visit(parallel.parallel_mode,
        field("parallel_mode", "How ranks share the work")
            .unset("hybrid_parallel if a size or an option below needs it, data_parallel with more "
                   "than one rank, else stand_alone"));
  visit(parallel.device_num,
        size("device_num", "Number of ranks; must equal the world size").unset("the world size"));
  visit(parallel.global_rank,
        field("global_rank", "The rank that `plan` shows; the launcher numbers the ranks")
            .from(0)
            .to(max_ranks));
  visit(parallel.data_parallel,
        size("data_parallel", "Replicas of the model")
            .unset("world size / (tensor_parallel x pipeline_stages x context_parallel)"));
  visit(parallel.tensor_parallel,
        size("tensor_parallel", "Ranks that split the heads, MLP and vocabulary"));
  visit(parallel.sequence_parallel,
        field("sequence_parallel",
              "Tensor-parallel ranks split the tokens outside the matrix products"));
  visit(parallel.context_parallel, size("context_parallel", "Ranks that split each sequence"));
  visit(parallel.cp_comm_type,
        field("cp_comm_type", "How context-parallel ranks exchange k and v, by layer"));
  visit(parallel.hierarchical_context_parallel_sizes,
        field("hierarchical_context_parallel_sizes",
              "Levels of a context-parallel group; their product is context_parallel")
            .from(1)
            .to(max_ranks)
            .unset("one level"));
  visit(parallel.expert_parallel, size("expert_parallel", "Ranks that divide the experts"));
  visit(parallel.expert_tensor_parallel,
        size("expert_tensor_parallel", "Ranks that split each expert").unset("tensor_parallel"));
  visit(parallel.pipeline_stages,
        size("pipeline_stages", "Groups of ranks that divide the layers"));
  visit(parallel.virtual_pipeline_stages,
        size("virtual_pipeline_stages", "Chunks of layers on each stage"));
  visit(parallel.rank_order,
        field("rank_order", "Order of the axes, from the smallest stride to the largest").from(1));
}

template <class Visitor>
void fields(Visitor& visit, Is<ParallelConfig> auto& parallel) {
  mesh_fields(visit, parallel);
  visit.section(parallel.pipeline, field("pipeline", "Stages, schedule and messages"));
  visit.section(parallel.parallel_optimizer,
                field("parallel_optimizer", "Optimizer state sharded over the replicas"));
  visit.section(parallel.tp_comm_overlap,
                field("tp_comm_overlap", "Overlap of tensor-parallel collectives"));
  visit.section(parallel.operator_splits,
                field("operator_splits",
                      "semi_auto_parallel: how tensor-parallel ranks share each "
                      "operator"));
  visit(parallel.bucket_rule, field("bucket_rule", "How gradients form buckets")
                                  .unset("comm_fusion if comm_fusion is given, layers if "
                                         "gradient_aggregation_group is given, else size"));
  visit(parallel.bucket_size,
        field("bucket_size", "Number of gradient elements reduced together (size, megatron)")
            .from(1)
            .to(1e12)
            .unset("4 million (size); the larger of 40 million and 1 million x replicas "
                   "(megatron)"));
  visit.section(parallel.comm_fusion, field("comm_fusion", "Fusion of collectives, by kind"));
  visit(parallel.gradient_aggregation_group,
        field("gradient_aggregation_group",
              "Number of layer groups; the gradients of a group are fused")
            .from(1)
            .to(1 << 20)
            .unset("bucket_rule decides"));
  gradient_fields(visit, parallel);
  visit(parallel.enable_alltoall,
        field("enable_alltoall", "Attention by tokens: exchange by all-to-all; false: all-gather"));
  visit(parallel.gradient_accumulation_fusion,
        field("gradient_accumulation_fusion",
              "true: matrix products add to the weight gradients directly; false: each is computed "
              "in an fp32 buffer as large as the largest matrix, then added; differs by rounding")
            .unset("true"));
  visit(parallel.delay_wgrad_compute,
        field("delay_wgrad_compute",
              "Compute a stage's weight gradients after it has sent the gradient of its input"));
  visit(parallel.vocab_emb_dp,
        field("vocab_emb_dp", "Every tensor-parallel rank holds the whole token embedding")
            .unset("true without tensor parallelism"));
  visit(parallel.dataset_strategy,
        field("dataset_strategy",
              "data_parallel: each rank reads the micro-batches of its replica; full_batch: each "
              "rank reads those of all replicas and uses its own; or a list of the number of "
              "slices per dimension for each input. Has no effect in data_parallel mode"));
  visit(parallel.search_mode, field("search_mode", "auto_parallel: how to search for splits"));
  visit.section(parallel.strategy_ckpt_config, field("strategy_ckpt_config", "Strategy files"));
  visit(parallel.group_ckpt_save_file,
        field("group_ckpt_save_file", "File for the communication groups"));
  visit(parallel.threads_per_rank, field("threads_per_rank", "Compute threads of each rank")
                                       .from(1)
                                       .to(4096)
                                       .unset("cores / ranks on the host"));
  visit(parallel.deadline_seconds,
        field("deadline_seconds", "Longest wait for another rank, in seconds").above(0).to(1e6));
  visit(parallel.check_collectives,
        field("check_collectives", "Ranks compare their calls before each collective over MPI"));
  visit(parallel.device,
        field("device",
              "Device that trains the model; auto: CUDA where every rank has one, and what it is "
              "without the key where cluster.device names a GPU")
            .one_of("auto|cpu|cuda"));
  visit(parallel.attention_backend,
        field("attention_backend", "Attention on CUDA devices; auto: cuDNN where all ranks can"));
  visit(parallel.product_algorithms,
        field("product_algorithms",
              "Algorithms of matrix products on CUDA devices; proposed: the library's first "
              "proposals; timed: the fastest of its proposals, which train times once after the "
              "first step, and stores with the checkpoints for sessions that go on from them"));
  visit(parallel.product_sm_margin,
        field("product_sm_margin",
              "With CUDA and several ranks: multiprocessors of a device that matrix products leave "
              "to collectives, as far as the library's algorithms can")
            .from(0)
            .to(1024));
  visit(
      parallel.cuda_graphs,
      field("cuda_graphs",
            "With CUDA: a step is captured once as a graph and launched from then on. The numbers "
            "are the same. auto: true with one rank where steps can be graphs, else false"));
  visit(parallel.head_chunk,
        field("head_chunk",
              "Most tokens whose logits a rank has at a time; more take fewer, larger products")
            .from(1)
            .to(1048576)
            .unset("8192 on CUDA; on the CPU a quarter of the tokens, and 256 MiB of logits"));
  visit(parallel.share_devices,
        field("share_devices",
              "With CUDA: several ranks may use one device; they take the devices of their machine "
              "in turns. true: without NCCL; nccl: over NCCL, between processes, to try it on one "
              "device"));
}

}  // namespace trainctl
