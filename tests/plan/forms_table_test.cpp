// The table in docs/forms.md of which forms of layers plan in which layouts: it must be what plans
// say today.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "catch.h"
#include "config/read/read.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

struct Named {
  const char* name;
  Options options;
};

const std::vector<Named>& forms() {
  static const std::vector<Named> list{
      {"none of these", {}},
      {"sliding window", {"model.sliding_window=65"}},
      {"chunks", {"model.attention_chunk_size=64"}},
      {"soft caps", {"model.attn_logit_softcapping=50", "model.final_logit_softcapping=30"}},
      {"sinks", {"model.softmax_type=learnable"}},
      {"temperature", {"model.attention_temperature={beta: 0.1, floor: 16}"}},
      {"output gate", {"model.attention_output_gate=true"}},
      {"q/k norm of a head", {"model.qk_layernorm=true"}},
      {"q/k norm of all heads", {"model.qk_layernorm=true", "model.qk_layernorm_form=whole"}},
      {"q/k norm without weights", {"model.qk_layernorm=true", "model.qk_layernorm_form=l2"}},
      {"norms after branches", {"model.norm_placement=both"}},
      {"biases", {"model.add_bias_linear=true"}},
      {"multipliers", {"model.residual_multiplier=0.5", "model.logit_scale=0.25"}},
      {"RoPE of a part, of neighbours",
       {"model.rotary_percent=0.5", "model.rotary_interleaved=true"}},
      {"YaRN",
       {"model.rope_scaling={type: yarn, factor: 4, original_max_position_embeddings: 64}"}},
  };
  return list;
}

const std::vector<Named>& layouts() {
  static const std::vector<Named> list{
      {"tp, sp", {"parallel.tensor_parallel=4", "parallel.sequence_parallel=true"}},
      {"tp overlap",
       {"parallel.tensor_parallel=4", "parallel.sequence_parallel=true",
        "parallel.tp_comm_overlap.enable=true"}},
      {"attention by tokens",
       {"parallel.tensor_parallel=2", "parallel.parallel_mode=semi_auto_parallel",
        "parallel.operator_splits.attention=tokens"}},
      {"cp ring", {"parallel.context_parallel=4", "parallel.cp_comm_type=p2p"}},
      {"cp gather", {"parallel.context_parallel=4", "parallel.cp_comm_type=all_gather"}},
      {"cp heads", {"parallel.context_parallel=2", "parallel.cp_comm_type=a2a"}},
      {"pp",
       {"parallel.pipeline_stages=4", "parallel.pipeline.scheduler=zb-h1",
        "train.micro_batch_size=1"}},
      {"ZeRO 3",
       {"parallel.parallel_optimizer.enable=true",
        "parallel.parallel_optimizer.optimizer_level=level3"}},
      {"recompute", {"recompute.enable=true"}},
      {"cuDNN",
       {"parallel.attention_backend=cudnn", "parallel.device=cuda", "precision.compute=bf16"}},
  };
  return list;
}

/// "yes", or the codes of what refuses it.
std::string answer(const Named& form, const Named& layout) {
  Options options = form.options;
  options.insert(options.end(), layout.options.begin(), layout.options.end());
  ReadResult read = read_config_text(
      "model: {family: llama, num_layers: 4, hidden_size: 256, num_attention_heads: 4,"
      " num_query_groups: 2, seq_length: 256, vocab_size: 256}\n"
      "data: {train: none}\ntrain: {steps: 10, global_batch_size: 16}\n"
      "lr_schedule: {max_lr: 1.0e-3}\n",
      "sample.yaml", options);
  Site site = site_of(4);
  site.device = DeviceKind::cuda;
  site.cudnn = true;
  if (!read.diagnostics.has_errors()) make_plan(read.config, site, read.sources, read.diagnostics);
  std::string codes;
  for (const Diagnostic& one : read.diagnostics.list()) {
    if (one.severity != Severity::error) continue;
    codes += (codes.empty() ? "`" : ", `") + one.code + "`";
  }
  return codes.empty() ? "yes" : codes;
}

std::string table_of_today() {
  std::string text = "| form |";
  std::string line = "|---|";
  for (const Named& layout : layouts()) {
    text += " " + std::string(layout.name) + " |";
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const Named& form : forms()) {
    text += "| " + std::string(form.name) + " |";
    for (const Named& layout : layouts()) text += " " + answer(form, layout) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the table of forms and layouts is what plans say") {
  std::ifstream page(std::string(TRAINCTL_SOURCE_DIR) + "/docs/forms.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  const std::size_t begin = text.find("| form | tp, sp |");
  REQUIRE(begin != std::string::npos);
  const std::size_t end = text.find("\n\n", begin);
  INFO("it should be\n" << table_of_today());
  CHECK(text.substr(begin, end + 1 - begin) == table_of_today());
}
