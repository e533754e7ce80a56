#include "nn/stage.h"

#include <vector>

#include "base/at.h"
#include "comm/world.h"
#include "nn/block.h"
#include "nn/ends.h"
#include "nn/saved.h"

namespace trainctl {

namespace {

class DecoderStage final : public Stage {
 public:
  explicit DecoderStage(const StageInput& input)
      : input_(input), alone_(self_group("alone")), head_unit_(head_unit(input.model.layers)) {
    for (const UnitRange& range : input.units) {
      for (int unit = range.begin; unit < range.end; ++unit) add_unit(input, unit);
    }
    saved_.resize(static_cast<std::size_t>(input.views));
    gradients_.resize(saved_.size());
    for (int view = 0; view < input.views; ++view) place(view);
  }

  void place(int view) override {
    at(saved_, view) = place_view(input_, view);
    at(gradients_, view) = place_gradients(input_, view);
  }

  void forward(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    for (int unit = units.begin; unit < units.end; ++unit) {
      if (unit == 0) {
        embedding_.forward(pass, saved.embedding);
      } else if (unit < head_unit_) {
        blocks_[index(unit)].forward(pass, saved.first[index(unit)], leg);
      } else {
        final_norm_.forward(pass, saved.final_norm);
        if (pass.cache == nullptr) return head_.forward(pass, saved.head);
        const Tensor& x = saved.head.x;
        head_.logits(pass, x.slice(x.rows() - 1, x.rows()), saved.head.logits);
      }
    }
  }

  void repeat(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    for (int unit = units.begin; unit < units.end; ++unit) {
      blocks_[index(unit)].repeat(pass, saved.blocks[index(unit)], leg);
    }
  }

  void backward_input(const Pass& pass, int view, const UnitRange& units,
                      ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    const ViewGradients& gradients = at(gradients_, view);
    for (int unit = units.end - 1; unit >= units.begin; --unit) {
      if (unit == head_unit_) {
        final_norm_.backward(pass, saved.final_norm, saved.head.dx, Tensor{}, gradients.head_input);
      } else if (unit > 0) {
        blocks_[index(unit)].backward_input(pass, saved.blocks[index(unit)],
                                            gradients.blocks[index(unit)], leg);
      } else {
        embedding_.backward(pass, gradients.embedded, gradients.all_embedded);
      }
    }
  }

  void backward_weight(const Pass& pass, int view, int begin, int end) override {
    const ViewSaved& saved = at(saved_, view);
    const ViewGradients& gradients = at(gradients_, view);
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == 0) continue;  // finished in B
      if (unit == head_unit_) {
        head_.backward_weight(pass, saved.head);
        continue;
      }
      blocks_[index(unit)].backward_weight(pass, saved.blocks[index(unit)],
                                           gradients.blocks[index(unit)]);
    }
  }

 private:
  void add_unit(const StageInput& input, int unit) {
    if (unit == 0) {
      embedding_ = make_embedding(input.weights, input.model, input.tp, input.splits.embedding);
    } else if (unit == head_unit_) {
      final_norm_ = make_norm(input.weights, "final_norm", input.model.norm_kind, input.model);
      head_ = make_vocab_head(input.weights, input.model, input.tp, input.splits.head, *alone_);
    } else {
      block_at_.resize(static_cast<std::size_t>(unit) + 1);
      block_at_.back() = blocks_.size();
      ExpertGroups experts = input.experts;
      if (experts.ep == nullptr) experts.ep = alone_.get();
      blocks_.push_back(make_block({input.weights,
                                    input.model,
                                    input.rope_tables,
                                    input.temperature_tables,
                                    {input.tp, input.context.of_unit(unit), input.micro_batch_size,
                                     input.splits.of_unit(unit), input.splits.moves_at_once},
                                    experts},
                                   unit - 1));
    }
  }

  /// The place of a block's unit among this stage's blocks.
  std::size_t index(int unit) const { return at(block_at_, unit); }

  StageInput input_;
  std::unique_ptr<Group> alone_;
  int head_unit_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> block_at_;  // by unit
  Norm final_norm_;
  VocabHead head_;
  std::vector<ViewSaved> saved_;          // by view
  std::vector<ViewGradients> gradients_;  // by view
};

}  // namespace

std::unique_ptr<Stage> make_decoder_stage(const StageInput& input) {
  return std::make_unique<DecoderStage>(input);
}

}  // namespace trainctl
