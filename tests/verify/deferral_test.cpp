// Deferred weight gradients of the head, against a single rank and against the usual order.
#include "catch.h"
#include "sample_run.h"
#include "sample_verify.h"
#include "thorough.h"

using namespace trainctl;

TEST_CASE("layouts with deferred weight gradients equal a single rank") {
  Options tied = small_gpt;
  tied.emplace_back("model.tie_word_embeddings=true");
  int model = 0;
  for (const Options& options : {tied, small_llama}) {
    int number = 0;
    for (const char* layout : some_of<const char*>(
             {"pp2+m4+deferred", "pp4+m4+deferred1", "pp2+gpipe+m4+deferred",
              "pp2+zb-h1+m4+deferred1", "pp2+zb-v+m4+deferred", "pp2+dp2+zb-v+m2+layers+deferred1",
              "tp2sp+pp2+dp2+m2+deferred", "tp2sp+vocab_dp+pp2+m4+deferred",
              "pp2+dp2+m4+zero1+deferred", "pp2+vp2+m4+deferred1+recompute"})) {
      if (!thorough() && !watched() && number++ % 2 != model) continue;  // the models take turns
      const LayoutVerdict verdict = compare_sample(options, layout);
      INFO(options[0] << " " << layout << ": " << told(verdict));
      CHECK(verdict.equal);
      const LayoutVerdict free = run_sample_freely(options, layout);
      INFO(told(free));
      CHECK(free.equal);
    }
    ++model;
  }
}

TEST_CASE("deferring all weight gradients keeps every bit") {
  const auto reports = [](Options options, const char* deferral) {
    options.insert(options.end(), {"parallel.pipeline_stages=2", "train.micro_batch_size=1",
                                   "parallel.gradient_accumulation_fusion=true",
                                   std::string("parallel.pipeline.") + deferral});
    return train_sample({.set_options = options, .ranks = 4, .steps = 5, .world = {}});
  };
  for (const Options& options : {Options{}, Options{"train.rampup_batch_size=[2, 2, 7]"}}) {
    const auto usual = reports(options, "defer_embedding_wgrad_compute=false");
    const auto deferred = reports(options, "defer_embedding_wgrad_compute=true");
    for (std::size_t i = 0; i < usual.size(); ++i) {
      CHECK(deferred[i].loss == usual[i].loss);
      CHECK(deferred[i].grad_norm == usual[i].grad_norm);
    }
  }
}
