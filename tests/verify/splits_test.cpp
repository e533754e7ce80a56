// A split for each operator: against a single rank, with mistakes, and at random.
#include <random>

#include "base/error.h"
#include "catch.h"
#include "config/schema/words.h"
#include "plan/tables/splits.h"
#include "sample_faults.h"
#include "sample_verify.h"
#include "thorough.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

constexpr auto tp = static_cast<std::size_t>(Axis::tp);

/// A mistake in the sums of the gradient of one parameter.
Faults sums(const std::string& name, bool over_tp) {
  return of_plan([name, over_tp](Plan& plan) {
    for (ParamSpec& row : plan.stages[0].parameters) {
      if (row.name == name) row.gradient_sum[tp] = over_tp;
    }
  });
}

/// Splits and sizes drawn from a seed; what the rules forbid is drawn again.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  bool coin() { return number(2) == 1; }
  int number(int below) { return std::uniform_int_distribution(0, below - 1)(random_); }
  std::string split() { return std::string(word_of(all_splits[number(3)])); }
  std::string per_layer() {
    std::string text;
    for (int layer = 0; layer < 4; ++layer) text += (layer > 0 ? ", " : "") + split();
    return text;
  }
  /// With a tied table, embedding and head alike.
  Options splits(bool tied) {
    const std::string table = split();
    return {"parallel.parallel_mode=semi_auto_parallel",
            "parallel.operator_splits.attention=" + per_layer(),
            "parallel.operator_splits.feed_forward=" + per_layer(),
            "parallel.operator_splits.embedding=" + table,
            "parallel.operator_splits.head=" + (tied ? table : split())};
  }
  std::string layout() {
    std::string text = coin() ? "tp2" : "tp4";
    if (coin()) text += "sp";
    const char* more[] = {"",           "+pp2+m2", "+dp2",    "+recompute", "+selective",
                          "+dp2+zero2", "+m4",     "+delayw", "+offload2",  "+dp2+zero3"};
    const std::string word = more[number(10)];
    text += word == "+delayw" ? "+pp2+m4" + word : word;
    return coin() ? text + "+alltoall" : text;
  }

 private:
  std::mt19937 random_;
};

bool is_legal(const Options& options, const std::string& layout) {
  try {
    const Config config = read_sample(options).config;
    const LayoutChoice choice = parse_layouts(layout, 0).front();
    plan_of(with_layout(config, choice), choice.sizes.ranks());
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("operators by tokens and whole ones equal a single rank", "[threads]") {
  check_equal(small_gpt, {"tp2+attn_tokens", "tp4sp+attn_tokens+alltoall", "tp2sp+mlp_tokens",
                          "tp4+mlp_tokens", "tp2+attn_whole+mlp_whole", "tp2sp+vocab_whole",
                          "tp4+vocab_tokens+attn_mixed+mlp_mixed"});
  check_equal(small_llama, {"tp2sp+attn_whole", "tp4sp+mlp_whole", "tp2sp+emb_whole+attn_mixed",
                            "tp2+head_whole+attn_tokens+mlp_tokens", "tp4+emb_tokens"});
}

TEST_CASE("they equal it together with other switches", "[threads-every]") {
  check_equal(small_gpt, {"tp2sp+pp2+attn_mixed+mlp_mixed+m4+recompute", "tp2+dp2+mlp_tokens+zero3",
                          "tp2sp+attn_mixed+mlp_mixed+tpoverlap", "tp2+cp2+mlp_mixed+vocab_tokens",
                          "tp2+cp2+p2p+attn_mixed", "tp2sp+cp2+all_gather+attn_tokens",
                          "tp2sp+cp2+a2a+attn_whole+recompute", "tp2sp+attn_tokens+kept_sums",
                          "tp4+attn_mixed+sliced+offload2"});
  // Queries and keys clipped by scores that are rounded otherwise, and large enough for that.
  check_equal(with(small_gpt, with(in_bf16, {"optimizer.qk_clip_threshold=0.01",
                                             "model.init_method_std=0.1"})),
              {"tp2sp+attn_mixed+mlp_mixed+vocab_whole"});
  Options wide = with(small_llama, in_bf16);
  wide.emplace_back("parallel.force_fp32_communication=true");
  check_equal(wide, {"tp2sp+attn_tokens+mlp_tokens", "tp2+attn_mixed"});
}

TEST_CASE("split operators send what the plan says") {
  check_free(small_gpt, {"tp2+attn_mixed+mlp_mixed", "tp2sp+attn_mixed+mlp_mixed+alltoall",
                         "tp2sp+attn_tokens+recompute", "tp4+vocab_tokens+mlp_tokens+m2",
                         "tp2sp+cp2+p2p+attn_mixed"});
  check_free(small_llama, {"tp2sp+head_tokens+attn_whole", "tp2+emb_tokens+attn_tokens"});
}

/// In F a layer by tokens of a whole stream gathers its output; its attention also q, k, v and what
/// it makes of them.
TEST_CASE("mistakes in splits are named") {
  const FaultAction skip = left_out();
  const FaultAction swapped = with_output(swap_halves);
  check_faults({
      {"a gradient by tokens not summed", small_gpt, "tp2sp+mlp_tokens",
       sums("layers.1.mlp.up.weight", false), "gradient", "layers.1.mlp.up.weight"},
      {"a bias of attention by tokens not summed", small_gpt, "tp2+attn_tokens",
       sums("layers.2.attention.q.bias", false), "gradient", "layers.2.attention.q.bias"},
      {"a gradient of a whole operator summed", small_gpt, "tp2sp+attn_whole",
       sums("layers.1.attention.out.weight", true), "gradient", "layers.1.attention.out.weight"},
      {"the output by tokens not gathered", small_gpt, "tp2+mlp_tokens",
       on_all(2, layers_tp(all_gather, 2, skip)), "activation", "layers.1"},
      {"the output by tokens in the wrong order", small_gpt, "tp2+mlp_tokens",
       on_all(2, layers_tp(all_gather, 3, swapped)), "activation", "layers.2"},
      {"heads of the wrong tokens", small_gpt, "tp2sp+attn_tokens+alltoall",
       on_all(2, layers_tp(all_to_all, 5, swapped)), "activation", "layers.1"},
      {"results of the wrong tokens, by gathers", small_gpt, "tp2+attn_tokens+mlp_whole",
       on_all(2, layers_tp(all_gather, 9, swapped)), "activation", "layers.1"},
      {"the embedding by tokens not gathered", small_gpt, "tp2+vocab_tokens",
       on_all(2, layers_tp(all_gather, 1, skip)), "activation", "embedding"},
  });
}

TEST_CASE("splits at random equal a single rank", "[threads-every]") {
  int done = 0;
  for (unsigned seed = 1; done < tries(20, 200); ++seed) {
    Draw draw(seed);
    const bool gpt = draw.coin();
    const Options options = with(gpt ? small_gpt : small_llama, draw.splits(gpt));
    const std::string layout = draw.layout();
    if (!is_legal(options, layout)) continue;
    ++done;
    INFO("seed " << seed << ", " << options[options.size() - 4] << ", "
                 << options[options.size() - 3]);
    const LayoutVerdict verdict = compare_sample(options, layout);
    INFO(told(verdict));
    CHECK(verdict.equal);
  }
}
